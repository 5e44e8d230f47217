"""What a site limits: quotas as it writes them (rules, named sets, their calendar), and maintenance windows."""

from msgspec import Struct

from oarlock.model.errors import ConfigRefused, NotFound, OarlockError

ALWAYS = "quotas"
"""The name of the set that holds where the calendar names none."""

Date = tuple[int, int, int, int, int]
"""A local date: year, month, day, hour, minute."""


class BadQuotas(ConfigRefused):
    """Quotas that cannot be used as they are written."""


class UnknownQuota(NotFound):
    """A rule that is not in the table."""


class QuotaAmount(Struct, frozen=True):
    """A limit; with `of_all`, a multiple of the number of resources of the cluster. A negative number is no limit."""

    number: float
    of_all: bool = False

    def value(self, everything: int) -> float:
        """Return the limit for a cluster of so many resources."""
        return self.number * everything if self.of_all else self.number


class WrittenRule(Struct, frozen=True):
    """A rule as it is written: which jobs it selects, and its three limits (resource-hours in hours)."""

    queue: str
    project: str
    job_type: str
    user: str
    resources: QuotaAmount
    jobs: QuotaAmount
    hours: QuotaAmount


class QuotaPeriod(Struct, frozen=True):
    """Seconds [begin, end) of a weekday (0 is Monday) on which a set holds."""

    weekday: int
    begin: int
    end: int
    name: str


class OneShotQuota(Struct, frozen=True):
    """A set that holds once, from one date to another, whatever the week says."""

    begin: Date
    end: Date
    name: str


class QuotaBook(Struct, frozen=True):
    """All quotas of a site. `otherwise` names the set for the rest of the week."""

    sets: dict[str, tuple[WrittenRule, ...]] = {}
    week: tuple[QuotaPeriod, ...] = ()
    oneshots: tuple[OneShotQuota, ...] = ()
    otherwise: str = ALWAYS


class UnknownWindow(NotFound):
    """A maintenance window that is not there."""


class BadWindow(OarlockError):
    """A maintenance window that cannot be."""


class Maintenance(Struct, frozen=True):
    """A window [start, stop) as an administrator said it; `where` is a condition on resources, nothing for all."""

    id: int
    name: str
    start: int
    stop: int
    where: str
    by: str
