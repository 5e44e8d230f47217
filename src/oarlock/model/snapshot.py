"""The input of the scheduler: everything it needs of one instant, read once, never changed.

Resources are a table of columns. Jobs with the same request share a `Shape`, so that it is compiled once. These records
are sent to the planning process, so they are msgspec structs.
"""

import re

from msgspec import Struct

from oarlock.model.condition import Condition
from oarlock.model.job import JobState, Reservation
from oarlock.model.resource import Value
from oarlock.model.submission import ResourceGroup


class ResourceTable(Struct, frozen=True):
    """The resources that are not Dead, one tuple per column; `ids` and all columns have the same length and order."""

    ids: tuple[int, ...]
    columns: dict[str, tuple[Value, ...]]


PROGRAM = "program:"
"""Before the name of a program of the site that is the policy of a queue."""

PROGRAM_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,49}")
"""How a program of the site is called: it is a file of one folder."""

BUILT_IN_POLICY = "oar_sched_gantt_with_timesharing"
"""The policy of a queue whose own scheduler cannot plan it."""


class Queue(Struct, frozen=True):
    """A queue; those with a higher priority are planned first. `policy` is the manual's scheduler name."""

    name: str
    priority: int
    policy: str
    active: bool = True

    @property
    def program(self) -> str:
        """The name of the site's program that plans it; empty where a built-in policy does."""
        return self.policy.removeprefix(PROGRAM) if self.policy.startswith(PROGRAM) else ""

    @property
    def built_in(self) -> str:
        """The built-in policy that plans it, or that plans it when the site's program does not."""
        return BUILT_IN_POLICY if self.program else self.policy

    @property
    def weighs(self) -> bool:
        """Whether its policy orders jobs by their priority."""
        return "multifactor" in self.policy.split("+")

    @property
    def predicts(self) -> bool:
        """Whether its policy plans with predicted run times."""
        return "predict" in self.policy.split("+")[1:]

    @property
    def keeps_dates(self) -> bool:
        """Whether its policy keeps promised dates."""
        return self.policy.split("+")[0] == "conservative"

    @property
    def in_order(self) -> bool:
        """Whether its jobs come in an order that does not change during a pass, and each may pass one that waits."""
        name, *options = self.policy.split("+")
        return not options and name.startswith(("oar_sched_gantt", "easy", "depth-")) and not name.endswith("-sjbf")


class Shape(Struct, frozen=True):
    """A request without its walltime: groups, and the condition (`-p`) on all of them."""

    groups: tuple[ResourceGroup, ...]
    where: Condition | None = None


class Choice(Struct, frozen=True):
    """One moldable alternative: which shape (index into `Snapshot.shapes`), for how many seconds."""

    moldable_id: int
    shape: int
    walltime: int


class Dependency(Struct, frozen=True):
    """A job that must end first, and its state."""

    job_id: int
    state: JobState
    exit_code: int | None = None


class WaitingJob(Struct, frozen=True, kw_only=True):
    """A job that waits for a place. `start` is the requested date of a reservation.

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

    `decayed_by_user`: usage that decays with its age; empty where no queue is ordered by priority.
    """

    used: int = 0
    requested: int = 0
    used_by_user: dict[str, int] = {}
    requested_by_user: dict[str, int] = {}
    used_by_project: dict[str, int] = {}
    decayed_by_user: dict[str, float] = {}


class QuotaRule(Struct, frozen=True):
    """Limits on the resources, jobs and resource-seconds in use at once by the jobs it selects; -1 is no limit.

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
    """Maintenance: no job runs on these resources (ids) during [start, stop).

    `lost_job` is the number of a job that a lost database began and that still runs on them; 0 in maintenance proper.
    """

    name: str
    start: int
    stop: int
    resources: tuple[int, ...]
    lost_job: int = 0


class Promise(Struct, frozen=True):
    """The place that an earlier pass promised a waiting job; `resources` are ids."""

    moldable_id: int
    start: int
    resources: tuple[int, ...]


class SitePlan(Struct, frozen=True):
    """What a program of the site decided for its queue: places of jobs, in its own order.

    A start that is not in the future means now. Not `answered`: it was not heard yet, and the jobs wait for it.
    """

    program: str
    places: tuple[tuple[int, Promise], ...] = ()
    answered: bool = True


class Snapshot(Struct, frozen=True, kw_only=True):
    """One instant of the cluster. Queues by decreasing priority, jobs by increasing id.

    `recent`: how long the last two jobs of each user ran, in seconds, the last one first; where a queue predicts.
    `promised`: promises to waiting jobs, by job id; where a queue keeps dates.
    `site_plans`: what programs of the site decided, by queue. A queue that has a program and none here is planned by
    its built-in policy.
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
    site_plans: dict[str, SitePlan] = {}
