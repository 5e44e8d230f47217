"""Verbs that submit jobs, or predict when they would start."""

from msgspec import Struct

from oarlock.job.admission.payload import SUBMISSION_BYTES, SubmissionPayload
from oarlock.model.job import JobKind, JobState, Reservation
from oarlock.model.nodeset import fold
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
    taken = await context.submissions.take(request, context.account, request_id=context.request_id)
    first, ids = taken.first, list(taken.ids)
    interactive = first.kind is JobKind.INTERACTIVE
    if not taken.is_repeated and first.state is not JobState.HOLD:
        context.core.wake_scheduler()  # a pass costs more than all the rest: never for jobs that it has seen, or skips

    async def answered() -> SubmitResponse:
        view = await _reservation(context, first.id)
        return SubmitResponse(ids, first.array_id, taken.messages, first.state, view, interactive, taken.notes)

    if first.reservation is not Reservation.NONE:
        return DeferredResponse(answered)
    return SubmitResponse(ids, first.array_id, taken.messages, first.state, None, interactive, taken.notes)


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
