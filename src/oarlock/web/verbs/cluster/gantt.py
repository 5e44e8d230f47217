"""The verb behind charts of the past and the future: who has what from when until when."""

from collections.abc import Collection

import msgspec
from msgspec import Struct, field, structs

from oarlock.model.errors import BadRequest, TooMuch
from oarlock.model.job import HOLDS_RESOURCES
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.cluster import properties, resources
from oarlock.store.queries.job import job_pages, jobs, listing
from oarlock.store.queries.job.listing import JobDetails, JobRow
from oarlock.store.queries.site import administration
from oarlock.web import views
from oarlock.web.context import RequestContext
from oarlock.web.decode import Instant, Text, VerbRequest
from oarlock.web.identity import Caller
from oarlock.web.policy import RequiredRole
from oarlock.web.registry import verb
from oarlock.web.verbs.cluster.overview import matching_resources
from oarlock.web.views import ResourceView

MOST_BARS = 20_000


class GanttRange(VerbRequest):
    """A stretch of time, [since, until). Without `resources` the chart has their numbers only, by node.

    Without `texts` the bars have neither command, directory nor properties, which are long and no chart shows.
    `where`: only resources that fulfil a condition, and the jobs that have some of them.
    """

    since: Instant
    until: Instant
    resources: bool = True
    texts: bool = True
    where: Text | None = None


class GanttBar(Struct, frozen=True, gc=False):
    """The time of a job on its resources: [start, stop), planned or past. Without the permission `command` is null."""

    id: int = field(name="Job_Id")
    state: str
    owner: str
    queue: str
    name: str | None
    project: str
    types: list[str]
    submitted: int = field(name="submissionTime")
    start: int = field(name="startTime")
    stop: int = field(name="stopTime")
    walltime: int
    resources: list[int]
    command: str | None
    kind: str = field(name="jobType")
    directory: str = field(name="launchingDirectory")
    properties: str


class StateBar(Struct, frozen=True, gc=False):
    """The time during which a resource was not Alive: [start, stop); it stops with the chart if it still is not."""

    resource: int = field(name="resource_id")
    state: str
    start: int = field(name="startTime")
    stop: int = field(name="stopTime")


class PauseBar(Struct, frozen=True, gc=False):
    """The time during which a job was suspended: [start, stop)."""

    id: int = field(name="Job_Id")
    start: int = field(name="startTime")
    stop: int = field(name="stopTime")


class WindowBar(Struct, frozen=True, gc=False):
    """The time of a maintenance: [start, stop); no job runs on its resources then."""

    name: str
    start: int = field(name="startTime")
    stop: int = field(name="stopTime")
    resources: list[int]


class GanttChart(Struct, frozen=True):
    """Stays of jobs, the resources there are, and when which of them, or of those there were, was not Alive.

    Also the pauses of jobs that were suspended, and the maintenance windows. `nodes` has the numbers of the resources
    of type default, by node.
    """

    jobs: list[GanttBar]
    resources: list[ResourceView]
    states: list[StateBar]
    pauses: list[PauseBar]
    windows: list[WindowBar]
    nodes: dict[str, list[int]]


@verb(
    "gantt", "GET /gantt",
    role=RequiredRole.USERS, request=GanttRange, response=GanttChart,
    summary="Show which jobs have or will have which resources in a stretch of time, and which resources were away.",
)  # fmt: skip
async def gantt(context: RequestContext, request: GanttRange) -> bytes:
    """Return the chart as bytes, encoded in the thread that read it."""
    if request.until <= request.since:
        raise BadRequest("The stretch of time is empty.", hint="`until` comes after `since`.")
    matching = await matching_resources(context, request.where)
    chosen = None if matching is None else frozenset(matching)
    return await context.read(lambda tx: _chart(tx, request, context, chosen), context.key(private=True))


def _chart(tx: Tx, request: GanttRange, context: RequestContext, chosen: frozenset[int] | None) -> bytes:
    caller, now = context.user, context.now
    since, until = request.since, request.until
    charted = listing.charted(tx, since, until, most=MOST_BARS)
    lines = [(line, stay) for line in charted if (stay := _stay(line)) and stay[0] < until and stay[1] > since]
    if len(charted) > MOST_BARS:
        raise TooMuch(f"More than {MOST_BARS} jobs are in that time; no more are shown.", hint="Ask for less time.")
    held = _places(tx, [line for line, _ in lines])
    if chosen is not None:
        lines = [(line, stay) for line, stay in lines if not chosen.isdisjoint(held.get(line.id, ()))]
    details = listing.details(tx, [line.id for line, _ in lines]) if request.texts else {}
    bars = [_bar(line, stay, held.get(line.id, []), details.get(line.id, _NO_TEXTS), caller) for line, stay in lines]
    seen = job_pages.seen(tx, context.sight, [bar.id for bar in bars])
    bars = [bar if bar.id in seen else _without_name(bar) for bar in bars]
    return msgspec.json.encode(
        GanttChart(
            bars,
            views.resource_views(tx, chosen) if request.resources else [],
            _states(tx, since, until),
            [PauseBar(*pause) for pause in jobs.pauses(tx, [bar.id for bar in bars if bar.id], now=now)],
            _windows(tx, since, until),
            resources.numbers_by_node(tx, chosen),
        )
    )


def _windows(tx: Tx, since: int, until: int) -> list[WindowBar]:
    windows = [window for window in administration.all_maintenance(tx, now=since) if window.start < until]
    if not windows:
        return []
    types = properties.types(tx)
    return [
        WindowBar(
            window.name, window.start, window.stop, list(administration.resources_of_window(tx, window.where, types))
        )
        for window in windows
    ]


def _states(tx: Tx, since: int, until: int) -> list[StateBar]:
    intervals = resources.states_between(tx, since, until, most=MOST_BARS + 1)
    if len(intervals) > MOST_BARS:
        raise TooMuch(
            f"The states of resources changed more than {MOST_BARS} times in that time.", hint="Ask for less time."
        )
    return [StateBar(number, state, start, stop) for number, start, stop, state in intervals]


def _stay(line: JobRow) -> tuple[int, int] | None:
    """Return the (planned) start and stop of a job on its resources; None if there is no start."""
    if line.scheduled is None:
        return None
    return line.scheduled, line.stop or line.scheduled + (line.walltime or 0)


def _places(tx: Tx, lines: Collection[JobRow]) -> dict[int, list[int]]:
    ids = [line.id for line in lines]
    waiting = [line.id for line in lines if line.state not in HOLDS_RESOURCES and not line.stop]
    return {**listing.planned_resources(tx, waiting), **jobs.resources_of(tx, ids)}


def _without_name(bar: GanttBar) -> GanttBar:
    """Return the bar of a job that the caller does not see: that something is there, and for how long."""
    return structs.replace(
        bar, id=0, owner="", queue="", name=None, project="", types=[], submitted=0, command=None, directory="",
        properties="",
    )  # fmt: skip


_NO_TEXTS = JobDetails(None, "", "", "", None)


def _bar(line: JobRow, stay: tuple[int, int], resources: list[int], details: JobDetails, caller: Caller) -> GanttBar:
    start, stop = stay
    command = details.command if caller.staff or caller.owns(line.user, details.uid) else None
    return GanttBar(
        line.id, line.state, line.user, line.queue, line.name, line.project, line.types, line.submitted,
        start, stop, line.walltime or 0, resources, command, details.kind, details.directory, details.properties,
    )  # fmt: skip
