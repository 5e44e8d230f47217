"""What the scheduler looks at: everything it needs of one instant, read once, never changed.

Resources are a table of columns in the order in which the scheduler prefers them; a set of resources is an `int`
whose bit i stands for row i. Jobs that ask the same share a `Shape`, so that it is compiled once.
These records travel to the planning process, hence msgspec.
"""

from msgspec import Struct

from oarlock.model.condition import Condition
from oarlock.model.job import JobState, Reservation
from oarlock.model.request import ResourceGroup
from oarlock.model.resource import Value


class ResourceTable(Struct, frozen=True):
    """The resources that are not Dead, a tuple a column; `ids` and all columns have the same length and order."""

    ids: tuple[int, ...]
    columns: dict[str, tuple[Value, ...]]


class Queue(Struct, frozen=True):
    """A queue; those with a higher priority are planned first. `policy` is the manual's scheduler name."""

    name: str
    priority: int
    policy: str
    active: bool = True

    @property
    def weighs(self) -> bool:
        """Whether its policy orders jobs by their priority."""
        return "multifactor" in self.policy.split("+")

    @property
    def predicts(self) -> bool:
        """Whether its policy plans with the time that jobs will probably take."""
        return "predict" in self.policy.split("+")[1:]

    @property
    def keeps_dates(self) -> bool:
        """Whether its policy keeps the dates that jobs were told."""
        return self.policy.split("+")[0] == "conservative"

    @property
    def in_order(self) -> bool:
        """Whether its jobs come in an order that does not change during a pass, and each may pass one that waits."""
        name, *options = self.policy.split("+")
        return not options and name.startswith(("oar_sched_gantt", "easy", "depth-")) and not name.endswith("-sjbf")


class Shape(Struct, frozen=True):
    """What is asked for without the walltime: groups, and the condition (`-p`) that holds for all of them."""

    groups: tuple[ResourceGroup, ...]
    where: Condition | None = None


class Choice(Struct, frozen=True):
    """One moldable alternative: which shape (index into `Snapshot.shapes`), for how many seconds."""

    moldable_id: int
    shape: int
    walltime: int


class Dependency(Struct, frozen=True):
    """A job that must be over first, and where it stands."""

    job_id: int
    state: JobState
    exit_code: int | None = None


class WaitingJob(Struct, frozen=True, kw_only=True):
    """A job that wants a place. `start` is the date a reservation asks for.

    It starts no earlier than `not_before` and is over by `deadline`, where it has one; a reservation has its own dates.
    `unread`: how many jobs just like it, of the same user, wait behind it and are not in the snapshot.
    """

    job_id: int
    user: str
    queue: str
    choices: tuple[Choice, ...]
    project: str = "default"
    name: str | None = None
    submitted: int = 0
    types: tuple[str, ...] = ()
    reservation: Reservation = Reservation.NONE
    start: int = 0
    after: tuple[Dependency, ...] = ()
    not_before: int = 0
    deadline: int | None = None
    unread: int = 0


class PlacedJob(Struct, frozen=True, kw_only=True):
    """A job that has a place: it runs, is being launched or ended, or is an accepted reservation still to come.

    `stop` is when its walltime ends (time spent suspended added); `resources` are resource ids.
    """

    job_id: int
    moldable_id: int
    user: str
    queue: str
    state: JobState
    start: int
    stop: int
    resources: tuple[int, ...]
    project: str = "default"
    name: str | None = None
    types: tuple[str, ...] = ()
    reservation: Reservation = Reservation.NONE
    checkpoint: int = 0


class Usage(Struct, frozen=True):
    """Resource-seconds of a queue's accounting rows inside the fair-sharing window.

    `decayed_by_user`: what counts less the longer ago it was; empty where nobody weighs it.
    """

    used: int = 0
    asked: int = 0
    used_by_user: dict[str, int] = {}
    asked_by_user: dict[str, int] = {}
    used_by_project: dict[str, int] = {}
    decayed_by_user: dict[str, float] = {}


class QuotaRule(Struct, frozen=True):
    """At most so many resources, jobs and resource-seconds at once for whom it names; -1 is no limit.

    `*` stands for all together, `/` for each by itself (not for types).
    """

    queue: str
    project: str
    job_type: str
    user: str
    resources: int = -1
    jobs: int = -1
    resource_seconds: int = -1


class QuotaSpan(Struct, frozen=True):
    """Rules that hold during [begin, end), beside those that always do."""

    begin: int
    end: int
    rules: tuple[QuotaRule, ...]


class MaintenanceWindow(Struct, frozen=True):
    """Maintenance: nobody's job runs on these resources (ids) during [start, stop).

    `lost_job` is the number of a job that a lost database began and that still runs on them; 0 in maintenance proper.
    """

    name: str
    start: int
    stop: int
    resources: tuple[int, ...]
    lost_job: int = 0


class Promise(Struct, frozen=True):
    """The place that a waiting job was told by an earlier pass; `resources` are ids."""

    moldable_id: int
    start: int
    resources: tuple[int, ...]


class Snapshot(Struct, frozen=True, kw_only=True):
    """One instant of the cluster. Queues by decreasing priority, jobs by increasing id.

    `recent`: how long the last two jobs of each user ran, in seconds, the last one first; where a queue predicts.
    `promised`: what waiting jobs were told, by their numbers; where a queue keeps dates.
    """

    resources: ResourceTable
    queues: tuple[Queue, ...]
    shapes: tuple[Shape, ...] = ()
    waiting: tuple[WaitingJob, ...] = ()
    placed: tuple[PlacedJob, ...] = ()
    usage: dict[str, Usage] = {}
    quotas: tuple[QuotaRule, ...] = ()
    quota_spans: tuple[QuotaSpan, ...] = ()
    windows: tuple[MaintenanceWindow, ...] = ()
    recent: dict[str, tuple[int, ...]] = {}
    promised: dict[int, Promise] = {}
