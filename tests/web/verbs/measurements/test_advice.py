"""Advice: what past runs of the same name or command took, beside what is asked for now."""

import os

import pytest
from msgspec.structs import replace
from sqlalchemy import text

from oarlock.job.advice import advise
from oarlock.lang.duration import show
from oarlock.model.job import JobState
from oarlock.store.engine.database import Database
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.usage.past_runs import PastRun
from tests.clusters import NOW, add_nodes
from tests.store.cluster import add_job, run, step
from tests.web.nodeless_server import running

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be several users")
ASKED = {"command": "./simulate", "resources": ["/core=1,walltime=24"], "directory": "/tmp"}


def _ran(tx: Tx, seconds: int, memory: int | None, **fields) -> None:
    start = NOW - 90_000
    job = run(tx, add_job(tx, submitted=start, **{"user": "nobody", "command": "./simulate", **fields}), [1], at=start)
    job = step(tx, job, JobState.FINISHING, at=start + seconds)
    step(tx, replace(job, exit_code=0), JobState.TERMINATED, at=start + seconds)
    if memory is not None:
        tx.execute(text(f"INSERT INTO job_summaries (job_id, memory_own_peak_bytes) VALUES ({job.id}, {memory})"))


def _fill(tx: Tx) -> None:
    add_nodes(tx, ["n1"])
    for seconds, memory in ((3000, 2 * 10**9), (4200, 3_100_000_000), (60, None)):
        _ran(tx, seconds, memory)
    _ran(tx, 80_000, 9 * 10**9, user="daemon")
    _ran(tx, 80_000, 9 * 10**9, command="./other")
    for _ in range(2):
        _ran(tx, 80_000, None, name="long", command="./x")


def test_a_user_is_advised_by_own_runs_of_the_same_command(database: Database):
    database.write(_fill)
    with running(database, job_min_uid=1) as api:
        client = api.client_of("nobody")
        answer = client.post("/jobs/advise", ASKED).body
        assert answer == {
            "runs": 3, "walltime": 5100, "start": NOW + 60, "start_with_less": NOW + 60, "messages": answer["messages"],
            "advice": "The last 3 runs of simulate took at most 1:10:00 and 3.1 GB; you ask for 24:00:00. "
            "walltime=1:25:00 would do.",
        }  # fmt: skip
        assert client.post("/jobs/advise", ASKED | {"name": "long"}).body["advice"] is None, "two runs say nothing"
        assert client.post("/jobs/advise", ASKED | {"command": "./new"}).body["runs"] == 0
        assert client.get("/jobs?user=nobody").body["jobs"] == [], "nothing was submitted"


def test_a_site_may_have_it_told_at_submission(database: Database):
    database.write(_fill)
    with running(database, job_min_uid=1, submission_advice=True) as api:
        told = [
            [line for line in api.client_of("nobody").post("/jobs", ASKED | more).body["messages"] if "ADVICE" in line]
            for more in ({}, {"resources": ["/core=1,walltime=1:30"]})
        ]
    line = (
        "The last 3 runs of simulate took at most 1:10:00 and 3.1 GB; you ask for 24:00:00. walltime=1:25:00 would do."
    )
    assert told == [[f"[ADVICE] {line}"], []]


@pytest.mark.parametrize(
    ("seconds", "asked", "walltime", "end"),
    [
        ((10, 20, 30), 3600, 300, "walltime=0:05:00 would do."),
        ((3000, 10, 10), 3600, None, "That is about right."),
        ((4000, 10, 10), 3600, None, "They would not have had the time to end."),
        ((2400, 10, 10), 3600, None, f"you ask for {show(3600)}."),
    ],
)
def test_only_what_saves_much_is_proposed(seconds, asked, walltime, end):
    advised = advise([PastRun(one, None) for one in seconds], asked, "x")
    assert advised is not None
    assert (advised.walltime, advised.says.endswith(end)) == (walltime, True), advised.says


def test_two_runs_are_too_few():
    assert advise([PastRun(10, None)] * 2, 3600, "x") is None
