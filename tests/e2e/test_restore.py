"""A database that is older than what nodes did for it: whatever they still know is named, held and never believed."""

import contextlib
import itertools
import json
import os
import random
import shutil
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import make_url

from oarlock.cli.subcommands.instance.backup import UnknownJobsClient
from oarlock.model.event import EventType
from oarlock.model.job import FINAL, JobState
from oarlock.node.wire.messages import Launch, SiteHooks
from oarlock.store.engine import facts
from oarlock.store.engine.opening import open_database
from oarlock.store.queries.cluster import events
from oarlock.store.queries.job import attempts, jobs
from tests import bed
from tests.bed import needs_root
from tests.e2e.cluster import Cluster, cluster
from tests.e2e.instance import Instance

pytestmark = needs_root

_NUMBERS = itertools.count()
NORMAL = ["Waiting", "toLaunch", "Launching", "Running", "Finishing", "Terminated"]
WAITS = "until [ -e {} ]; do sleep 0.1; done; exit {}"


class Restored(Instance):
    """An instance whose database is copied and put back behind its back. Its server must not run then."""

    _postgres = None

    @property
    def place(self):
        return self.state / "oarlock.db"

    def copy(self) -> None:
        """Copy the database with what an administrator has at hand."""
        self.database.close()
        if self._postgres is None:
            Path(f"{self.place}.copy").unlink(missing_ok=True)
            with (
                contextlib.closing(sqlite3.connect(self.place)) as here,
                contextlib.closing(sqlite3.connect(f"{self.place}.copy")) as there,
            ):
                here.backup(there)
        else:
            self._postgres.run(f"DROP DATABASE IF EXISTS {self._name}_copy")
            self._postgres.run(f"CREATE DATABASE {self._name}_copy TEMPLATE {self._name} STRATEGY file_copy")
        self.database = open_database(self.place)

    def put_back(self) -> None:
        """Put the copy in the place of the database, without a word to anybody."""
        self.database.close()
        if self._postgres is None:
            for ending in ("-wal", "-shm"):
                (self.state / f"oarlock.db{ending}").unlink(missing_ok=True)
            shutil.copy(f"{self.place}.copy", self.place)
        else:
            self._postgres.run(f"DROP DATABASE {self._name} WITH (FORCE)")
            self._postgres.run(f"CREATE DATABASE {self._name} TEMPLATE {self._name}_copy STRATEGY file_copy")
        self.database = open_database(self.place)

    @property
    def _name(self) -> str:
        return str(make_url(self.place).database)

    def submit_anew(self, command: str, *more: str) -> int:
        """Submit while no server runs; the database is opened anew, since a server has written to it."""
        self.database.close()
        self.database = open_database(self.place)
        return self.submit(command, *more)

    def noted(self, kind: EventType) -> list[str]:
        with self.database.read() as tx:
            return [one.event.description for one in events.after(tx, 0, [kind], most=100)]

    def held(self) -> list[tuple[int, str]]:
        with self.database.read() as tx:
            return [(one.job, one.user) for one in attempts.all_unknown(tx)]

    def generation(self) -> str | None:
        with self.database.read() as tx:
            return facts.get(tx, "generation")

    def runs(self, job: int) -> bool:
        return self.job(job).state is JobState.RUNNING


class Restorable(Restored):
    """A restored instance of one node, on SQLite or PostgreSQL."""

    def __init__(self, workspace, user, *, postgres=None, more=None):
        self._postgres = postgres
        self._address = postgres.make(template="template0") if postgres else ""
        super().__init__(workspace, user, [f"r{os.getpid()}x{next(_NUMBERS)}n"], address=self._address, more=more)

    @property
    def place(self):
        return self._address or super().place


class Dumped(Restorable):
    """An instance on PostgreSQL whose administrator uses pg_dump and pg_restore."""

    def copy(self) -> None:
        self._tool("pg_dump", "--format=custom", f"--file={self.state}/dump", self._name)

    def put_back(self) -> None:
        self.database.close()
        self._postgres.run(f"DROP DATABASE {self._name} WITH (FORCE)")
        self._postgres.run(f"CREATE DATABASE {self._name} TEMPLATE template0")
        self._tool("pg_restore", "--exit-on-error", f"--dbname={self._name}", f"{self.state}/dump")
        self.database = open_database(self.place)

    def _tool(self, name: str, *arguments: str) -> None:
        url = make_url(self.place)
        command = [self._postgres.programs / name, f"--host={url.query['host']}", f"--username={url.username}"]
        ran = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=60, check=False)
        assert ran.returncode == 0, ran.stderr


class RestoredCluster(Restored, Cluster):
    """A restored instance, on SQLite, whose nodes are machines behind sshd."""


@pytest.fixture(params=["sqlite", "postgresql"])
def lone(request, workspace, two_users) -> Iterator[Restorable]:
    postgres = request.getfixturevalue("postgres") if request.param == "postgresql" else None
    made = Restorable(workspace, two_users[0], postgres=postgres)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def alone(workspace, two_users) -> Iterator[Restorable]:
    """An instance on SQLite, for what is not about the database."""
    made = Restorable(workspace, two_users[0])
    try:
        yield made
    finally:
        made.close()


def lose(site: Restored) -> int:
    """Run a job, copy the database, and have a job running that the copy does not know. A restart changes nothing."""
    site.submit("true")
    site.start()
    site.until(site.all_over)
    site.stop()
    site.copy()
    before = site.generation()
    lost = site.submit_anew(WAITS.format("enough", 0))
    site.start()
    site.until(lambda: site.runs(lost))
    assert (site.generation(), site.noted(EventType.NEW_GENERATION)) == (before, [])
    return lost


@pytest.mark.soak
def test_a_dump_that_was_put_back_by_hand_is_noticed_at_the_start(workspace, two_users, postgres):
    site = Dumped(workspace, two_users[0], postgres=postgres)
    try:
        lost = lose(site)
        before = site.generation()
        site.kill()
        site.put_back()
        again = site.submit(WAITS.format("further", 3))
        assert again == lost
        site.start()
        site.until(lambda: site.held() == [(lost, site.user)])
        assert (site.generation() != before, len(site.noted(EventType.NEW_GENERATION))) == (True, 1)
        (site.home / "enough").touch()
        site.until(lambda: site.runs(again) and not site.held())
        (site.home / "further").touch()
        site.until(site.all_over)
        assert site.job(again).exit_code == 3 << 8
    finally:
        site.close()


@pytest.mark.soak
@pytest.mark.component("sshd")
@pytest.mark.component("ip")
def test_a_node_away_at_the_start_names_its_lost_job_when_back(workspace, two_users):
    with cluster(workspace, two_users[0], ("", ""), made_as=RestoredCluster, more={"FINAUD_FREQUENCY": 1}) as site:
        lost = lose(site)
        machine = site.machines[site.node_of(lost)]
        site.kill()
        machine.link("down")
        site.put_back()
        again = site.submit(WAITS.format("further", 3))
        assert again == lost
        site.start()
        site.until(lambda: site.runs(again), seconds=90)  # on the other machine
        assert (site.machines[site.node_of(again)] is machine, site.held()) == (False, [])
        machine.link("up")
        site.until(lambda: site.held() == [(lost, site.user)], seconds=90)
        assert f"on {machine.name} runs" in site.noted(EventType.UNKNOWN_JOB_FOUND)[0]
        (site.home / "enough").touch()
        site.until(lambda: not site.held())
        assert site.runs(again)
        (site.home / "further").touch()
        site.until(site.all_over)
        assert (site.job(again).exit_code, site.attempt(again).number) == (3 << 8, 1)
        assert len(site.noted(EventType.UNKNOWN_JOB_ENDED)) == 1


def spooled(site: Restorable) -> list[str]:
    return [path.name for path in (site.state / "spool" / site.nodes[0]).glob("*.[0-9]")]


def test_a_job_of_a_lost_state_never_ends_another_of_its_number(lone):
    lost = lose(lone)
    before = lone.generation()
    lone.kill()
    lone.put_back()
    again = lone.submit("exit 3")
    assert again == lost
    lone.start()
    lone.until(lambda: lone.held() == [(lost, lone.user)])
    # It was given the other core of the node, where a job of its number runs.
    lone.until(lambda: any("the launch waits" in says for says in lone.noted(EventType.UNKNOWN_JOB_FOUND)))
    (lone.home / "enough").touch()
    lone.until(lambda: lone.all_over() and not lone.held())
    assert (lone.story(again)[-6:], lone.job(again).exit_code) == (NORMAL, 3 << 8)
    assert (lone.generation() != before, len(lone.noted(EventType.NEW_GENERATION))) == (True, 1)
    lone.until(lambda: not spooled(lone))
    lone.stop()
    assert lone.submit_anew("true") > lost + 1000


@pytest.mark.soak
def test_a_restored_state_directory_is_noticed_by_what_nodes_have_seen(alone):
    lost = lose(alone)
    alone.kill()
    alone.put_back()
    with alone.database.read() as tx:
        count = facts.get(tx, "mark")
    (alone.state / "oarlock.db.mark").write_text(f"{count} 1\n")  # the file was restored with the database
    other = alone.submit("exit 0", "/network_address=1,walltime=1")
    alone.start()
    alone.until(lambda: alone.held() == [(lost, alone.user)])
    assert f"has seen job {lost}" in alone.noted(EventType.NEW_GENERATION)[0]
    (alone.home / "enough").touch()
    alone.until(alone.all_over)
    assert alone.job(other).exit_code == 0


def test_a_new_instance_holds_the_node_of_an_old_ones_job_until_it_ends(alone):
    alone.copy()
    lost = alone.submit(WAITS.format("enough", 0))
    alone.start()
    alone.until(lambda: alone.runs(lost))
    alone.kill()
    alone.put_back()  # of before its first server: another key, and no mark of its own
    (alone.state / "oarlock.db.mark").unlink()
    new = alone.submit("exit 3")
    alone.start()
    alone.until(lambda: alone.held() == [(lost, alone.user)] and alone.job(new).state is JobState.WAITING)
    assert "not signed by this server" in alone.noted(EventType.UNKNOWN_JOB_FOUND)[0]
    (alone.home / "enough").touch()
    alone.until(alone.all_over)
    assert (alone.job(new).exit_code, alone.held()) == (3 << 8, [])


def test_a_launch_that_waits_can_be_deleted_and_what_it_waits_for_be_ended(alone):
    lost = lose(alone)
    alone.kill()
    alone.put_back()
    again = alone.submit("exit 3")
    alone.start()
    alone.until(lambda: any("the launch waits" in says for says in alone.noted(EventType.UNKNOWN_JOB_FOUND)))
    client = UnknownJobsClient(str(alone.state / "server.sock"))
    client.delete({"ids": [again]})
    alone.until(alone.all_over)
    [found] = client.unknown()
    assert (found["job"], found["user"], found["node"]) == (lost, alone.user, alone.nodes[0])
    client.end_unknown(found["id"])
    alone.until(lambda: alone.held() == [] and not spooled(alone))
    assert [says.partition(" (")[0] for says in alone.noted(EventType.UNKNOWN_JOB_ENDED)] == [f"job {lost}"]
    assert alone.job(again).state is JobState.ERROR


@pytest.mark.soak
def test_a_site_that_wants_it_has_unknown_jobs_ended(workspace, two_users):
    site = Restorable(workspace, two_users[0], more={"RESTORE_UNKNOWN_ATTEMPTS": "end"})
    try:
        lose(site)
        site.kill()
        site.put_back()
        site.start()
        site.until(lambda: bool(site.noted(EventType.UNKNOWN_JOB_ENDED)) and not site.held() and not spooled(site))
    finally:
        site.close()


def test_a_file_that_somebody_put_into_the_spool_runs_nothing(alone, workspace):
    """As a stranger did who owned the state directory: a resource manager program, run as root with his words."""
    with bed.site_directory() as place:
        program = bed.script(place / "manager", f"touch {workspace}/was-root")
        spool = alone.state / "spool" / alone.nodes[0]
        spool.mkdir(parents=True)
        (alone.state / "spool").chmod(0o700)
        launch = Launch(666, 1, "00" * 32, "", alone.user, "true", hooks=SiteHooks(manager=program))
        (spool / "666.1").write_bytes(b"0" * 64 + b" " + json.dumps(launch.body()).encode())
        (spool / "667.1").write_text(json.dumps({**launch.body(), "job": 667}))
        job = alone.submit("exit 0")
        alone.start()
        alone.until(alone.all_over)
        alone.until(lambda: not spooled(alone))
    assert (alone.job(job).exit_code, (workspace / "was-root").exists()) == (0, False)
    assert len(alone.noted(EventType.UNKNOWN_JOB_ENDED)) == 2


def many(site: Restorable, count: int, first: int) -> None:
    """Submit jobs that each leave a word of their own and end with an exit of their own."""
    site.database.close()
    site.database = open_database(site.place)
    for n in range(first, first + count):
        site.submit(f"sleep 0.{n % 10}; echo w{n} >> words; exit {n % 100}")


@pytest.mark.soak
def test_restores_among_running_ended_and_starting_jobs_mix_nothing_up(lone):
    """Numbers are given again in each round, with other commands, while nodes still know the last ones."""
    chance, submitted = random.Random(11), 0
    for _ in range(5):
        many(lone, 12, submitted)
        started = lone.log().count("listening") if (lone.state / "log").exists() else 0
        lone.start()
        lone.until(lambda before=started: lone.log().count("listening") > before)
        time.sleep(chance.uniform(0.0, 3.0))  # the instant is what is tried here
        lone.stop()
        lone.copy()
        many(lone, 12, submitted + 12)
        lone.start()
        time.sleep(chance.uniform(0.5, 4.0))
        lone.kill()
        lone.put_back()
        submitted += 24
    many(lone, 5, submitted)
    lone.start()
    lone.until(lambda: lone.all_over() and not lone.held(), seconds=180)
    words = (lone.home / "words").read_text().split()
    with lone.database.read() as tx:
        found = jobs.existing(tx, jobs.numbers_in(tx, FINAL))
    ended = [job for job in found if job.state is JobState.TERMINATED]
    wrong = [job.id for job in ended if job.exit_code != int(job.command.rpartition(" ")[2]) << 8]
    never_ran = [job.id for job in ended if job.command.split("echo ")[1].split()[0] not in words]
    assert (wrong, never_ran, len(ended) > 20) == ([], [], True)
