"""Pages of long lists of jobs, by keys: the hundredth page costs what the first does; and whose jobs are seen."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, func, literal_column, or_, select

from oarlock.model.errors import UnknownJob
from oarlock.store.engine.rows import bind_ids, id_in
from oarlock.store.engine.tx import Tx
from oarlock.store.tables import assigned_resources, attempt_nodes, jobs, resources

ORDERS: Mapping[str, ColumnElement[Any]] = {
    "id": jobs.c.job_id,
    "user": jobs.c.job_user,
    "name": func.coalesce(jobs.c.job_name, ""),
    "project": jobs.c.project,
    "queue": jobs.c.queue_name,
    "state": jobs.c.state,
    "submitted": jobs.c.submission_time,
    "start": jobs.c.start_time,
    "stop": jobs.c.stop_time,
}
"""By what lists of jobs can be ordered; jobs that are equal there follow by their numbers."""


@dataclass(frozen=True, slots=True)
class JobSight:
    """Whose jobs somebody sees: one's own, and those of some projects."""

    user: str
    projects: tuple[str, ...] = ()

    def clause(self) -> ColumnElement[bool]:
        """Return the condition that a job fulfils if it is seen. All lists and single jobs go through this one."""
        return self.holds(jobs.c.job_user, jobs.c.project)

    def holds(self, user: ColumnElement[Any], project: ColumnElement[Any]) -> ColumnElement[bool]:
        """Return that condition on the columns of another table that name the user and the project of a job."""
        own = user == self.user
        return or_(own, project.in_(self.projects)) if self.projects else own


def seen(tx: Tx, sight: JobSight | None, ids: Collection[int]) -> set[int]:
    """Return those of these jobs that somebody sees; without a limit all of them, whether they exist or not."""
    if sight is None:
        return set(ids)
    rows = tx.execute(
        select(jobs.c.job_id).where(id_in(tx.dialect.name, jobs.c.job_id), sight.clause()), bind_ids(tx, ids)
    )
    return set(rows.scalars())


def among_recent(user: str | None, count: int) -> ColumnElement[bool]:
    """Return the condition that a job fulfils if it is among the last so many, of a user or of all.

    Their numbers stand in an index, so what else is asked of them is looked up for few rows of a long history.
    """
    last = select(jobs.c.job_id).order_by(jobs.c.job_id.desc()).limit(count)
    chosen = last if user is None else last.where(jobs.c.job_user == user)
    return jobs.c.job_id.in_(select(chosen.subquery().c.job_id))


def on_node(name: str) -> ColumnElement[bool]:
    """Return the condition that a job fulfils if it was launched on a node, or holds resources there."""
    holding = (
        select(assigned_resources.c.moldable_job_id)
        .join(resources, resources.c.resource_id == assigned_resources.c.resource_id)
        .where(
            assigned_resources.c.assigned_resource_index == literal_column("'CURRENT'"),
            resources.c.network_address == name,
        )
    )
    launched = select(attempt_nodes.c.job_id).where(attempt_nodes.c.network_address == name)
    return or_(jobs.c.job_id.in_(launched), jobs.c.assigned_moldable_job.in_(holding))


def page(
    tx: Tx, holds: list[ColumnElement[bool]], bound: Mapping[str, Any], *, order: str, after: int | None, most: int
) -> list[int]:
    """Return the numbers of the first jobs of a list, or of those after one of them; `order` with `-`: backwards."""
    column = ORDERS[order.removeprefix("-")]
    backwards = order.startswith("-")
    query = select(jobs.c.job_id).where(*holds).limit(most)
    if after is not None:
        query = query.where(_beyond(tx, column, after, backwards=backwards))
    return list(tx.execute(_ordered(query, column, backwards=backwards), dict(bound)).scalars())


def _ordered(query: Select[Any], column: ColumnElement[Any], *, backwards: bool) -> Select[Any]:
    keys = [column, jobs.c.job_id] if column is not jobs.c.job_id else [column]
    return query.order_by(*(key.desc() if backwards else key for key in keys))


def _beyond(tx: Tx, column: ColumnElement[Any], after: int, *, backwards: bool) -> ColumnElement[bool]:
    """Return the condition of jobs that come after one: it is looked up, so its number is all that a page must know."""
    number = jobs.c.job_id
    if column is number:
        return number < after if backwards else number > after
    row = tx.execute(select(column).where(number == after)).first()
    if row is None:
        raise UnknownJob(after)
    value = row[0]
    further = column < value if backwards else column > value
    return or_(further, and_(column == value, number < after if backwards else number > after))
