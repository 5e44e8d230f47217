"""The energy ledger in the database: booked in parts, told by node, day, user, project and job."""

from oarlock.store.engine.tx import Tx
from oarlock.store.queries.job.job_pages import JobSight
from oarlock.store.queries.usage import energy
from oarlock.store.queries.usage.energy import BookedDay, MeteredDay, MeterOfGroup, SharesOfGroup
from tests.store.cluster import add_job

DAY = 86_400


def _book(tx: Tx) -> tuple[int, int]:
    first = add_job(tx, user="ada", project="moon").id
    second = add_job(tx, user="ben", project="moon").id
    energy.book(
        tx,
        [
            BookedDay(MeteredDay("n1", DAY, "rapl", 100, 20, 10, 5.0, 1000), {first: 50, second: 20}, {first: 5.0}),
            BookedDay(MeteredDay("n1", DAY, "controller", 30, 30, 0, 1.0, 800), {}, {}),
        ],
    )
    energy.book(
        tx,
        [
            BookedDay(MeteredDay("n1", DAY, "rapl", 7, 0, 0, 1.0, 2000), {first: 7}, {first: 1.0}),
            BookedDay(MeteredDay("n2", 2 * DAY, "rapl", 5, 0, 0, 1.0, 500), {first: 5}, {first: 1.0}),
        ],
    )
    return first, second


def test_what_is_booked_in_parts_adds_up(tx: Tx):
    first, second = _book(tx)
    assert energy.of_jobs(tx, [first, second, 999]) == {first: 62, second: 20}
    assert energy.meters_by(tx, ["node", "day"], since=0, until=9 * DAY) == [
        MeterOfGroup(("n1", DAY), ("controller", "rapl"), 137, 50, 10, 7.0),
        MeterOfGroup(("n2", 2 * DAY), ("rapl",), 5, 0, 0, 1.0),
    ]
    assert energy.meters_by(tx, [], since=2 * DAY, until=3 * DAY) == [MeterOfGroup((), ("rapl",), 5, 0, 0, 1.0)]


def test_shares_are_told_by_every_group_the_largest_first(tx: Tx):
    first, second = _book(tx)

    def shares(*groups: str, **more: object) -> list[SharesOfGroup]:
        return energy.shares_by(tx, groups, **{"since": 0, "until": 9 * DAY, "most": 10, **more})  # type: ignore[arg-type]

    assert shares("user") == [SharesOfGroup(("ada",), 62, 1), SharesOfGroup(("ben",), 20, 1)]
    assert shares("project", "day") == [
        SharesOfGroup(("moon", DAY), 77, 2),
        SharesOfGroup(("moon", 2 * DAY), 5, 1),
    ]
    assert shares("job", sight=JobSight("ben")) == [SharesOfGroup((second,), 20, 1)]
    assert shares("node", until=2 * DAY) == [SharesOfGroup(("n1",), 77, 2)]
    assert shares("job", most=1) == [SharesOfGroup((first,), 62, 1)]


def test_what_is_told_again_is_booked_once(tx: Tx):
    """The answer of a commit may be lost; whoever asked for it asks again."""
    first, _ = _book(tx)
    again = BookedDay(MeteredDay("n1", DAY, "rapl", 7, 0, 0, 1.0, 2000), {first: 7}, {first: 1.0})
    energy.book(tx, [again, BookedDay(MeteredDay("n1", DAY, "controller", 1, 1, 0, 1.0, 900), {}, {})])
    assert energy.of_jobs(tx, [first]) == {first: 62}
    assert energy.meters_by(tx, ["day"], since=DAY, until=2 * DAY)[0].meter == 138
    assert energy.booked_until(tx, since=0) == {"n1": 2000, "n2": 500}
    assert energy.booked_until(tx, since=2 * DAY) == {"n2": 500}


def test_energy_of_jobs_that_the_database_lacks_is_not_left_out(tx: Tx):
    """A database that was restored has no such job; what users and nobody have adds up to what nodes have."""
    _book(tx)
    energy.book(tx, [BookedDay(MeteredDay("n1", DAY, "rapl", 4, 0, 0, 1.0, 3000), {999: 4}, {999: 1.0})])
    shares = energy.shares_by(tx, ["user", "project"], since=0, until=9 * DAY, most=10)
    assert shares[-1] == SharesOfGroup(("", ""), 4, 1)
    assert sum(share.energy for share in shares) == 86
