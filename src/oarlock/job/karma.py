"""Karma: how far a user is above their share in each of their projects."""

from collections import Counter
from collections.abc import Iterable

from oarlock.config import Config
from oarlock.job.run import schedule
from oarlock.model.snapshot import Usage
from oarlock.plan.policy.policies import karma_of
from oarlock.store.engine.tx import Tx
from oarlock.store.queries import accounting
from oarlock.store.queries.accounting import AccountingRow


def by_project(tx: Tx, config: Config, user: str, rows: Iterable[AccountingRow], *, now: int) -> dict[str, float]:
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
