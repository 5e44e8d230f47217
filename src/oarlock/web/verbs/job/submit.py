"""Verbs that submit jobs, or predict when they would start."""

from msgspec import Struct

from oarlock.job import advice
from oarlock.job.admission.payload import SUBMISSION_BYTES, SubmissionPayload
from oarlock.model.job import Job, JobKind, JobState, Reservation
from oarlock.model.nodeset import fold
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.usage import past_runs
from oarlock.web.context import DeferredResponse, RequestContext
from oarlock.web.policy import RequiredRole
from oarlock.web.registry import verb

_PATIENCE = 60.0  # seconds: with thousands of waiting jobs a pass may take some


class ReservationView(Struct, frozen=True):
    """What the plan answered to a reservation; `start` is when it begins, or could. No answer yet: null."""

    accepted: bool | None
    says: str
    start: int | None


class SubmitResponse(Struct, frozen=True):
    """The new jobs, what the rules said, and the answer to a reservation.

    `interactive`: a shell is to be opened. `notes`: about lines of the script.
    """

    job_ids: list[int]
    array_id: int
    messages: tuple[str, ...]
    state: JobState
    reservation: ReservationView | None
    interactive: bool
    notes: tuple[str, ...]


@verb(
    "jobs.submit", "POST /jobs",
    role=RequiredRole.SUBMITTERS, request=SubmissionPayload, response=SubmitResponse, behalf=True,
    largest_body=SUBMISSION_BYTES, summary="Submit a job or an array of jobs.",
)  # fmt: skip
async def submit(context: RequestContext, request: SubmissionPayload) -> SubmitResponse | DeferredResponse:
    """Store the jobs and wake the scheduler; a reservation is answered when the scheduler has looked at it."""
    if context.behalf is not None:
        await context.core.write(context.note)  # before it is done: who is to blame for a job is known whatever follows
    taken = await context.submissions.take(
        request, context.account, request_id=context.request_id, login_host=context.user.host
    )
    first, ids = taken.first, list(taken.ids)
    messages = (*taken.messages, *await _advice_line(context, first))
    interactive = first.kind is JobKind.INTERACTIVE
    if not taken.is_repeated and first.state is not JobState.HOLD:
        context.core.wake_scheduler()  # a pass costs more than all the rest: never for jobs that it has seen, or skips

    async def answered() -> SubmitResponse:
        view = await _reservation(context, first.id)
        return SubmitResponse(ids, first.array_id, messages, first.state, view, interactive, taken.notes)

    if first.reservation is not Reservation.NONE:
        return DeferredResponse(answered)
    return SubmitResponse(ids, first.array_id, messages, first.state, None, interactive, taken.notes)


async def _reservation(context: RequestContext, job_id: int) -> ReservationView:
    answer = await context.core.answered(job_id, seconds=_PATIENCE)
    says = answer.says or "The scheduler has not answered yet."
    return ReservationView(answer.accepted, says, answer.start)


class DryRunResponse(Struct, frozen=True):
    """When and where a job would start, and what would start sooner."""

    start: int | None
    nodes: str
    says: str
    sooner: str | None
    messages: tuple[str, ...]


@verb(
    "jobs.dry-run", "POST /jobs/dry-run",
    role=RequiredRole.SUBMITTERS, request=SubmissionPayload, response=DryRunResponse, changes=False,
    summary="Say when and where a job would start, and what would start sooner; nothing is submitted.",
)  # fmt: skip
async def dry_run(context: RequestContext, request: SubmissionPayload) -> DryRunResponse:
    """Return when and where the scheduler would start a job that is not stored."""
    new, messages = await context.submissions.try_out(request, context.account)
    when = await context.core.when(new, user=context.reader)
    return DryRunResponse(when.start, fold(when.nodes), when.says, when.sooner, messages)


class AdviceResponse(Struct, frozen=True):
    """What past runs of the same name or command say; `advice` is null without enough of them.

    `start` is when the job would start as it is asked for, `start_with_less` with `walltime` in its place.
    """

    runs: int
    advice: str | None
    walltime: int | None
    start: int | None
    start_with_less: int | None
    messages: tuple[str, ...]


@verb(
    "jobs.advise", "POST /jobs/advise",
    role=RequiredRole.SUBMITTERS, request=SubmissionPayload, response=AdviceResponse, changes=False,
    summary="Say what past runs of the same name or command used, and when the job could start with that.",
)  # fmt: skip
async def advise_job(context: RequestContext, request: SubmissionPayload) -> AdviceResponse:
    """Compare a job that is not stored with the user's own past."""
    new, messages = await context.submissions.try_out(request, context.account)
    runs = await context.read(lambda tx: past_runs.runs_like(tx, new.job))
    advised = advice.advise(runs, advice.longest_walltime(new), advice.label_of(new.job))
    when = await context.core.when(new, user=context.reader)
    sooner = None
    if advised is not None and advised.walltime is not None:
        shorter = advice.with_walltime(new, advised.walltime)
        sooner = (await context.core.when(shorter, user=context.reader)).start
    says, walltime = (None, None) if advised is None else (advised.says, advised.walltime)
    return AdviceResponse(len(runs), says, walltime, when.start, sooner, messages)


async def _advice_line(context: RequestContext, job: Job) -> tuple[str, ...]:
    """Return a line for a user who asks for much more time than such jobs ever took, where the site wants that."""
    if not context.core.config.submission_advice:
        return ()

    def read(tx: Tx) -> tuple[list[past_runs.PastRun], int]:
        return past_runs.runs_like(tx, job), past_runs.walltime_of(tx, job.id)

    runs, walltime = await context.read(read)
    advised = advice.advise(runs, walltime, advice.label_of(job))
    return () if advised is None or advised.walltime is None else (f"[ADVICE] {advised.says}",)
