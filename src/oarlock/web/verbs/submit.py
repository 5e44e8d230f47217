"""Verbs that submit jobs, or say what would become of them."""

from msgspec import Struct

from oarlock.job.admission.payload import SubmissionPayload
from oarlock.model.errors import InteractiveNotYet
from oarlock.model.job import JobState, Reservation
from oarlock.web.context import Call, Later
from oarlock.web.decode import LARGEST_ARRAY_BODY
from oarlock.web.nodeset import folded
from oarlock.web.policy import May
from oarlock.web.registry import verb

_PATIENCE = 60.0  # seconds: with thousands of waiting jobs a pass may take some


class ReservationView(Struct, frozen=True):
    """What the plan answered to a reservation; `start` is when it begins, or could. No answer yet: null."""

    accepted: bool | None
    says: str
    start: int | None


class Submitted(Struct, frozen=True):
    """The new jobs, what the rules said, and the answer to a reservation."""

    job_ids: list[int]
    array_id: int
    messages: tuple[str, ...]
    state: JobState
    reservation: ReservationView | None


@verb(
    "jobs.submit", "POST /jobs", may=May.SUBMITTERS, asks=SubmissionPayload, answers=Submitted, behalf=True,
    largest_body=LARGEST_ARRAY_BODY, says="Submit a job or an array of jobs.",
)  # fmt: skip
async def submit(call: Call, asked: SubmissionPayload) -> Submitted | Later:
    """Store the jobs and wake the scheduler; a reservation is answered when the scheduler has looked at it."""
    _refuse_interactive(asked)
    if call.behalf is not None:
        await call.core.write(call.note)  # before it is done: who is to blame for a job is known whatever follows
    taken = await call.desk.take(asked, call.account, request_id=call.request_id)
    call.core.wake_scheduler()
    first, ids = taken.first, list(taken.ids)

    async def answered() -> Submitted:
        view = await _reservation(call, first.id)
        return Submitted(ids, first.array_id, taken.messages, first.state, view)

    if first.reservation is not Reservation.NONE:
        return Later(answered)
    return Submitted(ids, first.array_id, taken.messages, first.state, None)


def _refuse_interactive(asked: SubmissionPayload) -> None:
    """Raise `InteractiveNotYet` for a job that nobody could enter: it would run an empty command."""
    if asked.interactive:
        raise InteractiveNotYet


async def _reservation(call: Call, job_id: int) -> ReservationView:
    answer = await call.core.answered(job_id, seconds=_PATIENCE)
    says = answer.says or "The scheduler has not answered yet."
    return ReservationView(answer.accepted, says, answer.start)


class Trial(Struct, frozen=True):
    """When and where a job would start, and what would start sooner."""

    start: int | None
    nodes: str
    says: str
    sooner: str | None
    messages: tuple[str, ...]


@verb(
    "jobs.dry-run", "POST /jobs/dry-run", may=May.SUBMITTERS, asks=SubmissionPayload, answers=Trial, changes=False,
    says="Say when and where a job would start, and what would start sooner; nothing is submitted.",
)  # fmt: skip
async def dry_run(call: Call, asked: SubmissionPayload) -> Trial:
    """Ask the scheduler about a job that is not stored."""
    _refuse_interactive(asked)
    new, messages = await call.desk.try_out(asked, call.account)
    when = await call.core.when(new, user=call.reader)
    return Trial(when.start, folded(when.nodes), when.says, when.sooner, messages)
