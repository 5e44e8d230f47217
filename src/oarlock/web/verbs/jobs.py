"""Verbs that show jobs."""

from collections.abc import Collection, Sequence

import msgspec
from msgspec import Struct

from oarlock.lang import where as conditions
from oarlock.model.errors import TooMuch
from oarlock.model.job import JobState
from oarlock.model.plan import Priority
from oarlock.store.engine.tx import Tx
from oarlock.store.queries import jobs, listing
from oarlock.store.queries.listing import LIVE, JobFilter
from oarlock.web import views
from oarlock.web.context import Call
from oarlock.web.decode import Asked, Id, Instant, Text, Word
from oarlock.web.identity import Who
from oarlock.web.policy import May
from oarlock.web.registry import verb
from oarlock.web.views import EventView, JobLine, JobView, ResourceView

MOST_WHOLE = 10_000
"""How many jobs one list shows with everything that is known of them."""

PAGE_BYTES = 16 * 1024 * 1024
"""How long one answer gets: what is longer is asked for page by page."""


class ListJobs(Asked):
    """Which jobs; without anything those that are not over. `full`: everything about each.

    `after`: only those with higher numbers, as the `next` of the page before says.
    """

    ids: list[Id] | None = None
    array: Id | None = None
    user: Word | None = None
    where: Text | None = None
    states: list[JobState] | None = None
    since: Instant | None = None
    until: Instant | None = None
    full: bool = False
    after: Id | None = None


class Jobs(Struct, frozen=True):
    """Jobs, oldest first; with `full` each has all the fields that `GET /jobs/{id}` shows.

    `next`: the list is longer than an answer may be; ask again with `after` set to this number.
    """

    jobs: list[JobLine]
    next: int | None = None


@verb(
    "jobs.list", "GET /jobs", may=May.USERS, asks=ListJobs, answers=Jobs,
    says="List jobs: by number, array, user, condition, state or time; those that are not over by default.",
)  # fmt: skip
async def listed(call: Call, asked: ListJobs) -> bytes:
    """Give the answer as bytes: made where it was read, so that a long list does not hold up the event loop."""
    which = await _which(call, asked)
    who = call.who
    # What a condition found belongs to the instant at which it was asked: such lists are not shared.
    key = call.key(private=asked.full) if asked.where is None else None
    hopeless, after = call.core.hopeless, asked.after or 0
    return await call.read(lambda tx: listed_jobs(tx, which, who, hopeless, full=asked.full, after=after), key)


async def fulfilling(call: Call, text: str, *, user: str | None = None) -> list[int]:
    """Give the jobs that fulfil a condition; it may name only what everybody may see of jobs."""
    condition = conditions.check(conditions.parse(text), jobs.VISIBLE)
    return await call.ask(lambda tx: jobs.matching(tx, condition, user=user), ("jobs", text, user))


async def _which(call: Call, asked: ListJobs) -> JobFilter:
    ids: Collection[int] | None = asked.ids
    if asked.where is not None:
        found = await fulfilling(call, asked.where)
        ids = found if ids is None else set(ids) & set(found)
    history = any(one is not None for one in (ids, asked.array, asked.since, asked.until))
    states = asked.states if asked.states is not None or history else LIVE
    return JobFilter(
        ids=ids, array_id=asked.array, user=asked.user, states=states, since=asked.since, until=asked.until
    )


def listed_jobs(tx: Tx, which: JobFilter, who: Who, hopeless: views.Hopeless, *, full: bool, after: int = 0) -> bytes:
    """Read jobs and write the answer, in few queries however many they are."""
    lines = views.job_lines(tx, which, hopeless)
    most = MOST_WHOLE if full else views.MOST_LISTED
    if len(lines) > most:
        raise TooMuch(f"There are more than {most} such jobs.", hint="Ask for fewer: a user, a state, a time.")
    if full:
        return _page(tx, [line.id for line in lines if line.id > after], who, hopeless)
    return msgspec.json.encode({"jobs": [line for line in lines if line.id > after] if after else lines})


def _page(tx: Tx, ids: Sequence[int], who: Who, hopeless: views.Hopeless) -> bytes:
    """Write jobs with everything that is known of them, until the answer is long enough."""
    written: list[bytes] = []
    size, last, more = 0, 0, False
    for view in views.each_whole_job(tx, ids, who, hopeless):
        text = msgspec.json.encode(view)
        more = bool(written) and size + len(text) > PAGE_BYTES
        if more:
            break
        written.append(text)
        size, last = size + len(text), view.id
    return b'{"jobs":[%b],"next":%b}' % (b",".join(written), b"%d" % last if more else b"null")


class OneJob(Asked):
    """A job by its number."""

    id: Id


@verb(
    "jobs.show", "GET /jobs/{id}", may=May.USERS, asks=OneJob, answers=JobView,
    says="Show all that is known of a job; what its owner alone may see is null for others.",
)  # fmt: skip
async def shown(call: Call, asked: OneJob) -> JobView:
    """Give one job, over or not."""
    who, hopeless = call.who, call.core.hopeless
    [view] = await call.read(lambda tx: views.whole_jobs(tx, [asked.id], who, hopeless))
    return view


class Events(Struct, frozen=True):
    """What happened, oldest first."""

    events: list[EventView]


@verb(
    "jobs.events", "GET /jobs/{id}/events", may=May.USERS, asks=OneJob, answers=Events,
    says="Tell what happened to a job.",
)  # fmt: skip
async def events(call: Call, asked: OneJob) -> Events:
    """Give the events of one job."""
    who = call.who

    def read(tx: Tx) -> Events:
        job = jobs.get(tx, asked.id)
        own = {asked.id} if who.admin or who.owns(job.user, job.uid) else ()
        return Events(views.job_events(tx, [asked.id], own).get(asked.id, []))

    return await call.read(read)


class Chapter(Struct, frozen=True):
    """A state, from when, and until when (0: still)."""

    state: JobState
    start: int
    stop: int


class Story(Struct, frozen=True):
    """The states that a job went through."""

    story: list[Chapter]


@verb(
    "jobs.story", "GET /jobs/{id}/story", may=May.USERS, asks=OneJob, answers=Story,
    says="Tell which states a job went through, and when.",
)  # fmt: skip
async def story(call: Call, asked: OneJob) -> Story:
    """Give the story of one job."""

    def read(tx: Tx) -> Story:
        jobs.get(tx, asked.id)
        return Story([Chapter(state, start, stop) for state, start, stop, _ in jobs.state_history(tx, asked.id)])

    return await call.read(read)


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


def _priority(found: Priority | None) -> PriorityView | None:
    if found is None:
        return None
    terms = [TermView(term.name, term.factor, term.weight, term.value, term.says) for term in found.terms]
    return PriorityView(found.total, terms)


class Reason(Struct, frozen=True):
    """Why a job waits: a sentence, when it will start, what is in its way, and what smaller request is not.

    In queues that weigh their jobs also the job's priority, and every term of it.
    """

    says: str
    start: int | None
    obstacle: str
    smaller: str | None
    priority: PriorityView | None = None


@verb(
    "jobs.why", "GET /jobs/{id}/why", may=May.USERS, asks=OneJob, answers=Reason,
    says="Say why a job does not run yet, and when it will.",
)  # fmt: skip
async def why(call: Call, asked: OneJob) -> Reason:
    """Ask the scheduler."""
    await call.read(lambda tx: jobs.get(tx, asked.id))
    reason = await call.core.why(asked.id, user=call.reader)
    return Reason(reason.says, reason.start, str(reason.obstacle), reason.smaller, _priority(reason.priority))


class Held(Struct, frozen=True):
    """Resources, by number."""

    resources: list[ResourceView]


@verb(
    "jobs.resources", "GET /jobs/{id}/resources", may=May.USERS, asks=OneJob, answers=Held,
    says="List the resources that a job has or had; those that were removed since are left out.",
)  # fmt: skip
async def resources(call: Call, asked: OneJob) -> Held:
    """Give the resources of one job."""

    def read(tx: Tx) -> Held:
        jobs.get(tx, asked.id)
        held = jobs.resources_of(tx, [asked.id]).get(asked.id, [])
        return Held(views.resource_views(tx, list(listing.addresses(tx, held))))

    return await call.read(read)
