"""What was held and not used: by job, by user, by project."""

from oarlock.job import summaries
from oarlock.model.job import JobState
from oarlock.model.summary import DayUsage, MeasuredJob, NodeMeasured
from oarlock.store.engine.database import Database
from oarlock.store.engine.tx import Tx
from tests.clusters import add_nodes
from tests.store.cluster import add_job, run, step
from tests.web.nodeless_server import NOW, running

HOUR, DAY = 3600, 86_400


def _ran(tx: Tx, cores: list[int], user: str, project: str, *, busy: float, ago: int = HOUR) -> None:
    """Add a job that ran an hour on two cores and used a part of them."""
    begin = NOW - ago - HOUR
    job = run(tx, add_job(tx, user=user, project=project, submitted=begin), cores, at=begin)
    for state in (JobState.FINISHING, JobState.TERMINATED):
        job = step(tx, job, state, at=begin + HOUR)
    used = busy * 2 * HOUR
    node = NodeMeasured(since=begin, until=begin + HOUR, samples=360, seconds=HOUR, cores=2.0, cpu_seconds=used)
    days = {begin // DAY * DAY: DayUsage(core_busy_seconds=used)}
    summaries.keep_measured(tx, {job.id: MeasuredJob(nodes={"1": {"n1": node}}, days=days)}, now=NOW)


def _fill(tx: Tx) -> None:
    cores = add_nodes(tx, ["n1"])[:2]
    _ran(tx, cores, "ada", "physics", busy=0.9)
    _ran(tx, cores, "bob", "physics", busy=0.1)
    _ran(tx, cores, "bob", "maths", busy=0.5)
    _ran(tx, cores, "bob", "maths", busy=0.0, ago=20 * DAY)


def test_the_worst_come_first_and_old_jobs_do_not_count(database: Database):
    database.write(_fill)
    with running(database) as api:
        lost = api.client.get("/waste").body
        wrong = api.client.get("/waste?since=9&until=3").body
    assert [(job["id"], job["core_seconds"], round(job["cpu_seconds"])) for job in lost["jobs"]] == [
        (2, 2 * HOUR, 720), (3, 2 * HOUR, 3600), (1, 2 * HOUR, 6480),
    ]  # fmt: skip
    assert [group["name"] for group in lost["users"]] == ["bob", "ada"]
    assert [group["name"] for group in lost["projects"]] == ["physics", "maths"]
    assert wrong["kind"] == "BadRequest"


def test_days_are_those_of_a_user_or_a_project(database: Database):
    database.write(_fill)
    with running(database) as api:
        by_name = {
            name: api.client.get(f"/usage/days?since={NOW - 7 * DAY}&by={by}&{name}").body["rows"]
            for by, name in (("project", "user=bob"), ("user", "project=physics"))
        }
    groups = {name: [row["group"] for row in rows] for name, rows in by_name.items()}
    assert groups == {
        "user=bob": [{"project": "maths"}, {"project": "physics"}],
        "project=physics": [{"user": "ada"}, {"user": "bob"}],
    }
