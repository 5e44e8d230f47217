"""What is kept of each job for years, and deleted then: summaries, sums of days, the energy ledger."""

from sqlalchemy import func, select

from oarlock.job.summaries import forget_old
from oarlock.model.summary import DayUsage
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.job.agent_jobs import FIRST_NUMBER
from oarlock.store.queries.usage import energy, software, summaries
from oarlock.store.queries.usage.energy import BookedDay, MeteredDay
from oarlock.store.queries.usage.software import SoftwareGroup, SoftwareSums
from oarlock.store.queries.usage.summaries import DayGroup, Summary
from oarlock.store.tables import energy_days, energy_shares, job_summaries, software_days, usage_days

DAY, YEARS = 86_400, 3650
NOW = 20_000 * DAY + 5000


def fill(tx: Tx, ages: dict[int, int]) -> None:
    """Store a job of each number that ended so many days ago, on two nodes."""
    for job, age in ages.items():
        day = NOW // DAY * DAY - age * DAY
        summaries.save(tx, [Summary(job_id=job, date=day, booked=1)])
        summaries.add_days(tx, {DayGroup(day, "ada", "moon", "default"): DayUsage(jobs=1)})
        software.add_days(tx, {SoftwareGroup(day, "ada", "moon", "exe", "run"): SoftwareSums(1, 1.0, 1.0)})
        nodes = [MeteredDay(node, day, "rapl", 10, 3, 0, 5.0, day * 1000 + job) for node in ("n1", "n2")]
        energy.book(tx, [BookedDay(metered, {job: 7}, {job: 5.0}) for metered in nodes])


def forget(tx: Tx, days: int = YEARS, most: int = 1000) -> int:
    rounds = 0
    while forget_old(tx, now=NOW, days=days, most=most):
        rounds += 1
    return rounds


def counts(tx: Tx) -> list[int]:
    tables = (job_summaries, usage_days, software_days, energy_days, energy_shares)
    return [int(tx.execute(select(func.count()).select_from(table)).scalar_one()) for table in tables]


def test_after_ten_years_summaries_sums_and_energy_are_deleted(tx: Tx):
    fill(tx, {1: YEARS + 1, 2: YEARS + 1, 3: YEARS, 4: 0, FIRST_NUMBER + 1: YEARS + 400, FIRST_NUMBER + 2: 1})
    assert counts(tx) == [6, 5, 5, 10, 12]
    assert forget(tx) == 2  # a day at once
    assert counts(tx) == [3, 3, 3, 6, 6]
    assert [row.job_id for row in summaries.of_jobs(tx, [1, 2, 3, 4, FIRST_NUMBER + 1, FIRST_NUMBER + 2])] == [
        3, 4, FIRST_NUMBER + 2,
    ]  # fmt: skip
    assert forget(tx, days=0) == 0
    assert energy.of_jobs(tx, [1, 3]) == {3: 14}


def test_what_is_left_adds_up_after_each_part(tx: Tx):
    fill(tx, {job: YEARS + job for job in range(1, 8)})
    while forget_old(tx, now=NOW, days=YEARS, most=10):  # of one node at once
        for row in energy.meters_by(tx, ["node", "day"], since=0, until=NOW):
            node, day = row.group
            shares = select(func.sum(energy_shares.c.energy_mj)).where(
                energy_shares.c.network_address == node, energy_shares.c.day == day
            )
            assert row.meter == row.idle + row.not_assigned + tx.execute(shares).scalar_one()
    assert counts(tx) == [0, 0, 0, 0, 0]


def test_a_job_that_was_written_lately_stays_and_hides_no_old_one(tx: Tx):
    fill(tx, {1: 3, 2: YEARS + 5, 3: YEARS + 6})
    forget(tx, most=20)
    assert [row.job_id for row in summaries.of_jobs(tx, [1, 2, 3])] == [1]
