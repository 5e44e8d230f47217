"""Planning off the event loop: short queues in a thread, long ones in a process of its own (`worker`)."""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple, TypeVar

import msgspec

from oarlock.config import Config
from oarlock.job import quotas
from oarlock.job.run import schedule
from oarlock.job.run.schedule import Decision
from oarlock.model.errors import OarlockError
from oarlock.server.planning import worker
from oarlock.server.planning.worker import LENGTH, PlanRequest
from oarlock.store.engine.database import Database
from oarlock.store.queries import snapshot

T = TypeVar("T")

LEAST_DEPTH, MOST_DEPTH = 64, 512
"""Waiting jobs of a queue that a quick pass looks at: what can start now is nearly always among them."""

_LOOK_SHARE = 10.0  # the arrays behind the first jobs are looked at once in this many times the CPU time it takes
_LEAST_LOOK, _LONGEST_LOOK = 0.2, 3.0

_SLACK = 30.0  # seconds beyond its own limit after which a planning process is given up


class PlannerGone(OarlockError):
    """A planning process that ended or did not answer."""

    http_status = 503


def plan(
    database: Database, request: PlanRequest, *, depth: int, memory: snapshot.SnapshotCache, arrays: bool = False
) -> Decision:
    """Read a snapshot of the first waiting jobs of each queue, and plan it; with `arrays`, those behind them, too."""
    end = time.monotonic() + request.seconds
    window, now = request.karma_window, request.now
    with database.read() as tx:
        snapshot_read = schedule.read(
            tx, request.how, karma_window=window, now=now, depth=depth, arrays=arrays, memory=memory
        )
    return schedule.decide(snapshot_read, request.how, now=now, out_of_time=lambda: time.monotonic() > end)


class PlanningProcess(NamedTuple):
    """A planning process: its socket, how to kill it, and how to wait for its end."""

    line: socket.socket
    kill: Callable[[], None]
    wait: Callable[[], object]


def spawn() -> PlanningProcess:
    """Start a planning process."""
    ours, theirs = socket.socketpair()
    command = (sys.executable, "-m", "oarlock.server.planning.worker")
    line = theirs.fileno()
    process = subprocess.Popen(command, stdin=line, stdout=line, start_new_session=True)  # noqa: S603 - our own
    theirs.close()
    return PlanningProcess(ours, process.kill, process.wait)


def fork() -> PlanningProcess:
    """Fork a planning process: what the server has loaded it need not load again.

    Only for a process without threads, open files and children of its own: a server that has just been started.
    """
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        try:
            os.setsid()
            ours.close()
            worker.main(theirs.makefile("rb"), theirs.makefile("wb"))
        except BrokenPipeError:  # the server went away during a pass
            pass
        except Exception:  # noqa: BLE001 - the boundary of a forked child
            traceback.print_exc()
        finally:
            os._exit(0)
    theirs.close()
    return PlanningProcess(ours, lambda: os.kill(pid, signal.SIGKILL), lambda: os.waitpid(pid, 0))


class QuickPass(NamedTuple):
    """A quick pass: its decision, the CPU seconds it took, and whether all jobs that it planned start now.

    `look_in`: seconds until the jobs behind those are due to be looked at, if this pass left them out.
    """

    decision: Decision
    cost: float
    all_start: bool
    look_in: float | None = None


class PlanningClient:
    """Plans the database as it is. The first `process` may be passed; later ones are started."""

    def __init__(self, database: Database, config: Config, process: PlanningProcess | None = None) -> None:
        self._database, self._config = database, config
        self._how = schedule.plan_settings(config)
        self._process = process
        self._line: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._depth = LEAST_DEPTH
        self._look_at = 0.0  # when arrays behind the first jobs may be looked at again
        self._cache = snapshot.SnapshotCache()
        # Threads of its own: a pass must not wait for readers.
        self._threads = ThreadPoolExecutor(2, thread_name_prefix="oarlock-planning")

    def _request(self, now: int, *, dates: bool = True) -> PlanRequest:
        """Build a request. Reads the quota file if it changed, so never call this on the event loop."""
        config = self._config
        if self._how.quotas is not None:
            self._how = msgspec.structs.replace(self._how, quotas=quotas.current(config))
        return PlanRequest(self._database.address, self._how, config.karma_window, now, config.scheduler_timeout, dates)

    async def quick(self, now: int) -> QuickPass:
        """Plan the first jobs of each queue (`left`: there are more)."""
        arrays = time.monotonic() >= self._look_at
        decision, cost = await self._off_the_loop(partial(self._plan_here, now, arrays=arrays))
        if arrays and decision.left:
            self._look_at = time.monotonic() + min(max(_LOOK_SHARE * cost, _LEAST_LOOK), _LONGEST_LOOK)
        look_in = max(self._look_at - time.monotonic(), 0.0) if decision.left and not arrays else None
        done = QuickPass(decision, cost, len(decision.starts) >= self._depth, look_in)
        self._adapt_depth(len(decision.starts))
        return done

    async def _off_the_loop(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def _adapt_depth(self, started: int) -> None:
        """Choose the next depth; between the two bounds it stays, lest passes of one kind change it each time."""
        if 2 * started > self._depth:
            self._depth = min(2 * self._depth, MOST_DEPTH)
        elif 4 * started < self._depth:
            self._depth = max(self._depth // 2, LEAST_DEPTH)

    def _plan_here(self, now: int, *, arrays: bool) -> tuple[Decision, float]:
        began = time.thread_time()
        memory = self._cache
        self._cache = snapshot.SnapshotCache()  # a pass that fails must not leave a half-filled cache
        decision = plan(self._database, self._request(now), depth=self._depth, memory=memory, arrays=arrays)
        if not memory.is_full:
            self._cache = memory
        return decision, time.thread_time() - began

    async def whole(self, now: int, *, dates: bool = True) -> Decision:
        """Plan all jobs, in the planning process; if that one dies (`PlannerGone`), the next call starts another.

        Without `dates` it only says who starts now, which takes a fraction of the time (`Decision.whole` is False).
        """
        request = await self._off_the_loop(partial(self._request, now, dates=dates))
        try:
            async with asyncio.timeout(request.seconds + _SLACK):
                return await self._ask(request)
        except (TimeoutError, OSError, EOFError) as error:
            await self.close()
            raise PlannerGone(f"The planning process ended: {error!r}.") from error

    async def _ask(self, request: PlanRequest) -> Decision:
        if self._line is None:
            if self._process is None:
                self._process = spawn()  # not in a thread: a cancellation meanwhile would leak the process
            self._line = await asyncio.open_unix_connection(sock=self._process.line)
        reader, writer = self._line
        body = msgspec.msgpack.encode(request)
        writer.write(len(body).to_bytes(LENGTH, "big") + body)
        await writer.drain()
        length = int.from_bytes(await reader.readexactly(LENGTH), "big")
        return msgspec.msgpack.decode(await reader.readexactly(length), type=Decision)

    def close_threads(self) -> None:
        """Finish the pass under way, and stop the threads."""
        self._threads.shutdown(cancel_futures=True)

    async def close(self) -> None:
        """Kill the planning process."""
        process, self._process = self._process, None
        line, self._line = self._line, None
        if line is not None:
            line[1].close()
        if process is not None:
            process.line.close()
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await asyncio.to_thread(process.wait)
