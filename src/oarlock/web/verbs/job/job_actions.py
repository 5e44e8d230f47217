"""Verbs that act on jobs: end, hold, resume, change the walltime, open a session; also on jobs of unknown attempts."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, NoReturn

from msgspec import Meta, Struct, structs

from oarlock.job.run import walltime
from oarlock.job.run.effects import ActionResult
from oarlock.job.run.walltime import WalltimeAsker, WalltimeStatus
from oarlock.model.errors import BadRequest, Forbidden, OarlockError, UnknownArray, UnknownJob, UpgradeNeeded
from oarlock.model.job import Job, JobState, UnknownAttempt
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.job import attempts, jobs, listing
from oarlock.store.queries.job.listing import LIVE, JobFilter, JobRow
from oarlock.web import views
from oarlock.web.context import EmptyResponse, RequestContext
from oarlock.web.decode import EmptyRequest, Id, Text, VerbRequest
from oarlock.web.policy import Permission, RequiredRole
from oarlock.web.registry import VERBS, verb
from oarlock.web.verbs.job.jobs import fulfilling

EXTERMINATE = Permission("jobs.exterminate", RequiredRole.ADMINS)
BESTEFFORT = Permission("jobs.besteffort", RequiredRole.ADMINS)
_MOST = 100_000


class JobSelection(VerbRequest):
    """Jobs by number, by array, or by a condition: exactly one of them. A condition finds one's own jobs only."""

    ids: Annotated[list[Id], Meta(max_length=_MOST)] | None = None
    array: Id | None = None
    where: Text | None = None


class DeleteJobsRequest(JobSelection):
    """How jobs end: killed, told to write a checkpoint, or sent a signal.

    With `besteffort` they do not end: running jobs become best-effort jobs, and those that are, ordinary ones.
    """

    checkpoint: bool = False
    signal: Annotated[int, Meta(ge=1, le=64)] | None = None
    exterminate: bool = False
    besteffort: bool = False


class HoldJobsRequest(JobSelection):
    """Whether jobs that run are stopped as well."""

    running: bool = False


class JobActionView(Struct, frozen=True, omit_defaults=True):
    """What became of one job; `kind` names the refusal when it was not done, `hint` is the way out."""

    job_id: int
    done: bool
    says: str
    kind: str = ""
    hint: str = ""


class JobActionsResponse(Struct, frozen=True):
    """An answer a job, in the order in which they were asked for."""

    jobs: list[JobActionView]


Action = Callable[[Sequence[int]], Awaitable[Sequence[ActionResult]]]
Needs = Callable[[JobRow], Permission]


@verb(
    "jobs.delete", "POST /jobs/delete",
    role=RequiredRole.OWNERS, request=DeleteJobsRequest, response=JobActionsResponse,
    summary="End jobs, or send them their checkpoint signal or any other.",
)  # fmt: skip
async def delete(context: RequestContext, request: DeleteJobsRequest) -> JobActionsResponse:
    """Kill jobs, give them up or switch their besteffort type (administrators), or send them a signal."""
    if sum((request.checkpoint, request.signal is not None, request.exterminate, request.besteffort)) > 1:
        raise BadRequest("A checkpoint, a signal and a kill are three requests.", hint="Ask for one of them.")
    if request.exterminate:
        context.demand(EXTERMINATE)
    if request.besteffort:
        context.demand(BESTEFFORT)

    async def end(ids: Sequence[int]) -> Sequence[ActionResult]:
        core, by = context.core, context.user.name
        if request.checkpoint:
            return await core.checkpoint(ids, by=by)
        if request.signal is not None:
            return await core.signal(ids, request.signal, by=by)
        if request.besteffort:
            return await core.switch_besteffort(ids, by=by)
        return await core.kill(ids, by=by, exterminate=request.exterminate)

    return await _act(context, request, end, lambda _: VERBS["jobs.delete"])


@verb(
    "jobs.hold", "POST /jobs/hold",
    role=RequiredRole.OWNERS, request=HoldJobsRequest, response=JobActionsResponse,
    summary="Keep waiting jobs from starting; with `running`, stop jobs that run.",
)  # fmt: skip
async def hold(context: RequestContext, request: HoldJobsRequest) -> JobActionsResponse:
    """Hold jobs; to stop running ones is a power of its own."""
    needs = context.policy.suspending if request.running else VERBS["jobs.hold"]

    async def keep(ids: Sequence[int]) -> Sequence[ActionResult]:
        return await context.core.hold(ids, by=context.user.name, running=request.running)

    return await _act(context, request, keep, lambda _: needs)


@verb(
    "jobs.resume", "POST /jobs/resume",
    role=RequiredRole.OWNERS, request=JobSelection, response=JobActionsResponse,
    summary="Let jobs that are held or stopped go on.",
)  # fmt: skip
async def resume(context: RequestContext, request: JobSelection) -> JobActionsResponse:
    """Resume jobs; what ran and was stopped needs the power to stop it."""

    def needs(line: JobRow) -> Permission:
        return context.policy.suspending if line.state == JobState.SUSPENDED else VERBS["jobs.resume"]

    async def go_on(ids: Sequence[int]) -> Sequence[ActionResult]:
        return await context.core.resume(ids, by=context.user.name)

    return await _act(context, request, go_on, needs)


async def _act(context: RequestContext, request: JobSelection, action: Action, needs: Needs) -> JobActionsResponse:
    """Apply an action to those jobs that the caller may act on; return a result for each."""

    async def act() -> JobActionsResponse:
        ids = await _chosen(context, request)
        lines = {line.id: line for line in await _lines(context, JobFilter(ids=ids, sight=context.sight))}
        uids = {} if context.user.admin else await context.read(lambda tx: jobs.uids(tx, ids))
        answers: dict[int, JobActionView] = {}
        for number in ids:
            if refusal := _refusal(context, number, lines.get(number), needs, uids.get(number)):
                answers[number] = JobActionView(number, False, str(refusal), type(refusal).__name__, refusal.hint)
        if allowed := [number for number in ids if number not in answers]:
            for result in await action(allowed):
                answers[result.job_id] = JobActionView(
                    result.job_id, result.done, result.says, result.kind, result.hint
                )
        return JobActionsResponse([answers[number] for number in ids])

    def about(answers: JobActionsResponse) -> Struct | None:
        done = [answer.job_id for answer in answers.jobs if answer.done]
        return structs.replace(request, ids=done) if done else None

    answers = await context.act(act, JobActionsResponse, about)
    refused: dict[str, list[int]] = {}
    for answer in answers.jobs:
        if not answer.done:
            # One row in the audit for all jobs that are refused for the same reason.
            refused.setdefault(answer.says.replace(f"Job {answer.job_id} ", "This "), []).append(answer.job_id)
    context.refusals.extend((structs.replace(request, ids=ids), says) for says, ids in refused.items())
    return answers


def _refusal(
    context: RequestContext, number: int, line: JobRow | None, needs: Needs, uid: int | None
) -> OarlockError | None:
    if line is None:
        return UnknownJob(number)
    if line.user == context.user.name and not context.user.account.is_number(uid):
        return Forbidden(
            f"Job {number} belongs to another account that was called {line.user} (number {uid}).",
            hint="Ask an administrator.",
        )
    return context.policy.can(context.caller, needs(line), line.user, what=f"Job {number}")


async def _chosen(context: RequestContext, request: JobSelection) -> list[int]:
    """Find the jobs that are meant, each once, in the order asked for."""
    if sum(value is not None for value in (request.ids, request.array, request.where)) != 1:
        raise BadRequest("Which jobs?", hint="Give one of ids, array or where.")
    if request.ids is not None:
        return list(dict.fromkeys(request.ids))
    if request.array is not None:
        members = await _lines(context, JobFilter(array_id=request.array, sight=context.sight))
        if not members:
            raise UnknownArray(request.array)
    else:
        own = None if context.user.admin else context.user.name
        members = await _lines(context, JobFilter(ids=await fulfilling(context, request.where or "", user=own)))
    return [line.id for line in members if line.state in LIVE]


async def _lines(context: RequestContext, which: JobFilter) -> list[JobRow]:
    return await context.read(lambda tx: listing.rows(tx, which, most=views.MOST_LISTED))


class UnknownJobsResponse(Struct, frozen=True):
    """Jobs that nodes run and that the database does not know, in the order in which they were found."""

    unknown: list[UnknownAttempt]


@verb(
    "unknown.list", "GET /unknown",
    role=RequiredRole.ADMINS, request=EmptyRequest, response=UnknownJobsResponse,
    summary="List the jobs that nodes run and that the database, restored or new, does not know.",
)  # fmt: skip
async def list_unknown(context: RequestContext, _request: EmptyRequest) -> UnknownJobsResponse:
    """Return them in the order in which they were found."""
    return UnknownJobsResponse(await context.read(attempts.all_unknown))


class UnknownJobByIdRequest(VerbRequest):
    """An unknown job by its number in the list."""

    id: Id


@verb(
    "unknown.end", "DELETE /unknown/{id}",
    role=RequiredRole.ADMINS, request=UnknownJobByIdRequest, response=EmptyResponse,
    summary="End a job that the database does not know; its resources are free once its node says that it ended.",
)  # fmt: skip
async def end_unknown(context: RequestContext, request: UnknownJobByIdRequest) -> EmptyResponse:
    """Send the node of the job the request to end it."""
    await context.core.end_unknown(request.id)
    return EmptyResponse()


class WalltimeRequest(VerbRequest):
    """A job by its number."""

    id: Id


class ChangeWalltimeRequest(VerbRequest, kw_only=True):
    """The walltime that a job shall have (`h:m:s`), or by how much it shall change (`+h:m:s`, `-h:m:s`).

    `force` applies it at once and whole, `delay_next_jobs` lets it delay planned jobs of others.
    """

    id: Id
    walltime: Text
    force: bool = False
    delay_next_jobs: bool = False


@verb(
    "jobs.walltime", "GET /jobs/{id}/walltime",
    role=RequiredRole.OWNERS, request=WalltimeRequest, response=WalltimeStatus,
    summary="Show the walltime of a running job, what was granted, and how much more may be requested.",
)  # fmt: skip
async def show_walltime(context: RequestContext, request: WalltimeRequest) -> WalltimeStatus:
    """Return the walltime of a job."""

    def read(tx: Tx) -> WalltimeStatus:
        check_owner(context, tx, request.id, "jobs.walltime")
        return walltime.status(tx, context.core.config, request.id)

    return await context.read(read)


@verb(
    "jobs.change-walltime", "POST /jobs/walltime",
    role=RequiredRole.OWNERS, request=ChangeWalltimeRequest, response=WalltimeStatus,
    summary="Request another walltime for a running job; it is granted as far as it moves no planned job.",
)  # fmt: skip
async def change_walltime(context: RequestContext, request: ChangeWalltimeRequest) -> WalltimeStatus:
    """Store the request; the scheduler looks at it at once."""
    user, config, now = context.user, context.core.config, context.now
    asker = WalltimeAsker(user.name, user.account.groups, user.admin)

    def store(tx: Tx) -> WalltimeStatus:
        check_owner(context, tx, request.id, "jobs.change-walltime")
        return walltime.request(
            tx, config, request.id, request.walltime, asker,
            now=now, force=request.force, delay_next_jobs=request.delay_next_jobs,
        )  # fmt: skip

    stored = await context.change(store, WalltimeStatus)
    context.core.wake_scheduler()
    return stored


def check_owner(context: RequestContext, tx: Tx, job_id: int, name: str) -> Job:
    """Return a job to which the caller may do what a verb does, or raise: by name and uid, since names are reused."""
    context.check_seen(tx, job_id)
    jobs_of_number = jobs.existing(tx, [job_id])
    if not jobs_of_number:
        raise UnknownJob(job_id)
    [job] = jobs_of_number
    owner = context.user.owner_shown(job.user, job.uid)
    what = f"Job {job_id}"
    refusal: OarlockError | None = context.policy.can(context.caller, VERBS[name], owner, job.project, what)
    if refusal is not None:
        raise refusal
    return job


@verb(
    "sessions.connect", "GET /sessions",
    role=RequiredRole.USERS, request=EmptyRequest, response=EmptyResponse, upgrades=True,
    summary="Open or join a shell or a command in a job of one's own; the connection is upgraded "
    "(`Upgrade: oarlock-session`).",
)  # fmt: skip
async def connect(_context: RequestContext, _request: EmptyRequest) -> NoReturn:
    """Refuse a plain request: a session needs the connection itself."""
    raise UpgradeNeeded


@verb(
    "desktops.connect", "GET /desktops",
    role=RequiredRole.NODES, request=EmptyRequest, response=EmptyResponse, upgrades=True,
    summary="Serve as a desktop: the connection is upgraded (`Upgrade: oarlock-session`), and jobs come by it.",
)  # fmt: skip
async def connect_desktop(_context: RequestContext, _request: EmptyRequest) -> NoReturn:
    """Refuse a plain request: a desktop needs the connection itself."""
    raise UpgradeNeeded
