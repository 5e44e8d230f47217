"""Verbs that show jobs."""

import msgspec
from msgspec import Struct

from oarlock.lang import where as conditions
from oarlock.model.errors import TooMuch
from oarlock.model.job import JobState
from oarlock.store import jobs
from oarlock.store.listing import LIVE, Which
from oarlock.store.tx import Tx
from oarlock.web import views
from oarlock.web.call import Call
from oarlock.web.policy import May
from oarlock.web.reading import Asked, Id, Instant, Text, Word
from oarlock.web.verb import verb
from oarlock.web.views import JobLine, JobView
from oarlock.web.who import Who

MOST_WHOLE = 10_000
"""How many jobs one answer shows with everything that is known of them."""


class ListJobs(Asked):
    """Which jobs; without anything those that are not over. `full`: everything about each."""

    ids: list[Id] | None = None
    array: Id | None = None
    user: Word | None = None
    where: Text | None = None
    states: list[JobState] | None = None
    since: Instant | None = None
    until: Instant | None = None
    full: bool = False


class Jobs(Struct, frozen=True):
    """Jobs, oldest first."""

    jobs: list[JobLine]


@verb(
    "jobs.list", "GET /jobs", may=May.USERS, asks=ListJobs, answers=Jobs,
    says="List jobs: by number, array, user, condition, state or time; those that are not over by default.",
)  # fmt: skip
async def listed(call: Call, asked: ListJobs) -> bytes:
    """Give the answer as bytes: made where it was read, so that a long list does not hold up the event loop."""
    which = await _which(call, asked)
    who = call.who
    return await call.read(lambda tx: _listed(tx, which, who, full=asked.full))


async def _which(call: Call, asked: ListJobs) -> Which:
    ids = asked.ids
    if asked.where is not None:
        condition = conditions.check(conditions.parse(asked.where), jobs.VISIBLE)
        found = await call.ask(lambda tx: jobs.matching(tx, condition))
        ids = found if ids is None else sorted(set(ids) & set(found))
    history = any(one is not None for one in (ids, asked.array, asked.since, asked.until))
    states = asked.states if asked.states is not None or history else LIVE
    return Which(
        ids=ids, array_id=asked.array, user=asked.user, states=states, since=asked.since, until=asked.until
    )  # fmt: skip


def _listed(tx: Tx, which: Which, who: Who, *, full: bool) -> bytes:
    lines = views.job_lines(tx, which)
    if len(lines) > (MOST_WHOLE if full else views.MOST_LISTED):
        raise TooMuch(f"There are over {len(lines) - 1} such jobs.", hint="Ask for fewer: a user, a state, a time.")
    shown: list[JobLine] | list[JobView] = lines
    if full:
        shown = views.whole_jobs(tx, [line.id for line in lines], who)
    return msgspec.json.encode({"jobs": shown})


class OneJob(Asked):
    """A job by its number."""

    id: Id


@verb(
    "jobs.show", "GET /jobs/{id}", may=May.USERS, asks=OneJob, answers=JobView,
    says="Show all that is known of a job; what its owner alone may see is null for others.",
)  # fmt: skip
async def shown(call: Call, asked: OneJob) -> JobView:
    """Give one job, over or not."""
    who = call.who
    [view] = await call.read(lambda tx: views.whole_jobs(tx, [asked.id], who))
    return view
