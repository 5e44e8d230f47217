"""A job: its states, the moves between them, and what is known of it. Attempts of lost databases, too."""

from collections.abc import Mapping
from enum import StrEnum
from signal import Signals
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from oarlock.model.errors import IllegalMove, NotFound


class JobState(StrEnum):
    """Where a job stands. The manual's words; stored as is, shown as is."""

    WAITING = "Waiting"  # admitted, no place yet
    HOLD = "Hold"  # its owner asked us not to start it
    TO_LAUNCH = "toLaunch"  # resources are its own; the launch is about to begin
    TO_ERROR = "toError"  # refused; its owner is being told
    TO_ACK_RESERVATION = "toAckReservation"  # reservation accepted; its owner is being told
    LAUNCHING = "Launching"  # its nodes are being prepared
    RUNNING = "Running"  # the user's command executes on the first node
    SUSPENDED = "Suspended"  # stopped on its nodes; others may use its resources
    RESUMING = "Resuming"  # goes on as soon as its resources are free again
    FINISHING = "Finishing"  # the command ended; epilogues and cleaning
    TERMINATED = "Terminated"  # over, the way it should be (whatever the exit code)
    ERROR = "Error"  # over, something went wrong


S = JobState

MOVES: Mapping[JobState, frozenset[JobState]] = {
    S.WAITING: frozenset({S.HOLD, S.TO_LAUNCH, S.TO_ACK_RESERVATION, S.TO_ERROR, S.ERROR}),
    S.HOLD: frozenset({S.WAITING, S.ERROR}),
    S.TO_ACK_RESERVATION: frozenset({S.WAITING, S.ERROR}),
    S.TO_ERROR: frozenset({S.ERROR}),
    # A launch that fails before the user's code ran gives the job back (Waiting): the id is kept.
    S.TO_LAUNCH: frozenset({S.LAUNCHING, S.WAITING, S.FINISHING, S.ERROR}),
    S.LAUNCHING: frozenset({S.RUNNING, S.WAITING, S.FINISHING, S.ERROR}),
    # Straight to Terminated is for jobs that run nothing (noop).
    S.RUNNING: frozenset({S.SUSPENDED, S.FINISHING, S.TERMINATED}),
    S.SUSPENDED: frozenset({S.RESUMING, S.FINISHING}),
    S.RESUMING: frozenset({S.RUNNING, S.SUSPENDED, S.FINISHING}),
    S.FINISHING: frozenset({S.TERMINATED, S.ERROR}),
    S.TERMINATED: frozenset(),
    S.ERROR: frozenset(),
}

FINAL: frozenset[JobState] = frozenset(state for state, ways in MOVES.items() if not ways)
"""States that nothing follows."""

BEFORE_START: frozenset[JobState] = frozenset({S.WAITING, S.HOLD, S.TO_ACK_RESERVATION, S.TO_LAUNCH, S.LAUNCHING})
"""States of a job that will run, and does not yet."""

HOLDS_RESOURCES: frozenset[JobState] = frozenset(
    {S.TO_LAUNCH, S.LAUNCHING, S.RUNNING, S.SUSPENDED, S.RESUMING, S.FINISHING}
)
"""States in which resources are assigned to the job."""


class Reservation(StrEnum):
    """Whether a job asked for a date, and what became of it."""

    NONE = "None"
    TO_SCHEDULE = "toSchedule"
    SCHEDULED = "Scheduled"


class JobKind(StrEnum):
    """The manual's `job_type`: a shell for a person, or a program."""

    INTERACTIVE = "INTERACTIVE"
    PASSIVE = "PASSIVE"


class FragState(StrEnum):
    """How far the killing of a job has come."""

    LEON = "LEON"  # to be killed
    TIMER_ARMED = "TIMER_ARMED"  # told to end; the clock runs
    LEON_EXTERMINATE = "LEON_EXTERMINATE"  # did not end in time: given up, its nodes suspected
    FRAGGED = "FRAGGED"  # over


class Job(Struct, frozen=True, kw_only=True):
    """A job as the `jobs` table has it, under plain names. `None` is "not yet" or "not asked"."""

    id: int
    state: JobState
    user: str
    queue: str
    kind: JobKind = JobKind.PASSIVE
    name: str | None = None
    project: str = "default"
    types: tuple[str, ...] = ()
    command: str | None = None
    properties: str = ""
    directory: str = "/"
    environment: str = ""
    stdout: str = ""
    stderr: str = ""
    notify: str = ""
    message: str = ""
    info: str = ""
    initial_request: str = ""
    reservation: Reservation = Reservation.NONE
    submitted: int = 0
    start: int = 0
    stop: int = 0
    assigned: int = 0  # the moldable alternative chosen; 0 while none is
    checkpoint: int = 0
    checkpoint_signal: int = 12
    exit_code: int | None = None  # raw wait status; unknown is not 0
    resubmit_of: int = 0
    array_id: int = 0
    array_index: int = 1
    suspended: bool = False  # it was suspended at least once
    accounted: bool = False
    uid: int | None = None  # of the account that submitted it; None where nobody knew
    file_id: int | None = None  # the archive that is unpacked where it runs
    login_host: str = ""  # where it was submitted, if that is proven

    @property
    def cpuset_name(self) -> str:
        """The name of its cgroup on every node: `user_id`."""
        return f"{self.user}_{self.id}"


def filled(pattern: str, job: Job) -> str:
    """Fill in the name of an output file: %jobid%, %jobname%, %arrayid% and %arrayindex% are the job's own."""
    words = {
        "%jobid%": str(job.id),
        "%jobname%": job.name or "",
        "%arrayid%": str(job.array_id),
        "%arrayindex%": str(job.array_index),
    }
    for word, value in words.items():
        pattern = pattern.replace(word, value)
    return pattern


def output_file(pattern: str, job: Job, kind: str) -> str:
    """Return the name of an output file (`stdout` or `stderr`): from the pattern, else the manual's name."""
    named = f"OAR.{job.name}.{job.id}.{kind}" if job.name else f"OAR.{job.id}.{kind}"
    return filled(pattern or named, job)


def describe_exit(status: int) -> str:
    """Return a raw wait status in words: `exit 3`, `signal 9 (SIGKILL)`."""
    number = status & 127
    if not number:
        return f"exit {status >> 8 & 255}"
    try:
        return f"signal {number} ({Signals(number).name})"
    except ValueError:  # a real-time signal
        return f"signal {number}"


class Moved(Struct, frozen=True):
    """A move that is legal and was not written yet."""

    job: Job
    before: JobState
    at: int
    why: str


def move(job: Job, to: JobState, *, at: int, why: str, **changes: Any) -> Moved:
    """Move a job to another state, with what else changes of it, or say why it cannot go there."""
    if to not in MOVES[job.state]:
        ways = ", ".join(sorted(MOVES[job.state])) or "nothing else"
        raise IllegalMove(
            f"Job {job.id} is {job.state}; it cannot become {to}.",
            hint=f"A job that is {job.state} can become {ways}.",
        )
    return Moved(job=replace(job, state=to, **changes), before=job.state, at=at, why=why)


class UnknownAttempt(Struct, frozen=True, kw_only=True):
    """A job on a node that another generation of the database began."""

    id: int = 0
    node: str
    job: int
    attempt: int
    tag: str  # the fingerprint of its secret; empty if this server did not sign what the node says of it
    generation: str = ""
    user: str = ""
    since: int = 0  # when it was first heard of, epoch seconds
    walltime: int = 0  # seconds; 0 if it is not known
    resources: tuple[int, ...] = ()  # those of the node that it holds; empty if it is not known
    alive: bool = True


class NoUnknownAttempt(NotFound):
    """An unknown attempt that is not there."""

    def __init__(self, number: int) -> None:
        super().__init__(f"There is no unknown job {number}.", hint="`oarlock unknown list` lists them.")
