"""What a server withstands while users work: figures, each with its target, printed by `make load`."""

import os
import time
from collections.abc import Iterator

import pytest
from sqlalchemy import update

from oarlock.model.job import JobState
from oarlock.store.queries.job import jobs
from oarlock.store.tables import queues
from tests import bed
from tests.bed import needs_root
from tests.e2e.instance import Instance, instance
from tests.load.measuring import (
    Figures,
    Users,
    all_seconds,
    descriptors,
    percentile,
    resident,
    seen_by,
    wait_for,
)

pytestmark = [needs_root, pytest.mark.soak, pytest.mark.load, pytest.mark.timeout(6000)]

SUBMISSIONS = int(os.environ.get("LOAD_SUBMISSIONS") or 10_000)
SECONDS = float(os.environ.get("LOAD_SECONDS") or 3600.0)
CONNECTIONS, PEOPLE, POLLERS = 50, 5, 200
STARTING_SECONDS = 600.0
"""Of a long run: from then on memory and descriptors have to stay where they are."""


@pytest.fixture(scope="module")
def people() -> Iterator[tuple[str, ...]]:
    """Five users, and one whose commands are measured meanwhile."""
    with bed.accounts(names=tuple(f"oarld{os.getpid() % 100000}{letter}" for letter in "abcdef")):
        yield tuple(f"oarld{os.getpid() % 100000}{letter}" for letter in "abcdef")


@pytest.fixture
def site(workspace, people, address) -> Iterator[Instance]:
    """A server with 16 nodes of 4 cores."""
    more = {"JOB_MIN_UID": 1, "LOG_LEVEL": 2}
    with instance(workspace, people[0], f"l{os.getpid()}n", nodes=16, cores=4, more=more, address=address) as made:
        yield made


@pytest.fixture
def users(site) -> Iterator[Users]:
    made = Users(site)
    yield made
    made.close()


def pid_of(site: Instance) -> int:
    assert site.process is not None
    return site.process.pid


def counts(site: Instance) -> dict[JobState, int]:
    with site.database.read() as tx:
        return jobs.count(tx)


def database_name(site: Instance) -> str:
    return "PostgreSQL" if "DB_TYPE" in site.settings.read_text() else "SQLite"


def submit_all(users: Users, people: tuple[str, ...]) -> tuple[float, list[dict]]:
    """Submit jobs of five users from fifty connections; return the jobs a second, and what each user saw."""
    began = time.monotonic()
    share = {"connections": CONNECTIONS // PEOPLE, "count": SUBMISSIONS // PEOPLE}
    running = [users.start(user, "submit", **share) for user in people[:PEOPLE]]
    seen = [wait_for(process) for process in running]
    return SUBMISSIONS / (time.monotonic() - began), seen


def test_submissions_of_five_users_while_their_jobs_run(site: Instance, users: Users, people):
    site.serve()
    figures = Figures(f"{SUBMISSIONS} submissions, {CONNECTIONS} connections, jobs run ({database_name(site)})")
    before = resident(pid_of(site)), descriptors(pid_of(site))
    bystander = users.start(people[PEOPLE], "work")
    rate, seen = submit_all(users, people)
    other = seen_by(bystander)
    figures.add("load.submit", rate, "jobs/s", 250, "higher")
    figures.add("load.submit_p99", percentile(all_seconds(*seen)), "s", 0.5)
    figures.add("load.others_p99", percentile(all_seconds(other)), "s", 0.5)
    ids = [number for one in (*seen, other) for number in one["ids"]]
    site.until(site.all_over, seconds=1200)
    states = counts(site)
    figures.add("load.lost", len(ids) - sum(states.values()), "jobs", 0)
    figures.add("load.doubled", len(ids) - len(set(ids)), "jobs", 0)
    figures.add("load.not_terminated", len(ids) - states.get(JobState.TERMINATED, 0), "jobs", 0)
    figures.add("load.memory_growth", resident(pid_of(site)) - before[0], "MB", 60)
    figures.add("load.descriptors_left", descriptors(pid_of(site)) - before[1], "descriptors", 40)
    refused = {name: count for one in (*seen, other) for name, count in one["statuses"].items() if "200" not in name}
    assert refused == {}
    figures.judge()


def test_submissions_where_no_job_starts(site: Instance, users: Users, people):
    site.database.write(lambda tx: tx.execute(update(queues).values(state="notActive")))
    site.serve()
    figures = Figures(f"{SUBMISSIONS} submissions, {CONNECTIONS} connections, no job starts ({database_name(site)})")
    rate, seen = submit_all(users, people)
    figures.add("load.submit_only", rate, "jobs/s", 1000, "higher")
    figures.add("load.submit_only_p99", percentile(all_seconds(*seen)), "s", 0.5)
    figures.add("load.submit_only_lost", SUBMISSIONS - sum(counts(site).values()), "jobs", 0)
    figures.judge()


def test_two_hundred_pollers_leave_others_their_server(site: Instance, users: Users, people):
    site.submit_many(["true"] * 2000, "/core=1,walltime=0:1:0", array=False)
    site.serve()
    figures = Figures(f"{POLLERS} pollers, once a second each ({database_name(site)})")
    polling = [users.start(user, "poll", connections=POLLERS // PEOPLE) for user in people[:PEOPLE]]
    worker = users.start(people[PEOPLE], "work")
    time.sleep(min(SECONDS, 30.0))
    other = seen_by(worker)
    asked = all_seconds(*[seen_by(process) for process in polling])
    figures.add("load.pollers_others_p99", percentile(all_seconds(other)), "s", 1.0)
    figures.add("load.pollers_p99", percentile(asked), "s", 2.0)
    figures.judge()


def test_memory_and_descriptors_stay_flat_under_a_mixed_load(site: Instance, users: Users, people):
    site.serve()
    seconds = SECONDS
    figures = Figures(f"a mixed load for {seconds:.0f} s ({database_name(site)})")
    running = [users.start(user, "work", connections=2) for user in people[:PEOPLE]]
    running.append(users.start(people[PEOPLE], "poll", connections=20))
    begin = time.monotonic()
    settled: tuple[float, int] = (0.0, 0)
    while (passed := time.monotonic() - begin) < seconds:
        time.sleep(min(10.0, seconds / 30))
        if passed < seconds * STARTING_SECONDS / 3600:
            settled = max(settled[0], resident(pid_of(site))), max(settled[1], descriptors(pid_of(site)))
    memory, opened = resident(pid_of(site)), descriptors(pid_of(site))
    seen = [seen_by(process) for process in running]
    submitted = sum(len(one["ids"]) for one in seen)
    figures.add("load.mixed_rate", submitted / seconds, "jobs/s", 20, "higher")
    figures.add("load.mixed_p99", percentile(all_seconds(*seen)), "s", 1.0)
    figures.add("load.mixed_memory", memory / settled[0], "of the first tenth's most", 1.25)
    figures.add("load.mixed_descriptors", opened - settled[1], "descriptors more", 10)
    site.until(site.all_over, seconds=1200)
    figures.add("load.mixed_lost", submitted - counts(site).get(JobState.TERMINATED, 0), "jobs", 0)
    figures.judge()
