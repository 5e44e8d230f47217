"""Accounts: bringing them up to date, and karma, which says how far a user is above their share in each project."""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from typing import NamedTuple, Protocol, TypeVar

from oarlock.config import Config
from oarlock.job.run.starting import schedule
from oarlock.model.snapshot import Usage
from oarlock.plan.policies import karma_of
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.usage import accounting
from oarlock.store.queries.usage.accounting import AccountingRow, Booking

T = TypeVar("T")


class Write(Protocol):
    """Runs a change in a transaction of its own."""

    def __call__(self, change: Callable[[Tx], T]) -> Awaitable[T]: ...


class AccountsUpdate(NamedTuple):
    """How many jobs were added and how many old rows deleted, and the first changes of the rows."""

    jobs: int
    deleted: int
    bookings: list[Booking]


async def update(
    write: Write, *, window: int, reinitialize: bool, delete_before: int | None, most_bookings: int
) -> AccountsUpdate:
    """Bring the accounts up to date; first make them anew, or delete rows from before an instant.

    In several transactions, so that a long history does not keep others waiting.
    """

    def prepare(tx: Tx) -> int:
        if reinitialize:
            accounting.reinitialize(tx)
        return 0 if delete_before is None else accounting.delete_before(tx, delete_before)

    def account(tx: Tx) -> tuple[int, list[Booking]]:
        new: list[Booking] = []  # the writer may run this twice
        return accounting.update_accounts(tx, window=window, bookings=new), new

    deleted, jobs = await write(prepare), 0
    bookings: list[Booking] = []
    while (added := await write(account))[0]:
        jobs += added[0]
        bookings += added[1][: most_bookings - len(bookings)]
    return AccountsUpdate(jobs, deleted, bookings)


def karma_by_project(tx: Tx, config: Config, user: str, rows: Iterable[AccountingRow], *, now: int) -> dict[str, float]:
    """Return the karma that a job of a user would have now, for each project in these accounting rows.

    Queues have shares of their own: of each project counts the queue in which these rows have most of it.
    """
    usage = accounting.usage_by_queue(tx, since=now - config.karma_window, until=now)
    fairness = schedule.plan_settings(config).fairness
    amounts: dict[str, Counter[str]] = {}
    for row in rows:
        amounts.setdefault(row.project, Counter())[row.queue] += row.consumption
    queues = {project: counts.most_common(1)[0][0] for project, counts in sorted(amounts.items())}
    return {project: karma_of(user, project, usage.get(queue, Usage()), fairness) for project, queue in queues.items()}
