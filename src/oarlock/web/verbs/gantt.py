"""The verb behind charts of the past and the future: who has what from when until when."""

from collections.abc import Collection

import msgspec
from msgspec import Struct, field

from oarlock.model.errors import BadRequest, TooMuch
from oarlock.model.job import HOLDS_RESOURCES
from oarlock.store.engine.tx import Tx
from oarlock.store.queries import jobs, listing
from oarlock.store.queries.listing import JobDetails, JobFilter, JobRow
from oarlock.web import views
from oarlock.web.context import RequestContext
from oarlock.web.decode import Instant, VerbRequest
from oarlock.web.identity import Caller
from oarlock.web.policy import RequiredRole
from oarlock.web.registry import verb
from oarlock.web.views import ResourceView

MOST_BARS = 20_000


class GanttRange(VerbRequest):
    """A stretch of time, [since, until)."""

    since: Instant
    until: Instant


class GanttBar(Struct, frozen=True):
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


class GanttChart(Struct, frozen=True):
    """Stays of jobs, and the resources there are."""

    jobs: list[GanttBar]
    resources: list[ResourceView]


@verb(
    "gantt", "GET /gantt",
    role=RequiredRole.USERS, request=GanttRange, response=GanttChart,
    summary="Show which jobs have or will have which resources in a stretch of time.",
)  # fmt: skip
async def gantt(context: RequestContext, request: GanttRange) -> bytes:
    """Return the chart as bytes, encoded in the thread that read it."""
    if request.until <= request.since:
        raise BadRequest("The stretch of time is empty.", hint="`until` comes after `since`.")
    return await context.read(
        lambda tx: _chart(tx, request.since, request.until, context.user), context.key(private=True)
    )


def _chart(tx: Tx, since: int, until: int, caller: Caller) -> bytes:
    lines = [
        (line, stay)
        for line in listing.rows(tx, JobFilter(since=since, until=until), most=views.MOST_LISTED)
        if (stay := _stay(line)) and stay[0] < until and stay[1] > since
    ]
    if len(lines) > MOST_BARS:
        raise TooMuch(f"{len(lines)} jobs are in that time; at most {MOST_BARS} are shown.", hint="Ask for less time.")
    held = _places(tx, [line for line, _ in lines])
    details = listing.details(tx, [line.id for line, _ in lines])
    bars = [_bar(line, stay, held.get(line.id, []), details[line.id], caller) for line, stay in lines]
    return msgspec.json.encode(GanttChart(bars, views.resource_views(tx)))


def _stay(line: JobRow) -> tuple[int, int] | None:
    """Return the (planned) start and stop of a job on its resources; None if there is no start."""
    if line.scheduled is None:
        return None
    return line.scheduled, line.stop or line.scheduled + (line.walltime or 0)


def _places(tx: Tx, lines: Collection[JobRow]) -> dict[int, list[int]]:
    ids = [line.id for line in lines]
    waiting = [line.id for line in lines if line.state not in HOLDS_RESOURCES and not line.stop]
    return {**listing.planned_resources(tx, waiting), **jobs.resources_of(tx, ids)}


def _bar(line: JobRow, stay: tuple[int, int], resources: list[int], details: JobDetails, caller: Caller) -> GanttBar:
    start, stop = stay
    command = details.command if caller.admin or caller.owns(line.user, details.uid) else None
    return GanttBar(
        line.id, line.state, line.user, line.queue, line.name, line.project, line.types, line.submitted,
        start, stop, line.walltime or 0, resources, command, details.kind, details.directory, details.properties,
    )  # fmt: skip
