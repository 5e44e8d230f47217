"""Verbs that show jobs."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from oarlock.lang import where as conditions
from oarlock.model.errors import BadRequest, TooMuch
from oarlock.model.job import JobState
from oarlock.model.plan import Priority
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.job import jobs, listing
from oarlock.store.queries.job.listing import LIVE, JobFilter
from oarlock.web import views
from oarlock.web.context import RequestContext
from oarlock.web.decode import Id, Instant, Text, VerbRequest, Word
from oarlock.web.identity import Caller
from oarlock.web.policy import RequiredRole
from oarlock.web.registry import verb
from oarlock.web.views import EventView, JobLine, JobView, ResourceView

MOST_WHOLE = 10_000
"""How many jobs one list shows with everything that is known of them."""

MOST_OF_PAGE = 1000
"""How many jobs one page of a list shows."""

Order = Literal[
    "id", "-id", "user", "-user", "name", "-name", "project", "-project", "queue", "-queue", "state", "-state",
    "submitted", "-submitted", "start", "-start", "stop", "-stop",
]  # fmt: skip

PAGE_BYTES = 16 * 1024 * 1024
"""How long one answer gets: what is longer is asked for page by page."""


class JobsRequest(VerbRequest):
    """Which jobs; without anything those that are not over. `full`: everything about each.

    `recent`: only among the last so many of the user, or of all. `limit`: so many at most, in an `order`, backwards
    with a `-` before it. `after`: only those that follow the job of that number, as the `next` of the page before says.
    `requires`: only those that wait, or waited, for that job (`-a`).
    """

    ids: list[Id] | None = None
    array: Id | None = None
    user: Word | None = None
    where: Text | None = None
    states: list[JobState] | None = None
    since: Instant | None = None
    until: Instant | None = None
    project: Word | None = None
    queue: Word | None = None
    name: Word | None = None
    node: Word | None = None
    requires: Id | None = None
    recent: Annotated[int, Meta(ge=1, le=100_000)] | None = None
    full: bool = False
    after: Id | None = None
    limit: Annotated[int, Meta(ge=1, le=MOST_OF_PAGE)] | None = None
    order: Order = "id"


class JobsResponse(Struct, frozen=True):
    """Jobs, oldest first or in the order asked for; with `full` each has all fields that `GET /jobs/{id}` shows.

    `next`: the list is longer than an answer may be; ask again with `after` set to this number.
    """

    jobs: list[JobLine]
    next: int | None = None


@verb(
    "jobs.list", "GET /jobs",
    role=RequiredRole.USERS, request=JobsRequest, response=JobsResponse,
    summary="List jobs: by number, array, user, condition, state or time; those that are not over by default.",
)  # fmt: skip
async def listed(context: RequestContext, request: JobsRequest) -> bytes:
    """Return the response as bytes, encoded in the thread that read it: a long list must not block the event loop."""
    which = await _which(context, request)
    caller = context.user
    # What a condition found belongs to the instant at which it was asked: such lists are not shared.
    key = context.key(private=request.full) if request.where is None else None
    hopeless, after = context.core.hopeless, request.after or 0
    if request.limit is not None:
        limit, order = request.limit, request.order
        return await context.read(
            lambda tx: _limited(tx, which, hopeless, order=order, after=request.after, limit=limit), key
        )
    if request.order != "id":
        raise BadRequest("An order needs a `limit`.", hint=f"Ask for at most {MOST_OF_PAGE} at once.")
    response = await context.read(
        lambda tx: listed_jobs(tx, which, caller, hopeless, full=request.full, after=after), key
    )
    if request.ids is None or request.where is not None or not context.has_past:
        return response
    return await _with_past(context, request, which, response)


async def _with_past(context: RequestContext, request: JobsRequest, which: JobFilter, response: bytes) -> bytes:
    """Add the jobs asked for by number that were purged; nothing is read again where none is missing."""
    answer = msgspec.json.decode(response, type=dict[str, Any])
    here = {job["Job_Id"] for job in answer["jobs"]}
    missing = [number for number in request.ids or () if number not in here and number > (request.after or 0)]
    if not missing or answer.get("next"):
        return response
    caller, hopeless = context.user, context.core.hopeless
    past = await context.look_up_past(
        lambda tx: listed_jobs(tx, replace(which, ids=missing), caller, hopeless, full=request.full)
    )
    for part in past:
        answer["jobs"] += msgspec.json.decode(part, type=dict[str, Any])["jobs"]
    answer["jobs"].sort(key=lambda job: job["Job_Id"])
    return msgspec.json.encode(answer) if past else response


async def fulfilling(context: RequestContext, text: str, *, user: str | None = None) -> list[int]:
    """Return the jobs that fulfil a condition; it may name only columns that everybody may see."""
    condition = conditions.check(conditions.parse(text), jobs.VISIBLE)
    return await context.ask(lambda tx: jobs.matching(tx, condition, user=user), ("jobs", text, user))


async def _which(context: RequestContext, request: JobsRequest) -> JobFilter:
    ids: Collection[int] | None = request.ids
    if request.where is not None:
        matching = await fulfilling(context, request.where)
        ids = matching if ids is None else set(ids) & set(matching)
    history = any(value is not None for value in (ids, request.array, request.since, request.until, request.requires))
    states = request.states if request.states is not None or history else LIVE
    return JobFilter(
        ids=ids,
        array_id=request.array,
        user=request.user,
        states=states,
        since=request.since,
        until=request.until,
        project=request.project,
        queue=request.queue,
        name=request.name,
        node=request.node,
        requires=request.requires,
        recent=request.recent,
        sight=context.sight,
    )


def _limited(tx: Tx, which: JobFilter, hopeless: views.Hopeless, *, order: str, after: int | None, limit: int) -> bytes:
    """Write one page of a list; the row beyond it says whether there is another."""
    rows = listing.page(tx, which, order=order, after=after, most=limit + 1)
    more = rows[limit - 1].id if len(rows) > limit else None
    return msgspec.json.encode(JobsResponse(views.as_lines(rows[:limit], hopeless), more))


def listed_jobs(
    tx: Tx, which: JobFilter, caller: Caller, hopeless: views.Hopeless, *, full: bool, after: int = 0
) -> bytes:
    """Read jobs and write the answer, in few queries however many they are."""
    lines = views.job_lines(tx, which, hopeless)
    most = MOST_WHOLE if full else views.MOST_LISTED
    if len(lines) > most:
        raise TooMuch(f"There are more than {most} such jobs.", hint="Ask for fewer: a user, a state, a time.")
    if full:
        return _page(tx, [line.id for line in lines if line.id > after], caller, hopeless)
    return msgspec.json.encode({"jobs": [line for line in lines if line.id > after] if after else lines})


def _page(tx: Tx, ids: Sequence[int], caller: Caller, hopeless: views.Hopeless) -> bytes:
    """Write jobs with everything that is known of them, until the answer is long enough."""
    written: list[bytes] = []
    size, last, more = 0, 0, False
    for view in views.each_whole_job(tx, ids, caller, hopeless):
        text = msgspec.json.encode(view)
        more = bool(written) and size + len(text) > PAGE_BYTES
        if more:
            break
        written.append(text)
        size, last = size + len(text), view.id
    return b'{"jobs":[%b],"next":%b}' % (b",".join(written), b"%d" % last if more else b"null")


class JobByIdRequest(VerbRequest):
    """A job by its number."""

    id: Id


@verb(
    "jobs.show", "GET /jobs/{id}",
    role=RequiredRole.USERS, request=JobByIdRequest, response=JobView,
    summary="Show all that is known of a job; what its owner alone may see is null for others.",
)  # fmt: skip
async def shown(context: RequestContext, request: JobByIdRequest) -> JobView:
    """Return one job, over or not."""
    caller, hopeless = context.user, context.core.hopeless

    def read(tx: Tx) -> JobView:
        context.check_seen(tx, request.id)
        [view] = views.whole_jobs(tx, [request.id], caller, hopeless)
        return view

    return await context.read_past(read)


class JobEventsResponse(Struct, frozen=True):
    """What happened, oldest first."""

    events: list[EventView]


@verb(
    "jobs.events", "GET /jobs/{id}/events",
    role=RequiredRole.USERS, request=JobByIdRequest, response=JobEventsResponse,
    summary="Tell what happened to a job.",
)  # fmt: skip
async def events(context: RequestContext, request: JobByIdRequest) -> JobEventsResponse:
    """Return the events of one job."""
    caller = context.user

    def read(tx: Tx) -> JobEventsResponse:
        context.check_seen(tx, request.id)
        job = jobs.get(tx, request.id)
        own = {request.id} if caller.admin or caller.owns(job.user, job.uid) else ()
        return JobEventsResponse(views.job_events(tx, [request.id], own).get(request.id, []))

    return await context.read_past(read)


class StateIntervalView(Struct, frozen=True):
    """A state, from when, and until when (0: still)."""

    state: JobState
    start: int
    stop: int


class JobHistoryResponse(Struct, frozen=True):
    """The states that a job went through."""

    story: list[StateIntervalView]


@verb(
    "jobs.story", "GET /jobs/{id}/story",
    role=RequiredRole.USERS, request=JobByIdRequest, response=JobHistoryResponse,
    summary="Tell which states a job went through, and when.",
)  # fmt: skip
async def story(context: RequestContext, request: JobByIdRequest) -> JobHistoryResponse:
    """Return the states of one job with their times."""

    def read(tx: Tx) -> JobHistoryResponse:
        context.check_seen(tx, request.id)
        jobs.get(tx, request.id)
        return JobHistoryResponse(
            [StateIntervalView(state, start, stop) for state, start, stop, _ in jobs.state_history(tx, request.id)]
        )

    return await context.read_past(read)


class TermView(Struct, frozen=True):
    """One term of a priority: a factor from 0 to 1, its weight, what both make, and what the factor comes from."""

    name: str
    factor: float
    weight: float
    value: float
    says: str


class PriorityView(Struct, frozen=True):
    """How much speaks for a job in its queue; the highest is planned first."""

    total: float
    terms: list[TermView]


def _priority(priority: Priority | None) -> PriorityView | None:
    if priority is None:
        return None
    terms = [TermView(term.name, term.factor, term.weight, term.value, term.says) for term in priority.terms]
    return PriorityView(priority.total, terms)


class WaitReasonResponse(Struct, frozen=True):
    """Why a job waits: a sentence, when it will start, what is in its way, and what smaller request is not.

    In queues that weigh their jobs also the job's priority, and every term of it.
    """

    says: str
    start: int | None
    obstacle: str
    smaller: str | None
    priority: PriorityView | None = None


@verb(
    "jobs.why", "GET /jobs/{id}/why",
    role=RequiredRole.USERS, request=JobByIdRequest, response=WaitReasonResponse,
    summary="Say why a job does not run yet, and when it will.",
)  # fmt: skip
async def why(context: RequestContext, request: JobByIdRequest) -> WaitReasonResponse:
    """Return the scheduler's explanation."""

    def check(tx: Tx) -> None:
        context.check_seen(tx, request.id)
        jobs.get(tx, request.id)

    await context.read(check)
    reason = await context.core.why(request.id, user=context.reader)
    return WaitReasonResponse(
        reason.says, reason.start, str(reason.obstacle), reason.smaller, _priority(reason.priority)
    )


class JobResourcesResponse(Struct, frozen=True):
    """Resources, by number."""

    resources: list[ResourceView]


@verb(
    "jobs.resources", "GET /jobs/{id}/resources",
    role=RequiredRole.USERS, request=JobByIdRequest, response=JobResourcesResponse,
    summary="List the resources that a job has or had; those that were removed since are left out.",
)  # fmt: skip
async def resources(context: RequestContext, request: JobByIdRequest) -> JobResourcesResponse:
    """Return the resources of one job."""

    def read(tx: Tx) -> JobResourcesResponse:
        context.check_seen(tx, request.id)
        jobs.get(tx, request.id)
        held = jobs.resources_of(tx, [request.id]).get(request.id, [])
        return JobResourcesResponse(views.resource_views(tx, list(listing.addresses(tx, held))))

    return await context.read_past(read)
