"""Planning off the event loop: short queues in a thread, long ones in a process of its own (`worker`)."""

import asyncio
import contextlib
import hashlib
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
from oarlock.job.reactor.steps import QuickPass
from oarlock.job.run.starting import schedule
from oarlock.job.run.starting.schedule import Decision
from oarlock.model.errors import Unavailable
from oarlock.model.snapshot import SitePlan
from oarlock.plan.site_view import SiteView
from oarlock.server.planning import worker
from oarlock.server.planning.worker import LENGTH, PlanRequest
from oarlock.store.engine.database import Database
from oarlock.store.queries.planning import snapshot

T = TypeVar("T")


_SLACK = 30.0  # seconds beyond its own limit after which a planning process is given up


class PlannerGone(Unavailable):
    """A planning process that ended or did not answer."""


def plan(database: Database, request: PlanRequest, step: QuickPass, *, memory: snapshot.SnapshotCache) -> Decision:
    """Read a snapshot of the first waiting jobs of each queue, and plan it."""
    end = time.monotonic() + request.seconds
    window, now = request.karma_window, request.now
    with database.read() as tx:
        snapshot_read = schedule.read(
            tx,
            request.how,
            karma_window=window,
            now=now,
            depth=step.depth,
            arrays=step.arrays,
            memory=memory,
            site_plans=request.site_plans,
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


class PlanningClient:
    """Plans the database as it is. The first `process` may be passed; later ones are started."""

    def __init__(self, database: Database, config: Config, process: PlanningProcess | None = None) -> None:
        self._database, self._config = database, config
        self._how = schedule.plan_settings(config)
        self._process = process
        self._line: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._cache = snapshot.SnapshotCache()
        self.site_plans: dict[str, SitePlan] = {}  # by queue; `SiteSchedulers` fills it
        # Threads of its own: a pass must not wait for readers.
        self._threads = ThreadPoolExecutor(2, thread_name_prefix="oarlock-planning")

    def _request(self, now: int, *, dates: bool = True) -> PlanRequest:
        """Build a request. Reads the quota file if it changed, so never call this on the event loop."""
        config = self._config
        if self._how.quotas is not None:
            self._how = msgspec.structs.replace(self._how, quotas=quotas.current(config))
        return PlanRequest(
            self._database.address,
            self._how,
            config.karma_window,
            now,
            config.scheduler_timeout,
            dates,
            dict(self.site_plans),
        )

    async def site_view(self, now: int, queue: str, *, unless: bytes) -> tuple[bytes, SiteView | None]:
        """Return a digest of what the site's own scheduler of a queue sees besides time, and what it sees.

        Nothing is seen where the digest is the one of `unless`.
        """
        return await self._off_the_loop(partial(self._site_view, now, queue, unless))

    def _site_view(self, now: int, queue: str, unless: bytes) -> tuple[bytes, SiteView | None]:
        request = self._request(now)
        others = {name: site_plan for name, site_plan in request.site_plans.items() if name != queue}
        with self._database.read() as tx:
            read = schedule.read(tx, request.how, karma_window=request.karma_window, now=now, site_plans=others)
        seen = read.snapshot
        parts = seen.waiting, seen.placed, seen.resources, seen.windows, seen.quotas, others
        digest = hashlib.sha256(msgspec.msgpack.encode(parts)).digest()
        return digest, None if digest == unless else SiteView(seen, queue, now=now, settings=request.how)

    async def quick(self, now: int, step: QuickPass) -> tuple[Decision, float]:
        """Plan the first jobs of each queue (`left`: there are more); return the CPU seconds it took as well."""
        return await self._off_the_loop(partial(self._plan_here, now, step))

    async def _off_the_loop(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def _plan_here(self, now: int, step: QuickPass) -> tuple[Decision, float]:
        began = time.thread_time()
        memory = self._cache
        self._cache = snapshot.SnapshotCache()  # a pass that fails must not leave a half-filled cache
        decision = plan(self._database, self._request(now), step, memory=memory)
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
