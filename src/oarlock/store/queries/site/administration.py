"""What administrators set: queues, quotas, admission rules (TOML text, never code), maintenance windows."""

import logging
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import astuple, replace
from sqlalchemy import URL, String, bindparam, delete, func, insert, literal_column, null, select, union_all, update
from sqlalchemy.exc import ProgrammingError

from oarlock.lang import where as conditions
from oarlock.lang.where import STORED
from oarlock.model.errors import DatabaseRefused, OarlockError, QueueExists, QueueInUse, UnknownQueue
from oarlock.model.job import FINAL, JobState
from oarlock.model.limits import Maintenance, UnknownWindow
from oarlock.model.snapshot import MaintenanceWindow, Queue, QuotaRule
from oarlock.store.engine import journal
from oarlock.store.engine.database import Database
from oarlock.store.engine.rows import insert_rows
from oarlock.store.engine.tx import Tx, allocate_ids
from oarlock.store.queries.cluster import resources as stored_resources
from oarlock.store.queries.job import attempts
from oarlock.store.tables import admission_rules, jobs, maintenance, queues, quotas, resources, unknown_attempts

_ALL_QUEUES = select(queues.c.queue_name, queues.c.priority, queues.c.scheduler_policy, queues.c.state).order_by(
    queues.c.priority.desc(), queues.c.queue_name
)


def all_queues(tx: Tx) -> list[Queue]:
    """Return all queues, those with the highest priority first."""
    rows = tx.execute(_ALL_QUEUES)
    return [Queue(name, priority, policy, state == "Active") for name, priority, policy, state in rows]


def add_queue(tx: Tx, queue: Queue) -> None:
    """Add a queue; one of that name must not be there (`QueueExists`)."""
    if any(other.name == queue.name for other in all_queues(tx)):
        raise QueueExists(f"There is already a queue `{queue.name}`.", hint="`oarnotify -l` lists the queues.")
    state = "Active" if queue.active else "notActive"
    row = {"queue_name": queue.name, "priority": queue.priority, "scheduler_policy": queue.policy, "state": state}
    tx.execute(insert(queues), row)
    about = {"queue": queue.name, "priority": queue.priority, "policy": queue.policy}
    journal.note(tx, journal.SITE, "queue added", about)


def change_queue(tx: Tx, queue: Queue) -> None:
    """Set the priority and the policy of a queue that is there (`UnknownQueue`), whatever jobs it has."""
    changed = {"priority": queue.priority, "scheduler_policy": queue.policy}
    if not tx.execute(update(queues).where(queues.c.queue_name == queue.name).values(changed)).rowcount:
        raise UnknownQueue(queue.name)
    journal.note(
        tx, journal.SITE, "queue changed", {"queue": queue.name, "priority": queue.priority, "policy": queue.policy}
    )


def remove_queue(tx: Tx, name: str) -> None:
    """Remove a queue in which no job is left (`QueueInUse`)."""
    left = select(func.count()).where(jobs.c.queue_name == name, jobs.c.state.not_in([state.value for state in FINAL]))
    if count := tx.execute(left).scalar_one():
        raise QueueInUse(f"{count} jobs are still in queue `{name}`.", hint="Wait for their end, or `oardel` them.")
    if not tx.execute(delete(queues).where(queues.c.queue_name == name)).rowcount:
        raise UnknownQueue(name)
    journal.note(tx, journal.SITE, "queue removed", {"queue": name})


def start_queues(tx: Tx, names: Collection[str] | None = None) -> list[str]:
    """Start queues: those named (`UnknownQueue` if one is not there), or all. Return those that were stopped."""
    return _set_queue_state(tx, "Active", names)


def stop_queues(tx: Tx, names: Collection[str] | None = None) -> list[str]:
    """Stop queues: those named (`UnknownQueue` if one is not there), or all. Return those that were not stopped."""
    return _set_queue_state(tx, "notActive", names)


def _set_queue_state(tx: Tx, state: str, names: Collection[str] | None) -> list[str]:
    before = {queue.name: queue.active for queue in all_queues(tx)}
    for name in names or ():
        if name not in before:
            raise UnknownQueue(name)
    wanted = before if names is None else names
    tx.execute(update(queues).where(queues.c.queue_name.in_(wanted)).values(state=state))
    changed = [name for name in dict.fromkeys(wanted) if before[name] != (state == "Active")]
    for name in changed:
        # A stopped queue stays stopped until an administrator starts it: hence a warning.
        stopped = state != "Active"
        text, level = ("queue stopped", logging.WARNING) if stopped else ("queue started", logging.INFO)
        journal.note(tx, journal.SITE, text, {"queue": name}, level=level)
    return changed


_QUOTA_COLUMNS = [column.name for column in quotas.columns]
_ALL_QUOTAS = select(quotas).order_by(quotas.c.position)


def all_quotas(tx: Tx) -> list[QuotaRule]:
    """Return all rules, in the site's order."""
    return [QuotaRule(*row[1:]) for row in tx.execute(_ALL_QUOTAS)]


def numbered_quotas(tx: Tx) -> dict[int, QuotaRule]:
    """Return all rules by their numbers, in the site's order."""
    return {row[0]: QuotaRule(*row[1:]) for row in tx.execute(_ALL_QUOTAS)}


def put_quotas(tx: Tx, rules: Mapping[int, QuotaRule]) -> None:
    """Replace all rules by these, keyed by their numbers."""
    tx.execute(delete(quotas))
    rows = [
        (number, r.queue, r.project, r.job_type, r.user, r.resources, r.jobs, r.resource_seconds)
        for number, r in sorted(rules.items())
    ]
    insert_rows(tx, "quotas", _QUOTA_COLUMNS, rows)


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


def enabled_rules(tx: Tx) -> list[StoredRule]:
    """Return the rules that are switched on, in the order in which they apply."""
    return [StoredRule(*row) for row in tx.execute(_ENABLED)]


class RuleRow(NamedTuple):
    """A row of the table, whether it is switched on or not."""

    id: int
    text: str
    priority: int
    enabled: bool


def all_rules(tx: Tx) -> list[RuleRow]:
    """Return all rows of the table, in the order in which they would apply."""
    return [RuleRow(number, text, priority, enabled == "YES") for number, text, priority, enabled in tx.execute(_RULES)]


_RULES = select(
    admission_rules.c.id, admission_rules.c.rule, admission_rules.c.priority, admission_rules.c.enabled
).order_by(admission_rules.c.priority, admission_rules.c.id)


def set_rules(tx: Tx, row: RuleRow) -> None:
    """Write a row that is there already."""
    values = {"rule": row.text, "priority": row.priority, "enabled": "YES" if row.enabled else "NO"}
    tx.execute(update(admission_rules).where(admission_rules.c.id == row.id).values(values))


def remove_rules(tx: Tx, number: int) -> None:
    """Delete a row."""
    tx.execute(delete(admission_rules).where(admission_rules.c.id == number))


def rules_of_instance(where: Path | URL) -> list[StoredRule]:
    """Read the rules that are switched on, beside a server that may run (`DatabaseRefused` if there is nothing)."""
    if isinstance(where, Path) and not where.exists():
        raise DatabaseRefused(f"There is no instance in {where.parent}.")
    try:
        with Database(where) as database, database.read() as tx:
            return enabled_rules(tx)
    except ProgrammingError as error:
        raise DatabaseRefused("The database has no table of rules.", hint="The server makes it.") from error


def add_rules(tx: Tx, text: str, *, priority: int = 0, enabled: bool = True) -> int:
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
    return int(tx.execute(_WAITING_RESERVATIONS, {"user": user}).scalar_one())


# A literal, so that the partial index is used; and no plain columns beside it, lest SQLite takes the index of users or
# of states instead, and reads all jobs of a user who has thousands.
_WAITING_RESERVATIONS = select(func.count()).where(
    jobs.c.reservation != literal_column("'None'"),
    func.coalesce(jobs.c.job_user, literal_column("''")) == bindparam("user", type_=String()),
    func.coalesce(jobs.c.state, literal_column("''")).in_(_NOT_BEGUN),
)


_MAINTENANCE_COLUMNS = [column.name for column in maintenance.columns]


def add_maintenance(tx: Tx, window: Maintenance) -> Maintenance:
    """Insert a new window; return it with its number."""
    [number] = allocate_ids(tx, maintenance.c.maintenance_id, 1)
    added = replace(window, id=number)
    insert_rows(tx, "maintenance", _MAINTENANCE_COLUMNS, [astuple(added)])
    return added


def all_maintenance(tx: Tx, *, now: int = 0) -> list[Maintenance]:
    """Return the windows that are not over, those that begin first before the others."""
    return [Maintenance(*row) for row in tx.execute(_ALL_MAINTENANCE, {"now": now})]


_ALL_MAINTENANCE = (
    select(maintenance)
    .where(maintenance.c.stop_time > bindparam("now"))
    .order_by(maintenance.c.start_time, maintenance.c.maintenance_id)
)


def remove_maintenance(tx: Tx, number: int) -> None:
    """Delete a window (`UnknownWindow` if there is none of that number)."""
    if not tx.execute(delete(maintenance).where(maintenance.c.maintenance_id == number)).rowcount:
        raise UnknownWindow(f"There is no maintenance {number}.", hint="`oarlock maintenance list` lists them.")


def maintenance_windows(tx: Tx, types: Mapping[str, type], *, now: int) -> list[MaintenanceWindow]:
    """Return the windows that are not over with their resources, for the scheduler; and what unknown jobs hold."""
    rows = [tuple(row) for row in tx.execute(_WINDOWS, {"now": now})]
    own = [row for row in rows if row[1] is not None]
    maintained = [
        MaintenanceWindow(name, start, stop, resources_of_window(tx, where, types))
        for _, name, start, stop, where in own
    ]
    return maintained if len(maintained) == len(rows) else [*maintained, *attempts.unknown_windows(tx, now=now)]


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
            return tuple(stored_resources.matching(tx, condition, types))
        except OarlockError:
            pass
    return tuple(tx.execute(select(resources.c.resource_id).order_by(resources.c.resource_id)).scalars())
