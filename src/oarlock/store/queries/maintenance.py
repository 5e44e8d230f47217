"""Maintenance windows: when which resources are kept free of jobs."""

from collections.abc import Mapping

from msgspec.structs import astuple, replace
from sqlalchemy import bindparam, delete, null, select, union_all

from oarlock.lang import where as conditions
from oarlock.lang.where import STORED
from oarlock.model.errors import OarlockError
from oarlock.model.maintenance import Maintenance, UnknownWindow
from oarlock.model.snapshot import MaintenanceWindow
from oarlock.store.engine.rows import insert_rows
from oarlock.store.engine.tx import Tx, allocate_ids
from oarlock.store.queries import resources, unknown
from oarlock.store.tables import maintenance, unknown_attempts
from oarlock.store.tables import resources as table

_COLUMNS = [column.name for column in maintenance.columns]


def add(tx: Tx, window: Maintenance) -> Maintenance:
    """Insert a new window; return it with its number."""
    [number] = allocate_ids(tx, maintenance.c.maintenance_id, 1)
    added = replace(window, id=number)
    insert_rows(tx, "maintenance", _COLUMNS, [astuple(added)])
    return added


def listed(tx: Tx, *, now: int = 0) -> list[Maintenance]:
    """Return the windows that are not over, those that begin first before the others."""
    return [Maintenance(*row) for row in tx.execute(_LISTED, {"now": now})]


_LISTED = (
    select(maintenance)
    .where(maintenance.c.stop_time > bindparam("now"))
    .order_by(maintenance.c.start_time, maintenance.c.maintenance_id)
)


def remove(tx: Tx, number: int) -> None:
    """Delete a window (`UnknownWindow` if there is none of that number)."""
    if not tx.execute(delete(maintenance).where(maintenance.c.maintenance_id == number)).rowcount:
        raise UnknownWindow(f"There is no maintenance {number}.", hint="`oarlock maintenance list` lists them.")


def windows(tx: Tx, types: Mapping[str, type], *, now: int) -> list[MaintenanceWindow]:
    """Return the windows that are not over with their resources, for the scheduler; and what unknown jobs hold."""
    rows = [tuple(row) for row in tx.execute(_WINDOWS, {"now": now})]
    own = [row for row in rows if row[1] is not None]
    maintained = [
        MaintenanceWindow(name, start, stop, resources_of_window(tx, where, types))
        for _, name, start, stop, where in own
    ]
    return maintained if len(maintained) == len(rows) else [*maintained, *unknown.windows(tx, now=now)]


# One query for both, since the second has something to say after a restore only.
_WINDOWS = union_all(
    select(
        maintenance.c.maintenance_id.label("number"),
        maintenance.c.name,
        maintenance.c.start_time.label("start"),
        maintenance.c.stop_time,
        maintenance.c.properties,
    ).where(maintenance.c.stop_time > bindparam("now")),
    select(unknown_attempts.c.unknown_id, null(), null(), null(), null()),
).order_by("start", "number")


def resources_of_window(tx: Tx, where: str, types: Mapping[str, type]) -> tuple[int, ...]:
    """Return the resources of a window: all of them if its condition cannot be parsed any more.

    It is better that a job waits than that it runs on a node that is being repaired.
    """
    if where:
        try:
            condition = conditions.check(conditions.parse(where, limits=STORED), types)
            return tuple(resources.matching(tx, condition, types))
        except OarlockError:
            pass
    return tuple(tx.execute(select(table.c.resource_id).order_by(table.c.resource_id)).scalars())
