"""Quotas as a site writes them: rules, sets of rules with a name, and the calendar that says when each set holds."""

from msgspec import Struct

from oarlock.model.errors import ConfigRefused, OarlockError

ALWAYS = "quotas"
"""The name of the set that holds where the calendar says nothing."""

Date = tuple[int, int, int, int, int]
"""A local date: year, month, day, hour, minute."""


class BadQuotas(ConfigRefused):
    """Quotas that cannot be used as they are written."""


class UnknownQuota(OarlockError):
    """A rule that is not in the table."""

    http_status = 404


class QuotaAmount(Struct, frozen=True):
    """A limit; with `of_all`, so many times the number of resources there are. Less than 0 is no limit."""

    number: float
    of_all: bool = False

    def value(self, everything: int) -> float:
        """Return the limit for a cluster of so many resources."""
        return self.number * everything if self.of_all else self.number


class WrittenRule(Struct, frozen=True):
    """A rule as it is written: whom it speaks of, and its three limits (resource-hours in hours)."""

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
    """All that a site says about quotas. `otherwise` names the set for the rest of the week."""

    sets: dict[str, tuple[WrittenRule, ...]] = {}
    week: tuple[QuotaPeriod, ...] = ()
    oneshots: tuple[OneShotQuota, ...] = ()
    otherwise: str = ALWAYS
