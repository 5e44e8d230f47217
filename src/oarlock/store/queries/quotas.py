"""Quotas: how much a queue's users, projects and kinds of jobs may have at once."""

from collections.abc import Mapping

from sqlalchemy import delete, select

from oarlock.model.snapshot import QuotaRule
from oarlock.store.engine.rows import insert_rows
from oarlock.store.engine.tx import Tx
from oarlock.store.tables import quotas

_COLUMNS = [column.name for column in quotas.columns]
_LISTED = select(quotas).order_by(quotas.c.position)


def listed(tx: Tx) -> list[QuotaRule]:
    """Return all rules, in the site's order."""
    return [QuotaRule(*row[1:]) for row in tx.execute(_LISTED)]


def numbered(tx: Tx) -> dict[int, QuotaRule]:
    """Return all rules by their numbers, in the site's order."""
    return {row[0]: QuotaRule(*row[1:]) for row in tx.execute(_LISTED)}


def put(tx: Tx, rules: Mapping[int, QuotaRule]) -> None:
    """Replace all rules by these, keyed by their numbers."""
    tx.execute(delete(quotas))
    rows = [
        (number, r.queue, r.project, r.job_type, r.user, r.resources, r.jobs, r.resource_seconds)
        for number, r in sorted(rules.items())
    ]
    insert_rows(tx, "quotas", _COLUMNS, rows)
