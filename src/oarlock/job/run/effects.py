"""Effects: what steps want done outside the database, as plain records.

They are stored (as attempts, kills, events) before they are returned, so the process that carries them out may die in
between: `recover` returns them again, and nodes refuse what they have done already.
"""

from dataclasses import dataclass

from oarlock.model.errors import OarlockError
from oarlock.node.wire.messages import Launch


@dataclass(frozen=True, slots=True)
class ReachNodes:
    """Find out whether nodes answer, and their boot ids; then call `launch.go_on` for these jobs."""

    jobs: tuple[int, ...]
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LaunchAttempt:
    """Prepare places on the other nodes, run the server's prologue if there is one, start the command on the first."""

    first: tuple[str, Launch]
    others: tuple[tuple[str, Launch], ...] = ()


@dataclass(frozen=True, slots=True)
class AwaitReport:
    """Await the report of an attempt that a node was given before."""

    node: str
    job: int
    attempt: int
    secret: str


@dataclass(frozen=True, slots=True)
class SurveyNodes:
    """Connect to nodes, so that they report what they have (`NodeReachable`)."""

    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DiscardAttempt:
    """Make a node remove its record of an attempt that is over and that the database does not know."""

    node: str
    job: int
    attempt: int
    tag: str


@dataclass(frozen=True, slots=True)
class EndUnknown:
    """End an attempt on a node that the database does not know."""

    node: str
    job: int
    attempt: int
    tag: str


@dataclass(frozen=True, slots=True)
class Kill:
    """End a job on its first node: TERM, then KILL to all of its processes."""

    node: str
    job: int
    attempt: int
    grace: int | None = None


@dataclass(frozen=True, slots=True)
class ReleaseNodes:
    """Release what a job holds on its other nodes; repeated until their reports are there."""

    nodes: tuple[str, ...]
    job: int
    attempt: int


@dataclass(frozen=True, slots=True)
class Signal:
    """Send a signal to a job's program."""

    node: str
    job: int
    attempt: int
    number: int


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Send the checkpoint signal; `CheckpointSignalled` follows."""

    node: str
    job: int
    attempt: int


@dataclass(frozen=True, slots=True)
class Suspend:
    """Suspend a job on all its nodes; `JobSuspended` follows, once all of them answered."""

    nodes: tuple[str, ...]
    job: int
    attempt: int


@dataclass(frozen=True, slots=True)
class Resume:
    """Resume a job on all its nodes; `JobResumed` follows, once all of them answered."""

    nodes: tuple[str, ...]
    job: int
    attempt: int


@dataclass(frozen=True, slots=True)
class ChangeWalltime:
    """Set the walltime of a running job on all its nodes, counted from its start."""

    nodes: tuple[str, ...]
    job: int
    attempt: int
    seconds: int


@dataclass(frozen=True, slots=True)
class StageOut:
    """An archive with what a job wrote, which waits on its node."""

    node: str
    sha256: str
    size: int  # bytes


@dataclass(frozen=True, slots=True)
class RunEpilogue:
    """Fetch what the job wrote, if its node keeps it, and run the server's epilogue; `EpilogueEnded` follows."""

    job: int
    attempt: int
    stage_out: StageOut | None = None


@dataclass(frozen=True, slots=True)
class ForgetAttempts:
    """Make a node forget attempts whose end is stored in the database."""

    node: str
    attempts: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class SleepNodes:
    """Put nodes to sleep: SCHEDULER_NODE_MANAGER_SLEEP_CMD with their names on its standard input."""

    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WakeNodes:
    """Wake sleeping nodes: SCHEDULER_NODE_MANAGER_WAKE_UP_CMD with their names on its stdin; `NodesWoken` follows."""

    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class HealNodes:
    """Run SUSPECTED_HEALING_EXEC_FILE for resources (number, node) of Suspected nodes; `NodesHealed` follows."""

    resources: tuple[tuple[int, str], ...]


@dataclass(frozen=True, slots=True)
class CheckNodes:
    """Check whether nodes answer; `NodesChecked` follows."""

    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Notify:
    """Notify a user about a job: `how` is the argument of `--notify`, `tag` is START, END, ERROR, INFO or the like.

    It is kept under its number until `NotificationSent` follows.
    """

    job: int
    user: str
    name: str
    how: str
    tag: str
    comment: str
    number: int = 0


@dataclass(frozen=True, slots=True)
class ScheduleAgain:
    """Run a scheduling pass: now, or at an instant."""

    at: int | None = None


Effect = (
    ReachNodes
    | LaunchAttempt
    | AwaitReport
    | SurveyNodes
    | DiscardAttempt
    | EndUnknown
    | Kill
    | ReleaseNodes
    | Signal
    | Checkpoint
    | Suspend
    | Resume
    | ChangeWalltime
    | RunEpilogue
    | ForgetAttempts
    | SleepNodes
    | WakeNodes
    | HealNodes
    | CheckNodes
    | Notify
    | ScheduleAgain
)


@dataclass(frozen=True, slots=True)
class ActionResult:
    """Whether it was done, in a sentence; `kind` names the refusal, `hint` is the way out."""

    job_id: int
    done: bool
    says: str
    kind: str = ""
    hint: str = ""


@dataclass(frozen=True, slots=True)
class ActionOutcome:
    """The answers, one a job in the order asked, and what is to be done now."""

    answers: tuple[ActionResult, ...]
    effects: tuple[Effect, ...] = ()


def refused(job_id: int, error: OarlockError) -> ActionResult:
    """Make an answer of a refusal."""
    return ActionResult(job_id, done=False, says=str(error), kind=type(error).__name__, hint=error.hint)
