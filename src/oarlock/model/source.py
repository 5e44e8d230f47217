"""Another cluster, as its resource manager describes it: the typed answers of a source, and how a source fares.

A source answers few questions: which nodes there are, which jobs live now, which ended, and one job. What it says is
copied into a database of our own, so that every page, verb and finding works for it as for a cluster that we run.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

from msgspec import Struct

from oarlock.model.errors import Unavailable
from oarlock.model.event import Event
from oarlock.model.job import JobKind, JobState, Reservation
from oarlock.model.resource import Value

STATEMENT_SECONDS = 10.0
"""How long a source may take for one statement. Nobody waits: pages show the copy."""
QUESTION_SECONDS = 30.0
"""How long it may take for all statements of one question."""

SLURM_TIMEOUT = "Slurm: TIMEOUT"
"""The message of a job that Slurm ended because its time was over."""


class SourceAway(Unavailable):
    """A source that does not answer, or not in time."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"{name} does not answer: {why}.", hint="What it said last is shown meanwhile.")


class SourceLevel(NamedTuple):
    """A part of a request: so many of a property's values."""

    property: str
    value: int


class SourceGroup(Struct, frozen=True):
    """Resources that a job asked for: a condition, and the levels of its request."""

    condition: str
    levels: tuple[SourceLevel, ...]


class SourceChoice(Struct, frozen=True):
    """One of the requests that a job may be given; its number is unique among all jobs of the source."""

    id: int
    walltime: int
    groups: tuple[SourceGroup, ...] = ()


class StateStay(NamedTuple):
    """A job was in a state from `start` to `stop`; 0 while it still is."""

    state: JobState
    start: int
    stop: int


class SourceJob(Struct, frozen=True, kw_only=True):
    """A job of another cluster, in our words.

    `resources` are numbers of the source's own. A source that knows no more than how many cores of a node a job has
    gives `places` instead. `planned` is when the source thinks that it starts, by which
    of its choices, and where.
    """

    id: int
    state: JobState
    user: str
    uid: int | None = None
    project: str = "default"
    queue: str = ""
    name: str | None = None
    kind: JobKind = JobKind.PASSIVE
    reservation: Reservation = Reservation.NONE
    types: tuple[str, ...] = ()
    message: str = ""
    command: str | None = None
    properties: str = ""
    directory: str = ""
    initial_request: str = ""
    submitted: int = 0
    start: int = 0
    stop: int = 0
    exit_code: int | None = None
    array_id: int = 0
    array_index: int = 1
    suspended: bool = False
    choices: tuple[SourceChoice, ...] = ()
    assigned: int = 0
    resources: tuple[int, ...] = ()
    places: tuple[tuple[str, int], ...] = ()
    planned: int = 0
    planned_choice: int = 0
    planned_resources: tuple[int, ...] = ()
    needs: tuple[int, ...] = ()
    stays: tuple[StateStay, ...] = ()


class SourceResource(Struct, frozen=True):
    """A resource under the names of our columns; the site's own properties among them."""

    id: int
    values: dict[str, Value]


class SourceQueue(NamedTuple):
    """A queue, or a partition."""

    name: str
    priority: int
    active: bool


class StateChange(NamedTuple):
    """A resource was in a state from `start` to `stop`; 0 while it still is. `id` is the source's own."""

    id: int
    resource: int
    state: str
    start: int
    stop: int


class NodeChange(NamedTuple):
    """A node was in a state from `start` to `stop`; 0 while it still is."""

    node: str
    state: str
    start: int
    stop: int


class SourceNodes(Struct, frozen=True):
    """What a cluster has: resources, queues, and when which resource was in which state.

    `kinds` has the type of each property. A source that knows nodes and their cores only gives `nodes` and
    `node_changes` instead of `resources` and `changes`.
    """

    resources: Sequence[SourceResource] = ()
    kinds: Mapping[str, type] = {}
    nodes: Sequence["SourceNode"] = ()
    queues: Sequence[SourceQueue] = ()
    changes: Sequence[StateChange] = ()
    node_changes: Sequence[NodeChange] = ()


class SourceNode(Struct, frozen=True):
    """A node of a source that does not number resources. `state` and `drain` in the words of our columns."""

    name: str
    cores: int
    state: str = "Alive"
    drain: bool = False
    properties: dict[str, Value] = {}


class EndedJobs(NamedTuple):
    """Jobs that are over, in the order of their end, and where to go on; `complete`: there are no more now."""

    jobs: Sequence[SourceJob]
    cursor: tuple[int, int]
    complete: bool


class SourceEvent(NamedTuple):
    """An event, by the number that the source gave it."""

    id: int
    event: Event


class ClusterSource(Protocol):
    """Another cluster. A question that fails or takes too long raises `SourceAway`; none changes anything there."""

    @property
    def name(self) -> str:
        """What the source is, for people: `OAR's database`."""
        ...

    def nodes(self, *, since: int) -> SourceNodes:
        """Return what the cluster has, and states since an instant."""
        ...

    def live(self) -> Sequence[SourceJob]:
        """Return the jobs that are not over."""
        ...

    def ended(self, cursor: tuple[int, int], most: int) -> EndedJobs:
        """Return jobs that ended at or after an instant, behind a number."""
        ...

    def jobs(self, ids: Collection[int]) -> Sequence[SourceJob]:
        """Return these jobs; those that the source does not know any more are left out."""
        ...

    def events(self, after: int, most: int, *, since: int) -> Sequence[SourceEvent]:
        """Return events behind a number, from an instant on; nothing where the source has none."""
        ...

    def close(self) -> None:
        """Close its connections."""
        ...


class SourceHealth(Struct, frozen=True, kw_only=True):
    """How a source fares. `says` is empty while it answers, else a sentence.

    Instants are epoch seconds, 0 if never; `seconds` is how long the last answer took.
    """

    name: str
    gives: str
    answers: bool
    says: str = ""
    asked: int = 0
    answered: int = 0
    seconds: float | None = None
