"""Admission rules stored in the database (TOML text, never code), and the counts that rules need."""

from pathlib import Path
from typing import NamedTuple

from sqlalchemy import URL, func, literal_column, select
from sqlalchemy.exc import ProgrammingError

from oarlock.model.errors import DatabaseRefused
from oarlock.model.job import JobState
from oarlock.store.engine.database import Database
from oarlock.store.engine.rows import insert_rows
from oarlock.store.engine.tx import Tx, allocate_ids
from oarlock.store.tables import admission_rules, jobs

_NOT_BEGUN = tuple(s.value for s in (JobState.WAITING, JobState.HOLD, JobState.TO_ACK_RESERVATION))

_ENABLED = (
    select(admission_rules.c.id, admission_rules.c.rule, admission_rules.c.priority)
    .where(admission_rules.c.enabled == "YES")
    .order_by(admission_rules.c.priority, admission_rules.c.id)
)


class StoredRule(NamedTuple):
    """A row: rules with a lower priority apply first, then those with the lower number."""

    id: int
    text: str
    priority: int


def enabled(tx: Tx) -> list[StoredRule]:
    """Return the rules that are switched on, in the order in which they apply."""
    return [StoredRule(*row) for row in tx.execute(_ENABLED)]


def of_instance(where: Path | URL) -> list[StoredRule]:
    """Read the rules that are switched on, beside a server that may run (`DatabaseRefused` if there is nothing)."""
    if isinstance(where, Path) and not where.exists():
        raise DatabaseRefused(f"There is no instance in {where.parent}.")
    try:
        with Database(where) as database, database.read() as tx:
            return enabled(tx)
    except ProgrammingError as error:
        raise DatabaseRefused("The database has no table of rules.", hint="The server makes it.") from error


def add(tx: Tx, text: str, *, priority: int = 0, enabled: bool = True) -> int:
    """Store a text of rules; return its number. The caller has parsed it before."""
    [number] = allocate_ids(tx, admission_rules.c.id, 1)
    row = (number, text, priority, "YES" if enabled else "NO")
    insert_rows(tx, "admission_rules", ["id", "rule", "priority", "enabled"], [row])
    return number


def waiting_jobs(tx: Tx, user: str) -> int:
    """Count the jobs of a user that have not begun."""
    query = select(func.count()).where(jobs.c.job_user == user, jobs.c.state.in_(_NOT_BEGUN))
    return int(tx.execute(query).scalar_one())


def waiting_reservations(tx: Tx, user: str) -> int:
    """Count the reservations of a user that have not begun."""
    query = select(func.count()).where(
        jobs.c.reservation != literal_column("'None'"),  # a literal, so that the partial index is used
        jobs.c.job_user == user,
        jobs.c.state.in_(_NOT_BEGUN),
    )
    return int(tx.execute(query).scalar_one())
