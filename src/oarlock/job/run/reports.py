"""Reports of nodes, scripts and effect runners. Steps turn them into moves, events and further effects."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from oarlock.model.event import EventType
from oarlock.model.job import UnknownAttempt
from oarlock.node.wire.messages import Report


@dataclass(frozen=True, slots=True)
class Hello:
    """What a node reports of itself when it is reached."""

    boot: str
    cgroups: str  # `v2`, `v1+v2`, `v1` or `processes`
    missing: tuple[str, ...]  # limits that cannot be set there
    cpus: int
    memory: int  # bytes
    python: str
    uid: int
    now: float  # its own clock, epoch seconds
    processes: int = 0  # how many all jobs there may have together; 0: not known
    unusable: Mapping[str, str] = field(default_factory=dict)  # programs of the site that it cannot run → why
    instance: str = ""  # the identity of the last database that launched a job there
    highest_job: int = 0  # the highest number of a job that was launched there


@dataclass(frozen=True, slots=True)
class Started:
    """The user's code runs (or, on another node than the first, the place is ready)."""

    node: str
    job: int
    attempt: int
    at: float | None  # by the node's clock, epoch seconds
    key: str = ""  # the public half of the pair that was made there for the job


@dataclass(frozen=True, slots=True)
class Checkpointed:
    """The checkpoint signal was sent."""

    node: str
    job: int
    attempt: int


@dataclass(frozen=True, slots=True)
class Exited:
    """An attempt is over on a node; the report carries its signature's word."""

    node: str
    report: Report


@dataclass(frozen=True, slots=True)
class BadReport:
    """A report with a wrong signature or sender; its only consequence is an event (BIPBIP_CHALLENGE)."""

    node: str
    job: int
    attempt: int
    why: str


@dataclass(frozen=True, slots=True)
class AttemptMissing:
    """A node does not have an attempt that is awaited there."""

    node: str
    job: int
    attempt: int


@dataclass(frozen=True, slots=True)
class ConnectionLost:
    """The connection is lost. Jobs go on; their state is unknown."""

    node: str
    why: str


@dataclass(frozen=True, slots=True)
class NodeReachable:
    """The node answers again; another boot id means that no job of before is alive there."""

    node: str
    hello: Hello
    unknown: tuple[UnknownAttempt, ...] = ()  # attempts there that no step awaits
    ahead: float = 0.0  # seconds by which its clock was ahead of the server's when it answered
    is_desktop: bool = False  # it connected by itself


@dataclass(frozen=True, slots=True)
class UnknownEnded:
    """An unknown attempt is over on a node."""

    node: str
    job: int
    attempt: int
    tag: str


NodeReport = (
    Started | Checkpointed | Exited | BadReport | AttemptMissing | ConnectionLost | NodeReachable | UnknownEnded
)


@dataclass(frozen=True, slots=True)
class NotLaunched:
    """An attempt certainly did not start: a node refused it or could not be reached, or a script of the server failed.

    `hosts` are the nodes to blame. `job` may still be toLaunch (`attempt` 0): then nothing was written down yet.
    """

    job: int
    attempt: int
    event: EventType
    says: str
    hosts: tuple[str, ...] = ()
    cause: str = ""  # why a program of the site failed, where one did


@dataclass(frozen=True, slots=True)
class LaunchDelayed:
    """A launch waits: a node still has a job of the same number that the database does not know."""

    node: str
    job: int
    attempt: int
    says: str


@dataclass(frozen=True, slots=True)
class EpilogueEnded:
    """The server's epilogue ran for an attempt; `event` if it did not run well.

    `lost`: why what the job wrote could not be fetched from its node.
    """

    job: int
    attempt: int
    event: EventType | None = None
    says: str = ""
    lost: str = ""


@dataclass(frozen=True, slots=True)
class JobSuspended:
    """A job was suspended on its nodes; `says` is what went wrong, `failed` are the nodes to blame for it."""

    job: int
    attempt: int
    failed: tuple[str, ...] = ()
    says: str = ""


@dataclass(frozen=True, slots=True)
class JobResumed:
    """A suspended job was resumed; `says` is what went wrong, `failed` are the nodes to blame for it."""

    job: int
    attempt: int
    failed: tuple[str, ...] = ()
    says: str = ""


@dataclass(frozen=True, slots=True)
class CheckpointSignalled:
    """The checkpoint signal was asked for; empty `problem`: it was passed on."""

    job: int
    attempt: int
    problem: str = ""


@dataclass(frozen=True, slots=True)
class NodesChecked:
    """Nodes were asked whether they answer."""

    answered: frozenset[str] = frozenset()
    silent: dict[str, str] = field(default_factory=dict)  # node → why


@dataclass(frozen=True, slots=True)
class NodesWoken:
    """Nodes that were woken answer; or they do not (`silent`) and their time is over."""

    answered: frozenset[str] = frozenset()
    silent: dict[str, str] = field(default_factory=dict)  # node → why


@dataclass(frozen=True, slots=True)
class NodesHealed:
    """The site's healing program ran for Suspected nodes; `problem` is why it failed."""

    nodes: tuple[str, ...]
    problem: str = ""


@dataclass(frozen=True, slots=True)
class NotificationFailed:
    """A notice to a user could not be sent, or (`job` 0) an alert to administrators."""

    job: int
    event: EventType
    says: str


@dataclass(frozen=True, slots=True)
class NotificationSent:
    """A notice of this number was sent, or will never be."""

    number: int


IncomingReport = (
    NodeReport
    | NotLaunched
    | LaunchDelayed
    | EpilogueEnded
    | JobSuspended
    | JobResumed
    | CheckpointSignalled
    | NodesChecked
    | NodesWoken
    | NodesHealed
    | NotificationFailed
    | NotificationSent
)
