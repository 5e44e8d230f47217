"""Two servers on one PostgreSQL database and real sshd nodes: whatever becomes of the active one, the other takes over.

Users submit meanwhile by commands that have both addresses. No job is lost, doubled, or started by both.
"""

import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count, cycle, islice
from pathlib import Path

import pytest
from sqlalchemy import make_url

from oarlock.config import load
from oarlock.model.job import JobState
from oarlock.server import check as checks
from oarlock.store.queries.job import jobs
from tests.bed import needs_root
from tests.crash.interrupted import DEAD
from tests.databases import Postgres
from tests.e2e.cluster import Cluster, cluster
from tests.e2e.instance import SOURCE, free_port, own_address
from tests.waiting import wait_until

pytestmark = [needs_root, pytest.mark.component("sshd"), pytest.mark.component("ip")]


class Server:
    """One of the two: a state directory, settings and a way to the database of its own."""

    def __init__(self, site: Cluster, folder: Path, gate: "Gate") -> None:
        self.state, self.settings, self.gate = folder / "state", folder / "oar.conf", gate
        self.state.mkdir(parents=True)
        if folder.name == "a":  # the other one begins with an empty directory, as it would on another machine
            shutil.copy(site.state / "oarlock.db.created", self.state)
        kept = [line for line in site.settings.read_text().splitlines() if not line.startswith(("SERVER_", "DB_HOST"))]
        own = {"SERVER_HOSTNAME": own_address(), "SERVER_PORT": free_port(), "DB_HOSTNAME": gate.folder}
        self.settings.write_text("\n".join([*kept, *(f'{name}="{value}"' for name, value in own.items()), ""]))

    @property
    def socket(self) -> str:
        return str(self.state / "server.sock")

    def start(self, *, dies_at: int | None = None) -> None:
        """Start it; `dies_at`: at which point of its take-over it dies."""
        program = ["oarlock"] if dies_at is None else ["tests.crash.take_over", str(dies_at)]
        arguments = ["serve", "--standby", "--state", self.state, "--config", self.settings]
        self.begun = len(self.log())
        with (self.state / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", *program, *arguments],
                env={**os.environ, "PYTHONPATH": f"{SOURCE}:{SOURCE.parent}"}, stderr=log,
            )  # fmt: skip

    def log(self) -> str:
        path = self.state / "log"
        return path.read_text() if path.exists() else ""

    def serves(self) -> bool:
        assert self.process.poll() is None, self.log()[-3000:]
        return " serving " in self.log()[self.begun :]

    def stands_by(self) -> bool:
        assert self.process.poll() is None, self.log()[-3000:]
        return "standing by" in self.log()[self.begun :]


class Gate:
    """A way to the socket of PostgreSQL that can be shut, as a network is: nothing passes, nothing is closed."""

    def __init__(self, folder: Path, target: str) -> None:
        self.folder, self._target = folder, target
        self.open = threading.Event()
        self.open.set()
        folder.mkdir(parents=True)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(f"{folder}/{Path(target).name}")
        self._listener.listen(128)
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self.open.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self.open.wait()
                server = socket.socket(socket.AF_UNIX)
                try:
                    server.connect(self._target)
                except OSError:
                    server.close()
                    client.close()
                    raise
                threading.Thread(target=self._carry_both, args=(client, server), daemon=True).start()

    def _carry_both(self, client: socket.socket, server: socket.socket) -> None:
        with client, server:
            back = threading.Thread(target=self._carry, args=(server, client), daemon=True)
            back.start()
            self._carry(client, server)
            back.join()

    def _carry(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                self.open.wait()
                sink.sendall(data)
        self.open.wait()
        for end in (source, sink):  # the other direction ends as well, and closes nothing twice
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


def death(active: Server) -> None:
    active.process.kill()
    active.process.wait()


def freeze(active: Server) -> None:
    active.process.send_signal(signal.SIGSTOP)


def thaw(active: Server) -> None:
    active.process.send_signal(signal.SIGCONT)
    _ended_as_no_longer_active(active)


def partition(active: Server) -> None:
    active.gate.open.clear()


def heal(active: Server) -> None:
    active.gate.open.set()
    _ended_as_no_longer_active(active)


def _ended_as_no_longer_active(server: Server) -> None:
    assert server.process.wait(timeout=40) == 2, server.log()[-3000:]
    log = server.log()[server.begun :]
    assert "Another server already works on this database: process " in log
    assert "Traceback" not in log, log[-3000:]


FAULTS = {"death": (death, lambda _: None), "freeze": (freeze, thaw), "partition": (partition, heal)}

_USER = """
import os, sys, time
from oarlock.client import Client
client = Client(sys.argv[1])
command = "sleep 0.3; echo $OAR_JOB_ID >> lines"
asked = {"command": command, "resources": ["/core=1,walltime=1"], "directory": os.getcwd()}
while not os.path.exists("enough"):
    print(client.submit(asked)["job_ids"][0], flush=True)
    time.sleep(float(sys.argv[2]))
"""


@contextmanager
def pair(workspace: Path, site: Cluster, address: str) -> Iterator[list[Server]]:
    url = make_url(address)
    target = f"{url.query['host']}/.s.PGSQL.{url.port or 5432}"
    # A path of a socket has at most 107 characters.
    gates = [Gate(Path(f"/tmp/oarlock-gate-{os.getpid()}{name}"), target) for name in "ab"]
    servers = [Server(site, workspace / name, gate) for name, gate in zip("ab", gates, strict=True)]
    try:
        yield servers
    finally:
        for server in servers:
            server.gate.close()
            with suppress(AttributeError):  # never started
                server.process.kill()
                server.process.wait()
            shutil.rmtree(server.gate.folder)


@contextmanager
def submitting(site: Cluster, servers: list[Server], pause: float) -> Iterator[subprocess.Popen[str]]:
    account = pwd.getpwnam(site.user)
    addresses = ",".join(server.socket for server in servers)
    with (site.home / "acknowledged").open("w") as acknowledged, subprocess.Popen(
        [sys.executable, "-c", _USER, addresses, str(pause)],
        cwd=site.home, env={**os.environ, "PYTHONPATH": str(SOURCE)}, user=account.pw_uid, group=account.pw_gid,
        extra_groups=[], stdout=acknowledged, stderr=subprocess.PIPE, text=True,
    ) as user:  # fmt: skip
        try:
            yield user
        finally:
            user.kill()


@pytest.mark.parametrize(
    ("faults", "pause"),
    [
        pytest.param(["freeze"], 0.1, id="1", marks=pytest.mark.timeout(200)),
        pytest.param(
            list(islice(cycle(FAULTS), int(os.environ.get("FAILOVERS") or 50))), 0.2, id="50",
            marks=[pytest.mark.soak, pytest.mark.timeout(2400)],
        ),
    ],
)  # fmt: skip
def test_a_standby_server_takes_over_and_no_job_is_lost_or_doubled(
    workspace: Path, two_users: list[str], postgres: Postgres, faults: list[str], pause: float
):
    address = postgres.make(template="template0")
    with cluster(workspace, two_users[0], ("", ""), address=address, cores=6) as site:
        site.database.close()
        with pair(workspace, site, address) as servers:
            _fail_over_and_compare(site, servers, faults, pause)
    postgres.drop(address)


def _fail_over_and_compare(site: Cluster, servers: list[Server], faults: list[str], pause: float) -> None:
    active, standby = servers
    active.start()
    wait_until(active.serves, seconds=40, what="the first server")
    standby.start()
    wait_until(standby.stands_by, seconds=40, what="the standby server")
    took = []
    with submitting(site, servers, pause) as user:
        for fault in faults:
            _some_more_jobs(site, user)
            happen, end = FAULTS[fault]
            begun = time.monotonic()
            happen(active)
            wait_until(standby.serves, seconds=60, what=f"the take-over after {fault}")
            took.append((time.monotonic() - begun, fault))
            _some_more_jobs(site, user)
            end(active)
            active.start()
            wait_until(active.stands_by, seconds=40, what="the old server to stand by")
            active, standby = standby, active
        (site.home / "enough").touch()
        _, errors = user.communicate(timeout=150)
        assert user.returncode == 0, errors
    print(f"{len(faults)} fail-overs, slowest {max(took)}, {len(_acknowledged(site))} jobs")
    _every_job_ran_once(site)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_standby_that_dies_in_its_take_over_loses_no_job(workspace: Path, two_users: list[str], postgres: Postgres):
    address = postgres.make(template="template0")
    with cluster(workspace, two_users[0], ("", ""), address=address, cores=6) as site:
        site.database.close()
        with pair(workspace, site, address) as servers:
            points = _die_at_each_point(site, servers, int(os.environ.get("TAKE_OVER_STEP") or 1))
        assert checks.check(site.state, load(site.settings).config, progress=lambda *_: None).findings == []
    postgres.drop(address)
    assert points > 20


def _die_at_each_point(site: Cluster, servers: list[Server], step: int) -> int:
    """Let the active server die, the standby server in its take-over, and a third one serve; return the last point."""
    active, standby = servers
    active.start()
    wait_until(active.serves, seconds=40, what="the first server")
    with submitting(site, servers, 0.1) as user:
        for number in count(1, step):
            standby.start(dies_at=number)
            wait_until(standby.stands_by, seconds=40, what="the standby server")
            _some_more_jobs(site, user)
            death(active)
            taken_over = _lives_on(site, user, standby)
            death(standby)  # one that got through would die later, since its points are counted on
            # The third has what one of the dead ones left in its directory, in turn.
            third, standby = (standby, active) if number % 2 else (active, standby)
            third.start()
            wait_until(third.serves, seconds=40, what=f"the server after a death at point {number}")
            active = third
            if taken_over:
                break
        (site.home / "enough").touch()
        _, errors = user.communicate(timeout=150)
        assert user.returncode == 0, errors
    print(f"{number - 1} points of a take-over, each {step}th tried; {len(_acknowledged(site))} jobs")
    _every_job_ran_once(site)
    return number


def _lives_on(site: Cluster, user: subprocess.Popen[str], standby: Server) -> bool:
    """Return whether a standby server takes over and takes jobs, or dies before."""
    enough = len(_acknowledged(site)) + 3

    def look() -> bool:
        assert user.poll() is None, user.communicate()[1]
        return standby.process.poll() is not None or len(_acknowledged(site)) >= enough

    wait_until(look, seconds=60, what="the take-over, or the death in it")
    assert standby.process.poll() in {None, DEAD}, standby.log()[-3000:]
    return standby.process.poll() is None


def _some_more_jobs(site: Cluster, user: subprocess.Popen[str]) -> None:
    wanted = len(_acknowledged(site)) + 5

    def look() -> bool:
        assert user.poll() is None, user.communicate()[1]
        return len(_acknowledged(site)) >= wanted

    wait_until(look, seconds=150, what="five more jobs")


def _acknowledged(site: Cluster) -> list[int]:
    return [int(line) for line in (site.home / "acknowledged").read_text().split()]


def _every_job_ran_once(site: Cluster) -> None:
    ids = _acknowledged(site)
    wait_until(site.all_over, seconds=120, what="the end of all jobs")
    with site.database.read() as tx:
        ends = {job.id: (job.state, job.exit_code) for job in jobs.in_states(tx, list(JobState))}
    assert ends == dict.fromkeys(ids, (JobState.TERMINATED, 0))
    assert sorted(map(int, (site.home / "lines").read_text().split())) == sorted(ids)
