"""Verbs about what jobs held and used: of some jobs so far or in all, and of users, projects and queues by day."""

import asyncio
from collections.abc import Collection, Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from oarlock.measure.collect.questions import MeasuredSoFar
from oarlock.measure.live import MeasuredUsage
from oarlock.model.errors import OarlockError, UnknownJob
from oarlock.model.summary import (
    DayUsage,
    MeasuredJob,
    SummaryDetail,
    UsageTotals,
    least_start,
    offered_by,
    parse_detail,
    totals,
)
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.job import agent_jobs, job_pages
from oarlock.store.queries.usage import energy, summaries
from oarlock.store.queries.usage.summaries import SummarisedJob, Summary
from oarlock.web import decode
from oarlock.web.context import RequestContext
from oarlock.web.decode import Id, Instant, VerbRequest, Word
from oarlock.web.policy import RequiredRole
from oarlock.web.registry import verb
from oarlock.web.verbs.measurements.agents import number_of

MOST_JOBS = 1000
"""Of how many jobs the usage is told at once."""

_ASK_SECONDS = 2.0  # for the newest sums of jobs that run; a collector that hangs costs only these
_DAY = 86_400
_MONTH = 30 * _DAY
_MILLI = 1000
_MOST_ROWS = 10_000
_measured = msgspec.json.Decoder(dict[int, MeasuredJob])


class UsageView(Struct, frozen=True, kw_only=True):
    """What a job used so far or, once it is over (`final`), in all; null is "not known", never 0.

    Memory is added up over the job's nodes. `memory_bytes` is all that is charged to the job; its own part is anonymous
    and shared memory, the rest is mostly page cache. Peaks and means of own memory and cache are those of samples.
    `seconds` is how long it ran, `walltime` how long it may run, `cpus` and `memory_limit_bytes` what it may use,
    `cpu_seconds_offered` what its CPUs could have given in that time. GPUs count for the time that was measured.
    `coverage` is the part of the run time that samples stand for, `energy_coverage` the part in which its nodes had a
    meter. `at` is when it was measured (epoch seconds, 0: never).
    """

    job_id: int
    final: bool = False
    at: float = 0
    nodes: tuple[str, ...] = ()
    seconds: float | None = None
    walltime: int | None = None
    cpus: int | None = None
    cpu_seconds: float | None = None
    cpu_seconds_offered: float | None = None
    memory_bytes: int | None = None
    memory_own_bytes: int | None = None
    memory_cache_bytes: int | None = None
    memory_own_mean_bytes: int | None = None
    memory_cache_mean_bytes: int | None = None
    memory_own_peak_bytes: int | None = None
    memory_peak_bytes: int | None = None
    memory_limit_bytes: int | None = None
    gpus: int | None = None
    gpu_seconds: float | None = None
    gpu_busy_seconds: float | None = None
    read_bytes: int | None = None
    written_bytes: int | None = None
    energy_joules: float | None = None
    energy_methods: tuple[str, ...] = ()
    energy_coverage: float | None = None
    samples: int = 0
    coverage: float | None = None


_TOTALS = [name for name in UsageTotals.__struct_fields__ if name in UsageView.__struct_fields__]
_NOW = ("memory_bytes", "memory_own_bytes", "memory_cache_bytes")
_COUNTED = ("cpu_seconds", "memory_own_peak_bytes", "memory_peak_bytes", "read_bytes", "written_bytes")
_HELD = ("cpus", "memory_limit_bytes")


class UsageRequest(VerbRequest):
    """Which jobs."""

    ids: Annotated[list[Id], Meta(min_length=1, max_length=MOST_JOBS)]


class JobUsageRequest(VerbRequest):
    """A job. `cluster`: of that cluster, whose agents send here, by the number it has there."""

    id: Id
    cluster: Word | None = None


class UsageResponse(Struct, frozen=True):
    """What jobs used, by number; jobs that do not exist are not in it."""

    jobs: list[UsageView]


@verb(
    "jobs.usage", "GET /jobs/{id}/usage",
    role=RequiredRole.USERS, request=JobUsageRequest, response=UsageView,
    summary="Show what a job used so far: CPU time, memory, I/O, GPUs, energy, and of how much.",
)  # fmt: skip
async def job_usage(context: RequestContext, request: JobUsageRequest) -> UsageView:
    """Return what samples and reports say of one job."""
    number = request.id
    if request.cluster is not None:
        number = await context.read(lambda tx: number_of(tx, request.id, str(request.cluster)))
    views = await _views(context, [number])
    if not views:
        raise UnknownJob(request.id)
    return views[0]


@verb(
    "usage.list", "GET /usage",
    role=RequiredRole.USERS, request=UsageRequest, response=UsageResponse,
    summary="Show what several jobs used so far, and of how much.",
)  # fmt: skip
async def usage_of_jobs(context: RequestContext, request: UsageRequest) -> UsageResponse:
    """Return what samples and reports say of jobs."""
    return UsageResponse(await _views(context, request.ids))


async def _views(context: RequestContext, wanted: Collection[int]) -> list[UsageView]:
    running = {job: now for job in wanted if (now := context.core.live.usage(job)) is not None}
    measured = await _so_far(context, list(running)) if running else {}

    def read(tx: Tx) -> list[UsageView]:
        ids = job_pages.seen(tx, context.sight, wanted) | _own_elsewhere(context, tx, wanted)
        rows = {row.job_id: row for row in summaries.of_jobs(tx, ids)}
        views = [
            _view(job, rows.get(job.id), running.get(job.id), measured.get(job.id))
            for job in summaries.summarised_jobs(tx, ids)
        ]
        return _with_energy(tx, views)

    return await context.read(read)


def _own_elsewhere(context: RequestContext, tx: Tx, wanted: Collection[int]) -> set[int]:
    """Return those of these jobs that other resource managers run for the caller."""
    others = agent_jobs.by_number(tx, wanted)
    return {number for number, job in others.items() if context.user.owns(job.user, job.uid)}


async def _so_far(context: RequestContext, jobs: list[int]) -> Mapping[int, MeasuredJob]:
    """Ask the collector what samples said so far; without an answer the last summaries have to do."""
    try:
        async with asyncio.timeout(_ASK_SECONDS):
            return _measured.decode(await context.core.collector.ask(MeasuredSoFar(jobs)))
    except (OarlockError, TimeoutError):
        return {}


def _view(
    job: SummarisedJob, row: Summary | None, now: MeasuredUsage | None, measured: MeasuredJob | None
) -> UsageView:
    """Return the last sample of a job that runs, with what is known of all before; else what its summary says."""
    walltime = job.walltime or None
    detail = SummaryDetail() if row is None else parse_detail(row.detail)
    if now is None:
        used = totals(detail)
        at = 0 if row is None else row.date
        return UsageView(job_id=job.id, final=job.ended and row is not None, at=at, walltime=walltime, **_fields(used))
    if measured is not None:
        detail.measured = measured.nodes
    start = least_start(job.start, detail.measured) if job.id >= agent_jobs.FIRST_NUMBER else job.start
    ran = max(0.0, now.at - start) if job.start else None
    used = totals(detail, ran=ran)
    view = UsageView(job_id=job.id, at=now.at, walltime=walltime, **_fields(used))
    return replace(view, **_of_last_sample(view, now, ran))


def _fields(used: UsageTotals) -> dict[str, Any]:
    return {name: getattr(used, name) for name in _TOTALS}


def _of_last_sample(view: UsageView, now: MeasuredUsage, ran: float | None) -> dict[str, Any]:
    """Return what the last sample knows better; counters of earlier attempts are in the view already."""
    changes: dict[str, Any] = {name: _whole(getattr(now, name)) for name in _NOW}
    for name in _COUNTED:
        value = getattr(now, name)
        if value is not None and value > (getattr(view, name) or -1):
            changes[name] = value if name == "cpu_seconds" else int(value)
    changes |= {name: int(value) for name in _HELD if (value := getattr(now, name)) is not None}
    if not view.nodes:
        changes |= {"nodes": now.nodes, "seconds": ran}
        if now.cpus is not None and ran is not None:
            row = {"cpus": now.cpus, "seconds": ran, "cpu_seconds_total": now.cpu_seconds or 0.0}
            changes["cpu_seconds_offered"] = offered_by(row)
    return changes


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


def _with_energy(tx: Tx, views: list[UsageView]) -> list[UsageView]:
    """Add what the energy ledger has of jobs."""
    ids = [view.job_id for view in views]
    amounts: dict[int, tuple[int, float]] = {}
    for share in energy.days_of_jobs(tx, ids):
        before = amounts.get(share.job_id, (0, 0.0))
        amounts[share.job_id] = before[0] + share.energy, before[1] + share.seconds
    if not amounts:
        return views
    methods = energy.methods_of_jobs(tx, list(amounts))
    return [
        replace(view, **_energy_fields(view, *amounts[view.job_id], methods.get(view.job_id, ())))
        if view.job_id in amounts
        else view
        for view in views
    ]


def _energy_fields(view: UsageView, amount: int, seconds: float, methods: tuple[str, ...]) -> dict[str, Any]:
    ran = (view.seconds or 0.0) * len(view.nodes)
    coverage = min(seconds / ran, 1.0) if ran else None
    return {"energy_joules": amount / _MILLI, "energy_methods": methods, "energy_coverage": coverage}


DayGrouping = Literal["day", "user", "project", "queue"]


class UsageDaysRequest(VerbRequest):
    """Days (UTC) between two instants, by default the last thirty; and by what they are told.

    `user` and `project`: only theirs; a user who is not an administrator sees their own jobs whatever is named.
    """

    since: Instant | None = None
    until: Instant | None = None
    user: Word | None = None
    project: Word | None = None
    by: Annotated[list[DayGrouping], Meta(max_length=4)] = msgspec.field(default_factory=lambda: ["day"])


class UsageDaysRow(Struct, frozen=True):
    """What the jobs of one group held and used. `group` names the day as epoch seconds at midnight."""

    group: dict[str, str | int]
    usage: DayUsage


class UsageDaysResponse(Struct, frozen=True):
    """Sums of days. `own`: only the caller's own jobs, and those of projects it leads, are in it."""

    since: int
    until: int
    by: list[str]
    rows: list[UsageDaysRow]
    own: bool


@verb(
    "usage.days", "GET /usage/days",
    role=RequiredRole.USERS, request=UsageDaysRequest, response=UsageDaysResponse,
    summary="Add up what jobs held and used by day, user, project or queue; those of others for staff and leaders.",
)  # fmt: skip
async def usage_days(context: RequestContext, request: UsageDaysRequest) -> UsageDaysResponse:
    """Add up the days that the interval touches."""
    since, until = decode.interval(request.since, request.until, now=context.now, length=_MONTH)
    decode.check_groups(request.by)
    first, last = since // _DAY * _DAY, -(-max(until, since + 1) // _DAY) * _DAY
    groups = await context.read(
        lambda tx: summaries.usage_by(
            tx,
            request.by,
            since=first,
            until=last,
            user=request.user,
            project=request.project,
            sight=context.advised,
            most=_MOST_ROWS,
        )
    )
    rows = [UsageDaysRow(dict(zip(request.by, row.group, strict=True)), row.usage) for row in groups]
    return UsageDaysResponse(first, last, list(request.by), rows, context.only_own(request.project))
