"""Verbs that act on jobs: end, hold, let go on. Each job is answered for itself."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated

from msgspec import Meta, Struct, structs

from oarlock.model.errors import BadRequest, Forbidden, OarlockError, UnknownArray, UnknownJob
from oarlock.model.job import JobState
from oarlock.store.queries import jobs, listing
from oarlock.store.queries.listing import LIVE, JobFilter, JobRow
from oarlock.web import views
from oarlock.web.context import Call
from oarlock.web.core import Answer
from oarlock.web.decode import Asked, Id, Text
from oarlock.web.policy import May, Power
from oarlock.web.registry import VERBS, verb
from oarlock.web.verbs.jobs import fulfilling

EXTERMINATE = Power("jobs.exterminate", May.ADMINS)
_MOST = 100_000


class SomeJobs(Asked):
    """Jobs by number, by array, or by a condition: exactly one of them. A condition finds one's own jobs only."""

    ids: Annotated[list[Id], Meta(max_length=_MOST)] | None = None
    array: Id | None = None
    where: Text | None = None


class Ending(SomeJobs):
    """How jobs end: killed, told to write a checkpoint, or sent a signal."""

    checkpoint: bool = False
    signal: Annotated[int, Meta(ge=1, le=64)] | None = None
    exterminate: bool = False


class Holding(SomeJobs):
    """Whether jobs that run are stopped as well."""

    running: bool = False


class JobAnswer(Struct, frozen=True, omit_defaults=True):
    """What became of one job; `kind` names the refusal when it was not done, `hint` is the way out."""

    job_id: int
    done: bool
    says: str
    kind: str = ""
    hint: str = ""


class JobAnswers(Struct, frozen=True):
    """An answer a job, in the order in which they were asked for."""

    jobs: list[JobAnswer]


Action = Callable[[Sequence[int]], Awaitable[Sequence[Answer]]]
Needs = Callable[[JobRow], Power]


@verb(
    "jobs.delete", "POST /jobs/delete", may=May.OWNERS, asks=Ending, answers=JobAnswers,
    says="End jobs, or send them their checkpoint signal or any other.",
)  # fmt: skip
async def delete(call: Call, asked: Ending) -> JobAnswers:
    """Do one of the four: kill, give up (administrators), checkpoint, signal."""
    if sum((asked.checkpoint, asked.signal is not None, asked.exterminate)) > 1:
        raise BadRequest("A checkpoint, a signal and a kill are three requests.", hint="Ask for one of them.")
    if asked.exterminate:
        call.demand(EXTERMINATE)

    async def end(ids: Sequence[int]) -> Sequence[Answer]:
        core, by = call.core, call.who.name
        if asked.checkpoint:
            return await core.checkpoint(ids, by=by)
        if asked.signal is not None:
            return await core.signal(ids, asked.signal, by=by)
        return await core.kill(ids, by=by, exterminate=asked.exterminate)

    return await _act(call, asked, end, lambda _: VERBS["jobs.delete"])


@verb(
    "jobs.hold", "POST /jobs/hold", may=May.OWNERS, asks=Holding, answers=JobAnswers,
    says="Keep waiting jobs from starting; with `running`, stop jobs that run.",
)  # fmt: skip
async def hold(call: Call, asked: Holding) -> JobAnswers:
    """Hold jobs; to stop running ones is a power of its own."""
    needs = call.site.suspending if asked.running else VERBS["jobs.hold"]

    async def keep(ids: Sequence[int]) -> Sequence[Answer]:
        return await call.core.hold(ids, by=call.who.name, running=asked.running)

    return await _act(call, asked, keep, lambda _: needs)


@verb(
    "jobs.resume", "POST /jobs/resume", may=May.OWNERS, asks=SomeJobs, answers=JobAnswers,
    says="Let jobs that are held or stopped go on.",
)  # fmt: skip
async def resume(call: Call, asked: SomeJobs) -> JobAnswers:
    """Resume jobs; what ran and was stopped needs the power to stop it."""

    def needs(line: JobRow) -> Power:
        return call.site.suspending if line.state == JobState.SUSPENDED else VERBS["jobs.resume"]

    async def go_on(ids: Sequence[int]) -> Sequence[Answer]:
        return await call.core.resume(ids, by=call.who.name)

    return await _act(call, asked, go_on, needs)


async def _act(call: Call, asked: SomeJobs, action: Action, needs: Needs) -> JobAnswers:
    """Do it to those jobs that the caller may do it to, and answer for each."""

    async def act() -> JobAnswers:
        ids = await _chosen(call, asked)
        lines = {line.id: line for line in await _lines(call, JobFilter(ids=ids))}
        uids = {} if call.who.admin else await call.read(lambda tx: jobs.uids(tx, ids))
        answers: dict[int, JobAnswer] = {}
        for number in ids:
            if refusal := _refusal(call, number, lines.get(number), needs, uids.get(number)):
                answers[number] = JobAnswer(number, False, str(refusal), type(refusal).__name__, refusal.hint)
        if allowed := [number for number in ids if number not in answers]:
            for one in await action(allowed):
                answers[one.job_id] = JobAnswer(one.job_id, one.done, one.says, one.kind, one.hint)
        return JobAnswers([answers[number] for number in ids])

    def about(answers: JobAnswers) -> Struct | None:
        done = [answer.job_id for answer in answers.jobs if answer.done]
        return structs.replace(asked, ids=done) if done else None

    answers = await call.act(act, JobAnswers, about)
    refused: dict[str, list[int]] = {}
    for answer in answers.jobs:
        if not answer.done:
            refused.setdefault(answer.says, []).append(answer.job_id)
    call.refusals.extend((structs.replace(asked, ids=ids), says) for says, ids in refused.items())
    return answers


def _refusal(call: Call, number: int, line: JobRow | None, needs: Needs, uid: int | None) -> OarlockError | None:
    if line is None:
        return UnknownJob(number)
    if line.user == call.who.name and not call.who.account.is_number(uid):
        return Forbidden(
            f"Job {number} belongs to another account that was called {line.user} (number {uid}).",
            hint="Ask an administrator.",
        )
    return call.site.can(call.caller, needs(line), line.user)


async def _chosen(call: Call, asked: SomeJobs) -> list[int]:
    """Find the jobs that are meant, each once, in the order asked for."""
    if sum(one is not None for one in (asked.ids, asked.array, asked.where)) != 1:
        raise BadRequest("Which jobs?", hint="Give one of ids, array or where.")
    if asked.ids is not None:
        return list(dict.fromkeys(asked.ids))
    if asked.array is not None:
        members = await _lines(call, JobFilter(array_id=asked.array))
        if not members:
            raise UnknownArray(asked.array)
    else:
        own = None if call.who.admin else call.who.name
        members = await _lines(call, JobFilter(ids=await fulfilling(call, asked.where or "", user=own)))
    return [line.id for line in members if line.state in LIVE]


async def _lines(call: Call, which: JobFilter) -> list[JobRow]:
    return await call.read(lambda tx: listing.rows(tx, which, most=views.MOST_LISTED))
