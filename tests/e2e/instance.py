"""A server in a process of its own, its database read from outside, jobs put straight into the store."""

import contextlib
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import make_url

from oarlock.client import Client
from oarlock.lang import request as requests
from oarlock.model.job import FINAL, Job, JobState
from oarlock.store.engine.opening import open_database
from oarlock.store.queries.cluster import events
from oarlock.store.queries.job import jobs, new_jobs
from oarlock.store.queries.usage import accounting
from tests import bed
from tests.clusters import add_nodes
from tests.waiting import wait_until

SOURCE = Path(__file__).parents[2] / "src"
SETTINGS = {"NODE_TRANSPORT": "local", "WATCH_FREQUENCY": 1, "JOBDEL_SOFTWALLTIME": 2, "JOBDEL_WALLTIME": 20}


class Instance:
    """A state directory with nodes of two cores. The server may be started, killed and started again.

    `more` are settings of its own; `address` is that of an empty PostgreSQL database; `source` has the server's code.
    """

    source = SOURCE

    def __init__(
        self,
        workspace: Path,
        user: str,
        nodes: Sequence[str],
        *,
        cores: int = 2,
        more: Mapping[str, object] | None = None,
        address: str = "",
    ) -> None:
        self.state, self.user = workspace / "state", user
        self.home = workspace / "home"
        self.home.mkdir()
        self.home.chmod(0o777)
        self.nodes = list(nodes)
        self.settings = workspace / "oar.conf"
        own = {"SERVER_HOSTNAME": own_address(), "SERVER_PORT": free_port()}
        given = {**SETTINGS, **own, **(more or {}), **_place(address)}
        self.settings.write_text("".join(f'{name}="{value}"\n' for name, value in given.items()))
        self.process: subprocess.Popen[bytes] | None = None
        self.state.mkdir()
        place = address or self.state / "oarlock.db"
        self.database = open_database(place, create=True, marker=self.state / "oarlock.db.created")
        self.database.write(lambda tx: self._add(tx, cores))

    def _add(self, tx: Any, cores: int) -> None:
        """Add the resources of the nodes."""
        cpus = sorted(os.sched_getaffinity(0))  # a real node refuses CPU numbers that it does not have
        add_nodes(tx, self.nodes, cores=cores, cpus=cpus, at=int(time.time()))

    def start(self) -> None:
        """Start the server. Jobs are submitted before: from then on it alone writes to the database."""
        with (self.state / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "oarlock", "serve", "--state", self.state, "--config", self.settings],
                env={**os.environ, "PYTHONPATH": str(self.source)},
                stderr=log,
            )

    def serve(self) -> None:
        """Start the server, and wait until it listens."""
        self.start()
        self.until((self.state / "server.sock").exists)

    def kill(self) -> None:
        """End the server as a power cut would."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> float:
        """Ask the server to end; give the seconds that took."""
        assert self.process is not None
        begin = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(timeout=10) == 0, self.log()
        self.process = None
        return time.monotonic() - begin

    def log(self) -> str:
        return (self.state / "log").read_text()

    def submit(self, command: str, asked: str = "/core=1,walltime=1", **fields: Any) -> int:
        return self.submit_many([command], asked, **fields)[0]

    def submit_many(
        self, commands: Sequence[str], asked: str = "/core=1,walltime=1", *, array: bool = True, **fields: Any
    ) -> list[int]:
        """Put jobs into the store, as one array or each by itself."""
        after, request = fields.pop("after", ()), requests.parse([asked])
        given = {
            "state": JobState.WAITING,
            "user": self.user,
            "queue": "default",
            "directory": str(self.home),
            "submitted": int(time.time()),
            **fields,
        }
        new = [
            new_jobs.NewJob(Job(id=0, command=one, array_index=n if array else 1, **given), request, after)
            for n, one in enumerate(commands, 1)
        ]
        return [job.id for job in self.database.write(lambda tx: new_jobs.add(tx, new))]

    def story(self, job: int) -> list[str]:
        with self.database.read() as tx:
            return [str(state) for state, *_ in jobs.state_history(tx, job)]

    def job(self, job: int) -> Job:
        with self.database.read() as tx:
            return jobs.get(tx, job)

    def events(self, job: int) -> list[str]:
        with self.database.read() as tx:
            return [str(noted.event.type) for noted in events.of_jobs(tx, [job])]

    def unsent(self) -> list[int]:
        with self.database.read() as tx:
            return list(events.pending_notices(tx))

    def used(self) -> int:
        with self.database.read() as tx:
            return sum(row.consumption for row in accounting.listed(tx) if row.kind == "USED")

    def until(self, done: Callable[[], bool], *, seconds: float = 40.0) -> None:
        """Wait for something that the server has to do; fail with its log."""

        def look() -> bool:
            assert self.process is None or self.process.poll() is None, "the server ended"
            return done()

        try:
            wait_until(look, seconds=seconds, what="it")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.log()[-3000:]}") from error

    def all_over(self) -> bool:
        with self.database.read() as tx:
            return set(jobs.count(tx)) <= FINAL

    def delete(self, *ids: int, wait: bool = True) -> None:
        """Delete jobs as root, and wait for their end."""
        answers = Client(str(self.state / "server.sock")).delete({"ids": list(ids)})
        assert [answer["done"] for answer in answers] == [True] * len(ids), answers
        if wait:
            self.until(lambda: all(self.job(job).state in FINAL for job in ids))

    def node_programs(self) -> list[int]:
        """Find the node programs that this server started."""
        assert self.process is not None
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return [int(pid) for pid in children if b"zlib" in Path(f"/proc/{pid}/cmdline").read_bytes()]

    def close(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.database.close()
        self._end_nodes()
        bed.remove_roots(*self.nodes)

    def _end_nodes(self) -> None:
        """End what still runs for this instance: its node programs and supervisors have its spool in their lives."""
        for path in Path("/proc").glob("[0-9]*/cwd"):
            with contextlib.suppress(OSError):
                if str(self.state) in str(path.readlink()):
                    os.kill(int(path.parent.name), signal.SIGKILL)


def free_port() -> int:
    """Give a port that nobody uses: instances of other tests run at the same time."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def own_address() -> str:
    """An address of this machine where no other instance listens."""
    return ".".join(["127", *(str(1 + secrets.randbelow(250)) for _ in range(3))])


Kind = TypeVar("Kind", bound=Instance)


def _place(address: str) -> dict[str, object]:
    if not address:
        return {}
    url = make_url(address)
    login = {"DB_BASE_NAME": url.database, "DB_BASE_LOGIN": url.username}
    return {"DB_TYPE": "Pg", "DB_HOSTNAME": url.query["host"], **login}


@contextlib.contextmanager
def instance(
    workspace: Path, user: str, name: str, *, nodes: int = 4, kind: type[Kind] = Instance, **more: Any
) -> Iterator[Kind]:
    """An instance of pretended nodes of this machine."""
    made = kind(workspace, user, [f"{name}{n}" for n in range(1, nodes + 1)], **more)
    try:
        yield made
    finally:
        made.close()
