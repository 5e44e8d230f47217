"""What a long queue costs the server: how soon it answers after a restart, and how much memory it holds."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from msgspec.structs import replace

from bench import door
from bench.harness import figure, workspace
from bench.life import _cpu_seconds
from bench.passes import _wait
from oarlock.client import Client
from oarlock.lang import request
from oarlock.model.job import Job, JobState, move
from oarlock.model.resource import Value
from oarlock.store.engine.opening import open_database
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.cluster import properties, resources
from oarlock.store.queries.job import attempts, jobs, new_jobs
from oarlock.store.queries.job import moves as stored_moves
from oarlock.store.queries.planning import plans

_NODES, _CORES = 16, 32
_RUNNING, _WAITING = 500, 20_000
_QUEUED = 100_000
_PASS_SECONDS = 300
OUT_OF_REACH = {"NODE_TRANSPORT": "ssh", "OPENSSH_CMD": "/bin/false", "FINAUD_FREQUENCY": 0, "LOG_LEVEL": 1}
"""Nodes that do not answer: what ran is neither lost nor run again, what waits does not start."""


@figure("server.restart", unit="CPU s", target=5)
def restart() -> float:
    """Start where 20,000 jobs wait and 500 run on nodes out of reach, until the server answers and has lost none."""
    with _site(_run_on_nodes, _WAITING) as state, door.serving(state, OUT_OF_REACH) as server:
        socket = door.appeared(state / "server.sock", server)
        found = Client(str(socket)).jobs(states="Running,Waiting")
        spent = _cpu_seconds(server.pid)
    states = [job["state"] for job in found]
    if (states.count("Running"), states.count("Waiting")) != (_RUNNING, _WAITING):
        raise ValueError(f"{states.count('Running')} jobs run and {states.count('Waiting')} wait")
    return spent


@figure("server.memory", unit="MB", target=500)
def memory() -> float:
    """Let 100,000 jobs wait: what the server and its planning process hold once those have dates."""
    with site_where_many_wait() as state, door.serving(state, OUT_OF_REACH) as server:
        door.appeared(state / "server.sock", server)
        await_pass(state)
        return held_bytes(server.pid) / 2**20


def site_where_many_wait() -> AbstractContextManager[Path]:
    """Make a state directory with 100,000 jobs that wait."""
    return _site(_hold_everything, _QUEUED)


def held_bytes(pid: int) -> int:
    """Return what a server and its planning process hold."""
    return sum(map(_resident, [pid, *_children(pid)]))


@contextmanager
def _site(run: Callable[[Tx], object], waiting: int) -> Iterator[Path]:
    with workspace() as place:
        state = place / "state"
        state.mkdir()
        with open_database(state / "oarlock.db", create=True, marker=state / "oarlock.db.created") as database:
            database.write(_add_nodes)
            database.write(run)
            database.write(lambda tx: _wait(tx, waiting))
        yield state


def _add_nodes(tx: Tx) -> None:
    properties.add(tx, "core", int)
    cores = range(_NODES * _CORES)
    rows: list[dict[str, Value]] = [
        {"network_address": f"node{core // _CORES}", "cpu": core // 16, "core": core, "cpuset": core % _CORES}
        for core in cores
    ]
    resources.add(tx, rows, at=int(time.time()))


def _run(tx: Tx, count: int, now: int, *types: str) -> list[Job]:
    """Let jobs run, one a core."""
    job = Job(id=0, state=JobState.WAITING, user="ada", queue="default", submitted=now, types=types, command="true")
    running = new_jobs.add(tx, [new_jobs.NewJob(job, request.parse(["/resource_id=1,walltime=10"]))] * count)
    # In a new database the only alternatives there are have the numbers of their jobs.
    running = [replace(one, start=now, assigned=one.id) for one in running]
    jobs.assign(tx, {one.assigned: [at] for at, one in enumerate(running, 1)})
    for state in (JobState.TO_LAUNCH, JobState.LAUNCHING, JobState.RUNNING):
        moves = [move(one, state, at=now, why="it runs") for one in running]
        stored_moves.record(tx, moves)
        running = [moved.job for moved in moves]
    return running


def _hold_everything(tx: Tx) -> None:
    """Let jobs that need no node hold every core, so that all others get a date and none starts."""
    _run(tx, _NODES * _CORES, int(time.time()), "noop")


def _run_on_nodes(tx: Tx) -> None:
    """Leave jobs as a server does that is killed while they run."""
    now = int(time.time())
    us = now * 1_000_000
    begun = [
        attempts.Attempt(
            job_id=one.id, secret_hash="", nodes=(attempts.AttemptNode(f"node{at // _CORES}", "boot"),), opened_us=us
        )
        for at, one in enumerate(_run(tx, _RUNNING, now))
    ]
    attempts.record(tx, [replace(one, started_us=us) for one in attempts.begin(tx, begun)])


def await_pass(state: Path) -> None:
    """Wait until a plan is written that was made by this server."""
    end = time.monotonic() + _PASS_SECONDS
    with open_database(state / "oarlock.db") as database:
        while time.monotonic() < end:
            with database.read() as tx:
                if len(plans.read(tx)) > _NODES * _CORES:
                    return
            time.sleep(1)
    raise TimeoutError(f"no plan was written within {_PASS_SECONDS} s")


def _children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(word) for task in tasks for word in task.read_text().split()]


def _resident(pid: int) -> int:
    """Give the bytes that a process holds; what it shares with others counts in part."""
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return next(int(line.split()[1]) * 1024 for line in rollup.splitlines() if line.startswith("Pss:"))
