"""Settings of the planner; `config` fills them from the manual's keys."""

from msgspec import Struct

from oarlock.model.limits import QuotaBook
from oarlock.model.resource import DEFAULT_ORDER, ResourceOrder


class Fairness(Struct, frozen=True):
    """The manual's fair sharing: how far back, whose share should be how large (per cent), what weighs how much."""

    max_jobs: int = 1000
    project_targets: dict[str, float] = {}
    user_targets: dict[str, float] = {}
    project_weight: float = 3
    user_weight: float = 2
    requested_weight: float = 1


class Weights(Struct, frozen=True):
    """Multi-factor priority: what weighs how much, and what names are worth (per cent); times in seconds.

    `age_limit`: waiting longer than this adds nothing, so that age alone does not outweigh all other terms.
    `half_life`: usage of that age counts half.
    """

    age: float = 1.0
    share: float = 1.0
    size: float = 0.0
    slowdown: float = 0.0
    qos: float = 1.0
    project: float = 1.0
    age_limit: int = 7 * 86400
    half_life: int = 7 * 86400
    qos_values: dict[str, float] = {}
    project_values: dict[str, float] = {}


class PlanSettings(Struct, frozen=True, kw_only=True):
    """All times in seconds.

    `always_assigned` and `shared_when_suspended` are resource types. `wake_up`: Absent resources that can be woken
    count as usable. `pack`: nodes with jobs are filled before idle ones. `depth`: how many jobs of a queue get a place
    in one pass (None: all of them).
    """

    security_time: int = 1
    minimum_hole: int = 0
    order: tuple[ResourceOrder, ...] = DEFAULT_ORDER
    hierarchy: tuple[str, ...] = ()  # properties by which `scheduler_priority` is counted
    always_assigned: tuple[str, ...] = ()
    shared_when_suspended: tuple[str, ...] = ()
    besteffort_duration: int = 300
    besteffort_notice: int = 0  # kill this long before an accepted reservation starts
    reservation_patience: int = 300
    release_after_error: bool = True
    wake_up: bool = False
    wake_up_notice: int = 600
    pack: bool = False
    depth: int | None = None
    quotas: QuotaBook | None = None  # the reader of the snapshot resolves which rules hold
    fairness: Fairness = Fairness()
    weights: Weights = Weights()
