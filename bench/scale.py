"""How far a server goes: jobs on 200 pretended nodes, connected or not, and what 500 idle ones cost it."""

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from bench import door
from bench.harness import figure, workspace
from bench.life import remove_groups_of, submit_to
from oarlock.model.job import FINAL, JobState
from oarlock.model.resource import Value
from oarlock.store.engine.database import Database
from oarlock.store.engine.opening import open_database
from oarlock.store.queries.cluster import resources
from oarlock.store.queries.job import jobs as stored

_WIDE, _IDLE = 200, 500
_WATCHED_SECONDS = 20.0
_WAIT_SECONDS = 240.0
_TICKS = os.sysconf("SC_CLK_TCK")
_SETTINGS = {"NODE_TRANSPORT": "local", "LOG_LEVEL": 1, "FINAUD_FREQUENCY": 0, "OAR_SSH_CONNECTION_TIMEOUT": 120}


@figure("scale.wide", unit="s", target=0.8)
def wide() -> float:
    """Start a job on 200 nodes that are connected: from its submission until it runs; the best of five."""
    with _site(_WIDE) as site:
        site.run_wide()
        return min(site.run_wide() for _ in range(5))


@figure("scale.cold", unit="s", target=12)
def cold() -> float:
    """Start a job on 200 nodes that are not connected: from its submission until it runs."""
    with _site(_WIDE) as site:
        return site.run_wide()


@figure("scale.idle", unit="% of a core", target=3)
def idle() -> float:
    """Stay connected to 500 nodes without jobs: the CPU time of the server alone."""
    with _site(_IDLE) as site:
        site.run_wide()
        return site.idle_share()


@figure("scale.memory", unit="MB a node", target=0.5)
def memory() -> float:
    """Stay connected to 500 nodes: what the server holds more than before."""
    with _site(_IDLE) as site:
        before = site.resident()
        site.run_wide()
        return (site.resident() - before) / _IDLE / 2**20


class _Site:
    """A server with nodes of one core each, all of them on this machine."""

    def __init__(self, database: Database, state: Path, user: str, server: int, nodes: int) -> None:
        self._database, self._state, self._user, self._server, self._nodes = database, state, user, server, nodes
        self._last = 0

    def run_wide(self) -> float:
        """Run a job on all nodes to its end; return how long it took until it ran."""
        began = time.monotonic()
        with door.seen_as(self._user):
            submit_to(
                self._state / "server.sock", f"/network_address={self._nodes}/resource_id=1,walltime=1", self._state
            )
        self._last += 1
        running = self._await({JobState.RUNNING, JobState.FINISHING, *FINAL}) - began
        self._await(FINAL)
        with self._database.read() as tx:
            if (state := stored.get(tx, self._last).state) is not JobState.TERMINATED:
                raise ValueError(f"the job on {self._nodes} nodes is {state}")
        return running

    def _await(self, states: set[JobState] | frozenset[JobState]) -> float:
        end = time.monotonic() + _WAIT_SECONDS
        while time.monotonic() < end:
            with self._database.read() as tx:
                if stored.get(tx, self._last).state in states:
                    return time.monotonic()
            time.sleep(0.01)
        raise TimeoutError(f"a job on {self._nodes} nodes is not {', '.join(states)} after {_WAIT_SECONDS:g} s")

    def idle_share(self) -> float:
        """Return how much of a core the server uses, in percent, while nothing happens."""
        before = self._ticks()
        time.sleep(_WATCHED_SECONDS)
        return 100 * (self._ticks() - before) / _TICKS / _WATCHED_SECONDS

    def _ticks(self) -> int:
        fields = Path(f"/proc/{self._server}/stat").read_text().rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])

    def resident(self) -> int:
        """Return the bytes that the server itself holds."""
        pages = int(Path(f"/proc/{self._server}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGESIZE")


@contextlib.contextmanager
def _site(nodes: int) -> Iterator[_Site]:
    user, names = f"oarlw{os.getpid() % 100000}", [f"wide{os.getpid()}n{number}" for number in range(nodes)]
    with workspace() as place:
        state = place / "state"
        (state / "home").mkdir(parents=True)
        (state / "home").chmod(0o777)
        subprocess.run(["useradd", "-M", "-s", "/bin/sh", user], check=True, capture_output=True)
        try:
            with open_database(state / "oarlock.db", create=True) as database:
                rows: list[dict[str, Value]] = [{"network_address": name, "cpuset": 0} for name in names]
                database.write(lambda tx: resources.add(tx, rows, at=int(time.time())))
                with door.serving(state, _SETTINGS) as server:
                    door.appeared(state / "server.sock", server)
                    yield _Site(database, state, user, server.pid, nodes)
        finally:
            subprocess.run(["userdel", user], check=False, capture_output=True)
            remove_groups_of(names)
