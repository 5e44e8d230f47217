"""Instructions: what steps want done outside the database, as plain records.

They are written down (as attempts, kills, events) before they are given, so whoever carries them out may die in
between: `recover` gives them again, and nodes refuse what they have done already.
"""

from dataclasses import dataclass

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
    """Reach nodes, so that they tell what they have (`NodeReachable`)."""

    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DiscardAttempt:
    """Let a node remove what it remembers of an attempt that is over and that the database does not know."""

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
    """Tell a job on its first node to end: TERM, then KILL to all of it."""

    node: str
    job: int
    attempt: int
    grace: int | None = None


@dataclass(frozen=True, slots=True)
class ReleaseNodes:
    """Give back the places of a job on the other nodes."""

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
    """Stop a job on all its nodes; `JobSuspended` follows."""

    nodes: tuple[str, ...]
    job: int
    attempt: int


@dataclass(frozen=True, slots=True)
class Resume:
    """Let a job go on on all its nodes; `JobResumed` follows."""

    nodes: tuple[str, ...]
    job: int
    attempt: int


@dataclass(frozen=True, slots=True)
class RunEpilogue:
    """Run the server's epilogue; `EpilogueEnded` follows."""

    job: int
    attempt: int


@dataclass(frozen=True, slots=True)
class ForgetAttempts:
    """Let a node forget attempts whose end is written down."""

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
class CheckNodes:
    """Ask nodes whether they answer; `NodesChecked` follows."""

    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Notify:
    """Tell a user of a job: `how` is what `--notify` said, `tag` is START, END, ERROR, INFO or the like.

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
    """Something changed that the scheduler should look at, or will have by an instant."""

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
    | RunEpilogue
    | ForgetAttempts
    | SleepNodes
    | WakeNodes
    | CheckNodes
    | Notify
    | ScheduleAgain
)
