"""The energy that a replay would have used, and what switching idle nodes off would have saved.

A simple model: a node with any job on it takes `busy` watts; without, `idle`; and `off` once it was idle for `timeout`
seconds, until its next job. Booting takes no time here. Where processors are identical, each is a node, and jobs are
packed: as few as possible are busy.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from oarlock.simulate.replay import ReplayedJob

JOULES = 3_600_000  # in a kilowatt-hour

Interval = tuple[int, int]


@dataclass(frozen=True, slots=True)
class PowerModel:
    """Watts of a node, and after how many idle seconds it would be switched off."""

    busy: float = 200
    idle: float = 100
    off: float = 10
    timeout: int = 600


@dataclass(frozen=True, slots=True)
class Energy:
    """Kilowatt-hours from the first submission to the last end."""

    always_on_kwh: float
    with_shutdown_kwh: float


@dataclass(slots=True)
class _Seconds:
    """Seconds of nodes: busy, idle for less than the timeout, idle beyond it."""

    busy: int = 0
    idle: int = 0
    off: int = 0

    def rest(self, seconds: int, timeout: int, nodes: int = 1) -> None:
        """Count idle time of nodes."""
        short = min(seconds, timeout)
        self.idle += short * nodes
        self.off += (seconds - short) * nodes


def of_nodes(ran: Sequence[ReplayedJob], nodes: Sequence[int], power: PowerModel) -> Energy:
    """Count the energy of nodes, each given as the set of its resources."""
    begin, end = _span(ran)
    seconds = _Seconds()
    for node in nodes:
        free_since = begin
        for start, stop in _joined((job.start, job.end) for job in ran if job.resources & node):
            seconds.rest(start - free_since, power.timeout)
            seconds.busy += stop - start
            free_since = stop
        seconds.rest(end - free_since, power.timeout)
    return _energy(seconds, power)


def of_pool(ran: Sequence[ReplayedJob], size: int, power: PowerModel) -> Energy:
    """Count the energy of processors that are all alike; the one that rested last works first."""
    begin, end = _span(ran)
    seconds = _Seconds()
    resting: list[tuple[int, int]] = [(begin, size)]  # since when, how many; those at the end began last
    for instant, change in _changes(ran):
        if change < 0:
            resting.append((instant, -change))
        left = max(change, 0)
        while left:
            since, count = resting.pop()
            woken = min(count, left)
            seconds.rest(instant - since, power.timeout, woken)
            left -= woken
            if count > woken:
                resting.append((since, count - woken))
    for since, count in resting:
        seconds.rest(end - since, power.timeout, count)
    seconds.busy = sum(job.job.run * job.job.processors for job in ran)
    return _energy(seconds, power)


def _span(ran: Sequence[ReplayedJob]) -> Interval:
    return min((job.job.submitted for job in ran), default=0), max((job.end for job in ran), default=0)


def _changes(ran: Sequence[ReplayedJob]) -> list[tuple[int, int]]:
    """Return how many more or fewer processors are busy from when on; at one instant ends come first."""
    ends = [(job.end, -job.job.processors) for job in ran if job.job.run]
    return sorted([*ends, *((job.start, job.job.processors) for job in ran if job.job.run)])


def _joined(intervals: Iterable[Interval]) -> list[Interval]:
    joined: list[Interval] = []
    for start, stop in sorted(intervals):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], stop))
        else:
            joined.append((start, stop))
    return joined


def _energy(seconds: _Seconds, power: PowerModel) -> Energy:
    working = seconds.busy * power.busy
    resting = seconds.idle * power.idle
    return Energy(
        always_on_kwh=(working + resting + seconds.off * power.idle) / JOULES,
        with_shutdown_kwh=(working + resting + seconds.off * power.off) / JOULES,
    )
