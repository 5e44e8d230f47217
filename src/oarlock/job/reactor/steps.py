"""The steps between which the reactor chooses; a driver (the server's loops, a simulated cluster) carries them out."""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from oarlock.job.run.reports import IncomingReport


class Moment(NamedTuple):
    """An instant by both clocks: wall time in epoch seconds, and monotonic seconds for pauses."""

    now: float
    steady: float


@dataclass(frozen=True, slots=True)
class ApplyReports:
    """Apply reports in one transaction. `retry`: a batch with this report failed; it is the only one now."""

    reports: tuple[IncomingReport, ...]
    retry: bool = False


@dataclass(frozen=True, slots=True)
class BeginLaunches:
    """Begin the launches of jobs whose nodes were reached."""

    jobs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class QuickPass:
    """Plan the first `depth` waiting jobs of each queue; with `arrays`, the first members of arrays behind them."""

    depth: int
    arrays: bool


@dataclass(frozen=True, slots=True)
class WholePass:
    """Plan all waiting jobs; without `dates` only to find those that start now."""

    dates: bool


class Periodic(StrEnum):
    """Steps that are due because time passed."""

    WATCH = "watch"  # deadlines
    CHECK_NODES = "check nodes"
    FORGET_REQUESTS = "forget requests"
    SEND_ALERTS = "send alerts"
    SEND_MAILS = "send mails"
    SEND_DIGESTS = "send digests"
    ACT_ON_FINDINGS = "act on findings"
    BOOK_USAGE = "book usage"


Step = ApplyReports | BeginLaunches | QuickPass | WholePass
