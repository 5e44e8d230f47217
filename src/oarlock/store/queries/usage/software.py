"""Which software jobs ran: sums by the day on which they ended, user and project."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Select, and_, func, select

from oarlock.store.engine.rows import add_up
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.job.job_pages import JobSight
from oarlock.store.tables import software_days


class SoftwareGroup(NamedTuple):
    """Whose use of what on a day (epoch seconds at midnight UTC)."""

    day: int
    user: str
    project: str
    kind: str
    name: str


class SoftwareSums(NamedTuple):
    """How many jobs ran it, and the core-seconds held and CPU seconds used that are counted for it."""

    jobs: int
    core_seconds: float
    cpu_seconds: float


class SoftwareTotal(NamedTuple):
    """The use of a software, and by how many users."""

    kind: str
    name: str
    users: int
    sums: SoftwareSums


class SoftwareQuestion(NamedTuple):
    """Whose use between two instants; `sight`: of jobs of that user, or of these projects, only."""

    since: int
    until: int
    kind: str = ""
    user: str = ""
    project: str = ""
    sight: JobSight | None = None

    def clause(self) -> ColumnElement[bool]:
        """Build the condition on the rows."""
        row = software_days.c
        parts = [row.day >= self.since, row.day < self.until]
        parts += [
            column == value
            for column, value in ((row.kind, self.kind), (row.user_name, self.user), (row.project, self.project))
            if value
        ]
        if self.sight is not None:
            parts.append(self.sight.holds(row.user_name, row.project))
        return and_(*parts)


def add_days(tx: Tx, sums: Mapping[SoftwareGroup, SoftwareSums]) -> None:
    """Add to the sums; amounts may be below zero, where a job is counted otherwise than before."""
    if not sums:
        return
    columns = [column.name for column in software_days.columns]
    rows = [dict(zip(columns, (*group, *amounts), strict=True)) for group, amounts in sums.items()]
    tx.execute(add_up(tx.dialect.name, software_days), rows)


def most_used(tx: Tx, question: SoftwareQuestion, *, most: int) -> list[SoftwareTotal]:
    """Return the software with most core-seconds, most first."""
    row = software_days.c
    jobs, held, used = (func.sum(row[name]) for name in SoftwareSums._fields)
    query = (
        select(row.kind, row.name, func.count(row.user_name.distinct()), jobs, held, used)
        .where(question.clause())
        .group_by(row.kind, row.name)
        .having(jobs > 0)
        .order_by(held.desc(), row.kind, row.name)
        .limit(most)
    )
    return [SoftwareTotal(kind, name, int(users), _sums(sums)) for kind, name, users, *sums in tx.execute(query)]


def by_day(tx: Tx, question: SoftwareQuestion, names: Sequence[str]) -> dict[tuple[str, str, int], SoftwareSums]:
    """Return the sums of these names by kind, name and day."""
    row = software_days.c
    sums = [func.sum(row[name]) for name in SoftwareSums._fields]
    query: Select[Any] = (
        select(row.kind, row.name, row.day, *sums)
        .where(question.clause(), row.name.in_(names))
        .group_by(row.kind, row.name, row.day)
    )
    return {(kind, name, int(day)): _sums(amounts) for kind, name, day, *amounts in tx.execute(query)}


def _sums(amounts: Sequence[Any]) -> SoftwareSums:
    jobs, held, used = amounts
    return SoftwareSums(int(jobs), float(held), float(used))
