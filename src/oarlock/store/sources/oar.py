"""The database of OAR 2 or OAR 3, as its account `oar_ro` may read it: jobs, resources, plans, states and events."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Connection, Integer, TableClause, and_, column, inspect, or_, select, table

from oarlock.model.event import Event, event_type
from oarlock.model.job import FINAL, JobKind, JobState, Reservation
from oarlock.model.resource import PROPERTY_ALIASES, Value
from oarlock.model.source import (
    EndedJobs,
    SourceChoice,
    SourceEvent,
    SourceGroup,
    SourceJob,
    SourceLevel,
    SourceNodes,
    SourceQueue,
    SourceResource,
    StateChange,
    StateStay,
)
from oarlock.store.sources.connections import ForeignDatabase

_AT_ONCE = 2000
_MOST_CHANGES = 50_000
_OVER = tuple(sorted(state.value for state in FINAL))
_STATES = tuple(sorted(state.value for state in JobState))
"""A site's own OAR may have more states; jobs in these are left out."""
_RESERVATIONS = {reservation.value: reservation for reservation in Reservation}
_LONGEST_TEXT = 255
K = TypeVar("K")


def _table(name: str, columns: str) -> TableClause:
    return table(name, *map(column, columns.split()))


_jobs = _table(
    "jobs",
    "job_id job_name job_type state reservation message job_user project command exit_code queue_name properties "
    "launching_directory submission_time start_time stop_time assigned_moldable_job array_id array_index "
    "initial_request suspended scheduler_info",
)
_moldables = _table("moldable_job_descriptions", "moldable_id moldable_job_id moldable_walltime")
_groups = _table("job_resource_groups", "res_group_id res_group_moldable_id res_group_property")
_levels = _table("job_resource_descriptions", "res_job_group_id res_job_resource_type res_job_value res_job_order")
_types = _table("job_types", "job_type_id job_id type")
_needs = _table("job_dependencies", "job_id job_id_required")
_stays = _table("job_state_logs", "job_state_log_id job_id job_state date_start date_stop")
_assigned = _table("assigned_resources", "moldable_job_id resource_id")
_planned = _table("gantt_jobs_predictions_visu", "moldable_job_id start_time")
_planned_resources = _table("gantt_jobs_resources_visu", "moldable_job_id resource_id")
_queues = _table("queues", "queue_name priority state")
_changes = _table("resource_logs", "resource_log_id resource_id attribute value date_start date_stop")
_events = _table("event_logs", "event_id type job_id date description")
_hosts = _table("event_log_hostnames", "event_id hostname")


class OarDatabase:
    """A live OAR, read from its database."""

    def __init__(self, database: ForeignDatabase) -> None:
        self._database = database

    @property
    def name(self) -> str:
        """What the source is."""
        return self._database.name

    def nodes(self, *, since: int) -> SourceNodes:
        """Return resources with all their properties, queues, and the states of resources since an instant."""
        with self._database.read() as tx:
            kinds = _kinds(tx)
            names = list(kinds)
            rows: Any = tx.execute(select(*map(column, names)).select_from(table("resources")).order_by("resource_id"))
            resources = [_resource(names, kinds, row) for row in rows]
            queues = [
                SourceQueue(row.queue_name, int(row.priority or 0), row.state == "Active")
                for row in tx.execute(select(_queues))
            ]
            change = _changes.c
            recent = and_(change.attribute == "state", or_(change.date_stop == 0, change.date_stop >= since))
            logged = tx.execute(
                select(change.resource_log_id, change.resource_id, change.value, change.date_start, change.date_stop)
                .where(recent)
                .order_by(change.resource_log_id.desc())
                .limit(_MOST_CHANGES)
            )
            changes = [StateChange(*row) for row in logged]
        ours = {PROPERTY_ALIASES.get(name, name): kind for name, kind in kinds.items()}
        return SourceNodes(resources, ours, queues=queues, changes=changes)

    def live(self) -> Sequence[SourceJob]:
        """Return the jobs that are not over."""
        with self._database.read() as tx:
            return _read(tx, _jobs.c.state.not_in(_OVER))

    def jobs(self, ids: Collection[int]) -> Sequence[SourceJob]:
        """Return these jobs."""
        wanted = sorted(ids)
        rows: list[SourceJob] = []
        with self._database.read() as tx:
            for part in _parts(wanted):
                rows += _read(tx, _jobs.c.job_id.in_(part))
        return rows

    def ended(self, cursor: tuple[int, int], most: int) -> EndedJobs:
        """Return jobs that ended behind the cursor: an instant and, of that instant, a number."""
        at, number = cursor
        job = _jobs.c
        behind = or_(job.stop_time > at, and_(job.stop_time == at, job.job_id > number))
        with self._database.read() as tx:
            chosen = tx.execute(
                select(job.stop_time, job.job_id)
                .where(job.state.in_(_OVER), behind)
                .order_by(job.stop_time, job.job_id)
                .limit(most)
            ).all()
            rows = _read(tx, job.job_id.in_([row.job_id for row in chosen])) if chosen else []
        last = (int(chosen[-1].stop_time), int(chosen[-1].job_id)) if chosen else cursor
        return EndedJobs(rows, last, complete=len(chosen) < most)

    def events(self, after: int, most: int, *, since: int) -> Sequence[SourceEvent]:
        """Return events behind a number; those whose type we do not know are left out."""
        event = _events.c
        with self._database.read() as tx:
            rows = tx.execute(
                select(_events).where(event.event_id > after, event.date >= since).order_by(event.event_id).limit(most)
            ).all()
            hosts = _by_key(
                tx, _hosts.c.event_id, [row.event_id for row in rows], (_hosts.c.hostname,), lambda row: str(row[1])
            )
        return [
            SourceEvent(
                int(row.event_id),
                Event(kind, row.date, row.description or "", row.job_id or None, tuple(hosts[row.event_id])),
            )
            for row in rows
            if (kind := _event_kind(row.type)) is not None
        ]

    def close(self) -> None:
        """Close its connections."""
        self._database.close()


def _event_kind(name: str) -> Any:
    try:
        return event_type(name)
    except ValueError:
        return None


def _kinds(tx: Connection) -> dict[str, type]:
    """Return the columns of OAR's resources: integers, or texts."""
    return {
        row["name"]: int if isinstance(row["type"], Integer) else str for row in inspect(tx).get_columns("resources")
    }


def _resource(names: Sequence[str], kinds: dict[str, type], row: Sequence[Any]) -> SourceResource:
    values: dict[str, Value] = {}
    for name, value in zip(names, row, strict=True):
        shown = value if value is None or kinds[name] is int else str(value)[:_LONGEST_TEXT]
        values[PROPERTY_ALIASES.get(name, name)] = shown
    return SourceResource(int(values.pop("resource_id") or 0), values)


def _parts(ids: Sequence[int]) -> Iterable[Sequence[int]]:
    return (ids[at : at + _AT_ONCE] for at in range(0, len(ids), _AT_ONCE))


def _by_key(
    tx: Connection,
    key: ColumnElement[Any],
    ids: Sequence[int],
    columns: Sequence[ColumnElement[Any]],
    make: Callable[[Any], K],
    order: Sequence[ColumnElement[Any]] = (),
) -> defaultdict[int, list[K]]:
    """Read rows of a table by one of its columns."""
    rows: defaultdict[int, list[K]] = defaultdict(list)
    for part in _parts(ids):
        for row in tx.execute(select(key, *columns).where(key.in_(part)).order_by(*(order or columns))):
            rows[int(row[0])].append(make(row))
    return rows


def _read(tx: Connection, condition: ColumnElement[bool]) -> list[SourceJob]:
    """Read jobs with all that belongs to them, table by table."""
    query = select(_jobs).where(condition, _jobs.c.state.in_(_STATES)).order_by(_jobs.c.job_id)
    rows = tx.execute(query).all()
    ids = [int(row.job_id) for row in rows]
    moldable = _moldables.c
    moldables = _by_key(
        tx, moldable.moldable_job_id, ids, (moldable.moldable_id, moldable.moldable_walltime), tuple
    )  # fmt: skip
    numbers = [row[1] for many in moldables.values() for row in many]
    choices = _choices(tx, numbers, {row[1]: int(row[2]) for many in moldables.values() for row in many})
    starts = dict(_pairs(tx, _planned.c.moldable_job_id, numbers, _planned.c.start_time))
    places = _numbers(tx, _planned_resources, [number for number in numbers if number in starts])
    held = _numbers(tx, _assigned, [int(row.assigned_moldable_job) for row in rows if row.assigned_moldable_job])
    types = _by_key(tx, _types.c.job_id, ids, (_types.c.type,), lambda row: str(row[1]), (_types.c.job_type_id,))
    needs = _by_key(tx, _needs.c.job_id, ids, (_needs.c.job_id_required,), lambda row: int(row[1]))
    stay = _stays.c
    stays = _by_key(
        tx, stay.job_id, ids, (stay.job_state, stay.date_start, stay.date_stop),
        _stay, (stay.job_state_log_id,),
    )  # fmt: skip
    jobs = []
    for row in rows:
        own = [number for _, number, _ in moldables[row.job_id]]
        planned = next((number for number in own if number in starts), 0)
        jobs.append(
            _job(
                row,
                types=tuple(types[row.job_id]),
                needs=tuple(needs[row.job_id]),
                stays=tuple(stay for stay in stays[row.job_id] if stay is not None),
                choices=tuple(choices[number] for number in own),
                resources=tuple(held[int(row.assigned_moldable_job or 0)]),
                planned=int(starts.get(planned, 0)),
                planned_choice=planned,
                planned_resources=tuple(places[planned]),
            )
        )
    return jobs


def _stay(row: Any) -> StateStay | None:
    return StateStay(JobState(row[1]), int(row[2]), int(row[3])) if row[1] in _STATES else None


def _numbers(tx: Connection, source: TableClause, moldables: Sequence[int]) -> defaultdict[int, list[int]]:
    return _by_key(
        tx, source.c.moldable_job_id, moldables, (source.c.resource_id,), lambda row: int(row[1])
    )  # fmt: skip


def _pairs(
    tx: Connection, key: ColumnElement[Any], ids: Sequence[int], value: ColumnElement[Any]
) -> Iterable[tuple[int, int]]:
    for part in _parts(ids):
        yield from ((int(row[0]), int(row[1])) for row in tx.execute(select(key, value).where(key.in_(part))))


def _choices(tx: Connection, moldables: Sequence[int], walltimes: dict[int, int]) -> dict[int, SourceChoice]:
    group, level = _groups.c, _levels.c
    groups = _by_key(
        tx, group.res_group_moldable_id, moldables, (group.res_group_id, group.res_group_property), tuple,
        (group.res_group_id,),
    )  # fmt: skip
    levels = _by_key(
        tx, level.res_job_group_id, [row[1] for many in groups.values() for row in many],
        (level.res_job_resource_type, level.res_job_value),
        lambda row: SourceLevel(str(row[1]), int(row[2])), (level.res_job_order,),
    )  # fmt: skip
    return {
        number: SourceChoice(
            number, walltimes[number], tuple(SourceGroup(row[2] or "", tuple(levels[row[1]])) for row in groups[number])
        )
        for number in moldables
    }


def _job(row: Any, **more: Any) -> SourceJob:
    return SourceJob(
        id=int(row.job_id),
        state=JobState(row.state),
        user=row.job_user or "",
        project=row.project or "default",
        queue=row.queue_name or "",
        name=row.job_name or None,
        kind=JobKind.INTERACTIVE if row.job_type == JobKind.INTERACTIVE else JobKind.PASSIVE,
        reservation=_RESERVATIONS.get(row.reservation, Reservation.NONE),
        message=(row.state == JobState.WAITING and row.scheduler_info) or row.message or "",
        command=row.command,
        properties=row.properties or "",
        directory=row.launching_directory or "",
        initial_request=row.initial_request or "",
        submitted=int(row.submission_time or 0),
        start=int(row.start_time or 0),
        stop=int(row.stop_time or 0),
        exit_code=None if row.exit_code is None else int(row.exit_code),
        array_id=int(row.array_id or 0),
        array_index=int(row.array_index or 1),
        suspended=row.suspended == "YES",
        assigned=int(row.assigned_moldable_job or 0),
        **more,
    )
