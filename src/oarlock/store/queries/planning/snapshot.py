"""The scheduler's snapshot, read in a bounded number of queries whatever the number of jobs."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from msgspec.structs import replace
from sqlalchemy import Select, and_, bindparam, case, func, literal_column, not_, or_, select

from oarlock.model.job import HOLDS_RESOURCES, JobState, Reservation
from oarlock.model.resource import DEFAULT_ORDER, ResourceOrder
from oarlock.model.snapshot import Choice, Dependency, PlacedJob, Promise, Queue, Snapshot, WaitingJob
from oarlock.store.engine import facts
from oarlock.store.engine.rows import bind_ids, id_in
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.cluster import properties
from oarlock.store.queries.job import jobs as stored_jobs
from oarlock.store.queries.job import shapes
from oarlock.store.queries.planning import array_limits, plans
from oarlock.store.queries.planning.array_limits import ReachedLimit
from oarlock.store.queries.site import administration
from oarlock.store.queries.usage import accounting as stored_accounting
from oarlock.store.tables import (
    assigned_resources,
    gantt_jobs_predictions,
    gantt_jobs_resources,
    job_dependencies,
    job_types,
    jobs,
    moldable_job_descriptions,
)

_RESERVATIONS = {word.value: word for word in Reservation}  # a call of the enumeration costs ten times as much
_MOST_SHAPES = 2_000
_FEW_WAITING = 100  # a plan of more jobs is not made anew because the preferred order of resources changed
_MANY = 1_000  # waiting jobs from which on only new ones are read
_TRUSTED_SECONDS = 600  # for so long: somebody may have changed the database by hand
_MOST_ARRAYS, _LEAST_MEMBERS = 256, 4  # behind the first jobs of a queue; the latter on average
_LIVE = (JobState.WAITING, JobState.TO_ACK_RESERVATION, *sorted(HOLDS_RESOURCES))


@dataclass(frozen=True, slots=True)
class SnapshotRead:
    """A snapshot, and the jobs left out of it: number and why what they ask for cannot be read any more.

    `held_back`: the others of their arrays that run, or come first, are as many as may run at once.
    """

    snapshot: Snapshot
    broken: tuple[tuple[int, str], ...] = ()
    left: int = 0  # waiting jobs that were not looked at
    held_back: Mapping[int, ReachedLimit] = field(default_factory=dict)


@dataclass(slots=True)
class SnapshotCache:
    """Parts of earlier snapshots, for reads that follow each other: what did not change is the same object."""

    requests: shapes.ShapeCache = field(default_factory=shapes.ShapeCache)
    waiting: dict[int, tuple[tuple[Any, ...], WaitingJob]] = field(default_factory=dict)
    table: properties.ResourceTableCache = field(default_factory=properties.ResourceTableCache)
    read_at: int = 0  # when the rows of all waiting jobs were last read

    @property
    def is_full(self) -> bool:
        """Whether so many different requests were seen that it is better to begin anew."""
        return len(self.requests.shapes) > _MOST_SHAPES


def read(
    tx: Tx,
    *,
    karma_window: int,
    now: int,
    order: Sequence[ResourceOrder] = DEFAULT_ORDER,
    depth: int | None = None,
    arrays: bool = False,
    half_life: int = 0,
    memory: SnapshotCache | None = None,
) -> SnapshotRead:
    """Read everything the scheduler needs of this instant.

    `order` is SCHEDULER_RESOURCE_ORDER; a column there is none of is refused (`UnknownProperty`), equals stay by
    number, and nothing is less than anything. Accounting windows that begin in [now − `karma_window`, now) make the
    usage; where a queue weighs its jobs older ones count, too, half as much after each `half_life` (0: not at all).
    With `depth` only so many waiting jobs of each queue that is served in order are read, the oldest; with `arrays`
    also the first member of each array behind them, unless limits or dates to be given need everybody. A reader that
    has a `memory` gets the same snapshot at less cost.
    """
    types, served, rules = properties.types(tx), administration.all_queues(tx), tuple(administration.all_quotas(tx))
    held_back, unread = array_limits.held_back(tx), dict[int, int]()
    head = None if depth is None else _head(tx, served, depth, held_back)
    if head is not None and depth is not None and arrays and not rules and _can_pass_over(tx, served):
        unread = _array_firsts(tx, served, depth, held_back)
        head = sorted({*head, *unread})
    to_read, cached = _divide(tx, head, None if unread else memory, types, now)
    live, promised = _live(tx, to_read), _promised(tx)
    requested = _requests(tx, to_read, types, None if memory is None else memory.requests)
    places = {**_held(tx, live, now), **promised}
    kinds, after = _types(tx, None if to_read is None else [row.job_id for row in live]), _dependencies(tx)
    rows_read = [
        (row, tuple(requested.choices[number]), kinds.get(number, ()), after.get(number, ()), unread.get(number, 0))
        for row in live
        if (number := row.job_id) in requested.choices and number not in promised
    ]
    placed = [_placed(row, places[row.job_id], kinds.get(row.job_id, ())) for row in live if row.job_id in places]
    waiting = _all_waiting(rows_read, cached, after, memory)
    if held_back:
        waiting = tuple([job for job in waiting if job.job_id not in held_back])
    table, late = None if memory is None else memory.table, len(waiting) > _FEW_WAITING
    snapshot = Snapshot(
        resources=properties.read_resource_table(tx, types, order, table, now=now, late=late),
        queues=tuple(served),
        shapes=tuple(requested.shapes),
        waiting=waiting,
        placed=tuple(placed),
        usage=stored_accounting.all_usage(tx, served, karma_window=karma_window, half_life=half_life, now=now),
        quotas=rules,
        windows=tuple(administration.maintenance_windows(tx, types, now=now)),
        recent=stored_accounting.recent_runs(tx, {job.user for job in waiting} | {job.user for job in placed})
        if any(queue.predicts for queue in served)
        else {},
        promised=_kept_dates(tx, served),
    )
    broken = tuple((number, why) for number, why in sorted(requested.broken.items()) if number not in promised)
    left = 0 if head is None else _count_waiting(tx) - len(head) - len(held_back)
    return SnapshotRead(snapshot, broken, left, held_back)


def _divide(
    tx: Tx, head: Sequence[int] | None, memory: SnapshotCache | None, types: Mapping[str, type], now: int
) -> tuple[Sequence[int] | None, list[int]]:
    """Divide the waiting jobs, all or the `head`, into those to be read (None: all) and those that the cache has.

    What a job asked for does not change while it waits, but for the answer to a reservation and the states of the jobs
    it waits for, so a long queue is read once, and then only what is new in it.
    """
    if memory is None or len(memory.waiting) < _MANY or not _is_trusted(memory, types, now):
        if memory is not None:
            memory.read_at = now
        return head, []
    numbers = list(tx.execute(_WAITS).scalars()) if head is None else head
    to_read = {number for number in numbers if number not in memory.waiting} | set(tx.execute(_DATED).scalars())
    return sorted(to_read), [number for number in numbers if number not in to_read]


def _is_trusted(memory: SnapshotCache, types: Mapping[str, type], now: int) -> bool:
    """Return whether cached jobs are recent enough, and were read for resources with the same columns."""
    return memory.requests.types == types and memory.read_at <= now < memory.read_at + _TRUSTED_SECONDS


def _requests(
    tx: Tx, head: Sequence[int] | None, types: Mapping[str, type], memory: shapes.ShapeCache | None
) -> shapes.JobRequests:
    """Read what jobs ask for: all that wait, or the `head`."""
    if head is None:
        return shapes.read(tx, shapes.WAITING, types, memory)
    return shapes.read(tx, shapes.bound_job_ids(tx.dialect.name), types, memory, **bind_ids(tx, head))


def _kept_dates(tx: Tx, served: Iterable[Queue]) -> dict[int, Promise]:
    """Read the promised dates of queues that keep them."""
    keep = [queue.name for queue in served if queue.keeps_dates]
    return {number: promise for name in keep for number, promise in plans.promised(tx, name).items()}


def _head(tx: Tx, served: Iterable[Queue], depth: int, held_back: Collection[int]) -> list[int]:
    """Return the first waiting jobs of each queue; all of them where the policy may reorder, or has dates to keep."""
    numbers = set(tx.execute(_DATED).scalars())
    first, bound = _without(tx, _FIRST, held_back)
    for queue in served:
        most = _ALL if _needs_all(queue) else depth
        numbers.update(tx.execute(first, {"queue": queue.name, "most": most, **bound}).scalars())
    return sorted(numbers)


def _without(
    tx: Tx, query: Select[*tuple[Any, ...]], held_back: Collection[int]
) -> tuple[Select[*tuple[Any, ...]], dict[str, Any]]:
    """Return a query without the jobs that are held back, and what it binds besides."""
    if not held_back:
        return query, {}
    return query.where(not_(id_in(tx.dialect.name, jobs.c.job_id))), bind_ids(tx, held_back)


def _needs_all(queue: Queue) -> bool:
    return queue.weighs or queue.policy.endswith("fairsharing") or queue.keeps_dates or bool(queue.program)


def _can_pass_over(tx: Tx, served: Iterable[Queue]) -> bool:
    """Return whether jobs may be left out between others: no policy needs them all, no reservation asks for a date."""
    return all(queue.in_order for queue in served) and tx.execute(_UNANSWERED).first() is None


def _array_firsts(tx: Tx, served: Iterable[Queue], depth: int, held_back: Collection[int]) -> dict[int, int]:
    """Find the first member of each array behind the first `depth` jobs of its queue, and count the others there.

    Members of an array ask for the same; a job that was submitted alone is an array of one. The oldest arrays are
    found, up to a bound. Where nearly all jobs were submitted alone nothing is found: little could be left out.
    """
    firsts: dict[int, int] = {}
    (last_of_head, bound), (arrays, _) = _without(tx, _LAST, held_back), _without(tx, _ARRAYS, held_back)
    for queue in served:
        if not _needs_all(queue):
            last = tx.execute(last_of_head, {"queue": queue.name, "behind": depth - 1, **bound}).scalar()
            behind = {"queue": queue.name, "last": last, "most": _MOST_ARRAYS, **bound}
            rows = tx.execute(arrays, behind).all() if last is not None else ()
            if sum(count for _, count in rows) >= _LEAST_MEMBERS * len(rows):
                firsts.update({first: count - 1 for first, count in rows})
    return firsts


_WAITS = select(jobs.c.job_id).where(jobs.c.state == JobState.WAITING.value).order_by(jobs.c.job_id)
_DATED = _WAITS.where(jobs.c.reservation != literal_column("'None'"))
_FIRST = _WAITS.where(jobs.c.queue_name == bindparam("queue")).limit(bindparam("most"))
_LAST = _WAITS.where(jobs.c.queue_name == bindparam("queue")).limit(1).offset(bindparam("behind"))
_UNANSWERED = _WAITS.where(jobs.c.reservation == literal_column(f"'{Reservation.TO_SCHEDULE.value}'")).limit(1)
_ARRAYS = (
    select(func.min(jobs.c.job_id), func.count())
    .where(
        jobs.c.state == JobState.WAITING.value,
        jobs.c.queue_name == bindparam("queue"),
        jobs.c.job_id > bindparam("last"),
        jobs.c.reservation == literal_column("'None'"),
    )
    # Jobs of other systems may have no array; the condition costs nothing and is part of what a job asks for.
    .group_by(jobs.c.array_id, case((jobs.c.array_id == 0, jobs.c.job_id), else_=0), jobs.c.job_user, jobs.c.properties)
    .order_by(func.min(jobs.c.job_id))
    .limit(bindparam("most"))
)
_ALL = 2**62


def _count_waiting(tx: Tx) -> int:
    return tx.execute(_COUNT).scalar_one()


_COUNT = select(func.count()).where(jobs.c.state == JobState.WAITING.value)


def _live(tx: Tx, head: Sequence[int] | None) -> Sequence[Any]:
    """Read the jobs that wait for resources or hold some, oldest first, with the walltime of the chosen alternative.

    Of those that wait, only the `head` if there is one.
    """
    query = _stored_live(tx.dialect.name, only_head=head is not None)
    return tx.execute(query, {} if head is None else bind_ids(tx, head)).all()


@cache
def _stored_live(engine: str, *, only_head: bool) -> Select[Any]:
    moldable = moldable_job_descriptions
    states = [state.value for state in _LIVE if not only_head or state is not JobState.WAITING]
    chosen = or_(jobs.c.state.in_(states), and_(*plans.ACCEPTED))  # a reservation that is held keeps its place
    if only_head:
        chosen = or_(chosen, id_in(engine, jobs.c.job_id))
    return (
        select(
            jobs.c.job_id,
            jobs.c.job_user,
            jobs.c.queue_name,
            jobs.c.project,
            jobs.c.job_name,
            jobs.c.state,
            jobs.c.reservation,
            jobs.c.submission_time,
            jobs.c.start_time,
            jobs.c.checkpoint,
            jobs.c.assigned_moldable_job,
            moldable.c.moldable_walltime,
        )
        .outerjoin(moldable, moldable.c.moldable_id == jobs.c.assigned_moldable_job)
        .where(chosen)
        .order_by(jobs.c.job_id)
    )


@dataclass(frozen=True, slots=True)
class _Place:
    """The placement of a job: alternative, start, walltime and resources."""

    moldable_id: int
    start: int
    walltime: int
    resources: tuple[int, ...]


def _promised(tx: Tx) -> dict[int, _Place]:
    """Read the places of reservations that were accepted and did not start yet."""
    rows = tx.execute(_stored_promises()).all()
    if not rows:
        return {}
    given = bind_ids(tx, [moldable_id for _, moldable_id, *_ in rows])
    resources = _grouped(tx.execute(_stored_promised(tx.dialect.name), given))
    return {job_id: _Place(m, start, walltime, resources.get(m, ())) for job_id, m, start, walltime in rows}


@cache
def _stored_promises() -> Select[Any]:
    moldable, predicted = moldable_job_descriptions.c, gantt_jobs_predictions.c
    return (
        select(jobs.c.job_id, moldable.moldable_id, predicted.start_time, moldable.moldable_walltime)
        .join(moldable_job_descriptions, moldable.moldable_job_id == jobs.c.job_id)
        .join(gantt_jobs_predictions, predicted.moldable_job_id == moldable.moldable_id)
        .where(*plans.ACCEPTED)
    )


@cache
def _stored_promised(engine: str) -> Select[Any]:
    given = gantt_jobs_resources.c
    promised = select(given.moldable_job_id, given.resource_id).order_by(given.resource_id)
    return promised.where(id_in(engine, given.moldable_job_id))


def _held(tx: Tx, live: Iterable[Any], now: int) -> dict[int, _Place]:
    """Read the places of jobs that hold resources; time spent suspended makes them longer.

    Who holds resources holds them now, even when the clock was set back to before they started.
    """
    resources = _grouped(tx.execute(_HELD))
    suspended = stored_jobs.suspended_seconds(tx, now=now)
    jumped = facts.read_clock_jumps(tx)
    return {
        row.job_id: _Place(
            row.assigned_moldable_job,
            min(jumped.today(row.start_time), now),
            (row.moldable_walltime or 0) + suspended.get(row.job_id, 0),
            resources.get(row.assigned_moldable_job, ()),
        )
        for row in live
        if row.state in HOLDS_RESOURCES
    }


_HELD = (
    select(assigned_resources.c.moldable_job_id, assigned_resources.c.resource_id)
    .where(assigned_resources.c.assigned_resource_index == literal_column("'CURRENT'"))
    .order_by(assigned_resources.c.resource_id)
)


def _placed(row: Any, place: _Place, types: tuple[str, ...]) -> PlacedJob:
    return PlacedJob(
        job_id=row.job_id,
        moldable_id=place.moldable_id,
        user=row.job_user,
        queue=row.queue_name,
        state=JobState(row.state),
        start=place.start,
        stop=place.start + place.walltime,
        resources=place.resources,
        project=row.project,
        name=row.job_name,
        types=types,
        reservation=_RESERVATIONS[row.reservation],
        checkpoint=row.checkpoint,
    )


def _all_waiting(
    rows: Sequence[tuple[Any, ...]],
    cached: Sequence[int],
    after: Mapping[int, tuple[Dependency, ...]],
    memory: SnapshotCache | None,
) -> tuple[WaitingJob, ...]:
    """Build the waiting jobs; those that are cached, or whose rows did not change, are taken from the cache."""
    if memory is None:
        return tuple([_waiting(*parts) for parts in rows])
    before_by_job, entries = memory.waiting, {}
    for row, *others in rows:
        parts = (tuple(row), *others)
        before = before_by_job.get(row.job_id)
        same = before is not None and before[0] == parts
        entries[row.job_id] = before if before is not None and same else (parts, _waiting(row, *others))
    for number in cached:
        entries[number] = _with_dependencies(before_by_job[number], after.get(number, ()))
    memory.waiting = dict(sorted(entries.items())) if rows and cached else entries
    return tuple([job for _, job in memory.waiting.values()])


def _with_dependencies(
    entry: tuple[tuple[Any, ...], WaitingJob], after: tuple[Dependency, ...]
) -> tuple[tuple[Any, ...], WaitingJob]:
    parts, job = entry
    if job.after == after:
        return entry
    row, choices, types, _, unread = parts
    return (row, choices, types, after, unread), replace(job, after=after)


def _waiting(
    row: Any, choices: tuple[Choice, ...], types: tuple[str, ...], after: tuple[Dependency, ...], unread: int
) -> WaitingJob:
    return WaitingJob(
        job_id=row.job_id,
        user=row.job_user,
        queue=row.queue_name,
        choices=choices,
        project=row.project,
        name=row.job_name,
        submitted=row.submission_time,
        types=types,
        reservation=_RESERVATIONS[row.reservation],
        start=row.start_time,
        after=after,
        unread=unread,
    )


def _types(tx: Tx, ids: Sequence[int] | None) -> dict[int, tuple[str, ...]]:
    """Read the types of live jobs: of these, or of all."""
    if ids is None:
        return _grouped(tx.execute(_TYPES))
    return _grouped(tx.execute(_types_of(tx.dialect.name), bind_ids(tx, ids)))


_TYPES = (
    select(job_types.c.job_id, job_types.c.type)
    .where(job_types.c.type_index == literal_column("'CURRENT'"))
    .order_by(job_types.c.job_type_id)
)


@cache
def _types_of(engine: str) -> Select[Any]:
    return _TYPES.where(id_in(engine, job_types.c.job_id))


def _dependencies(tx: Tx) -> dict[int, tuple[Dependency, ...]]:
    """Read the dependencies of waiting jobs, with the state of each."""
    rows = tx.execute(_DEPENDENCIES)
    return _grouped((number, Dependency(other, JobState(state), code)) for number, other, state, code in rows)


_DEPENDENCIES = (
    select(job_dependencies.c.job_id, jobs.c.job_id, jobs.c.state, jobs.c.exit_code)
    .select_from(job_dependencies)
    .join(jobs, jobs.c.job_id == job_dependencies.c.job_id_required)
    .where(job_dependencies.c.job_id.in_(_WAITS.order_by(None)))
    .order_by(jobs.c.job_id)
)


def _grouped(rows: Iterable[Any]) -> dict[int, tuple[Any, ...]]:
    groups: defaultdict[int, list[Any]] = defaultdict(list)
    for key, value in rows:
        groups[key].append(value)
    return {key: tuple(values) for key, values in groups.items()}
