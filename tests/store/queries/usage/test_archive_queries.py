"""Pins, and what an export reads, on both engines."""

from sqlalchemy import update

from oarlock.model.job import JobState
from oarlock.store.engine.database import Database
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.job import agent_jobs
from oarlock.store.queries.job.agent_jobs import DescribedJob
from oarlock.store.queries.usage import export, pins, summaries
from oarlock.store.queries.usage.pins import ArchivePin
from oarlock.store.queries.usage.summaries import Summary
from oarlock.store.tables import jobs
from tests.store.cluster import add_job


def test_pins_are_set_listed_by_user_and_removed(database: Database):
    def change(tx: Tx) -> None:
        for user in ("ada", "bob"):
            pins.add(tx, ArchivePin(add_job(tx, user=user).id, user, 100))
        pins.add(tx, ArchivePin(1, "root", 100))

    database.write(change)
    with database.read() as tx:
        assert pins.listed(tx) == [ArchivePin(1, "root", 100), ArchivePin(2, "bob", 100)]
        assert pins.listed(tx, user="ada") == []
    assert [database.write(lambda tx, job=job: pins.remove(tx, job)) for job in (2, 2)] == [True, False]
    with database.read() as tx:
        assert pins.jobs(tx) == {1}


def test_a_month_has_the_jobs_that_ran_and_ended_in_it(database: Database):
    def change(tx: Tx) -> None:
        for start, stop in ((10, 100), (10, 199), (10, 200), (10, 99), (0, 150)):
            job = add_job(tx, user="ada", state=JobState.TERMINATED)
            tx.execute(update(jobs).where(jobs.c.job_id == job.id).values(start_time=start, stop_time=stop))
        summaries.save(tx, [Summary(job_id=2, date=199, cpu_seconds=1.5)])
        numbers = agent_jobs.register(tx, "beta", [DescribedJob("7"), DescribedJob("8")], node="b1", now=50)
        agent_jobs.note_seen(tx, {}, {numbers["7"]: 150, numbers["8"]: 250})

    database.write(change)
    columns = export.summary_columns()
    with database.read() as tx:
        [part] = export.ended_jobs(tx, since=100, until=200)
        others = export.ended_agent_jobs(tx, since=100, until=200)
    rows = [dict(zip(columns, row, strict=True)) for row in part]
    assert [(row["job_id"], row["stop_time"], row["cpu_seconds"]) for row in rows] == [(1, 100, None), (2, 199, 1.5)]
    assert others == [agent_jobs.FIRST_NUMBER + 1]
    assert (columns["job_id"], columns["cpu_seconds"], columns["job_user"]) == (int, float, str)
    assert not {"command", "job_env"} & columns.keys()
