"""The energy ledger: what nodes took from sample to sample, divided and added up until it is handed over.

A node is metered by its own samples, or by its management controller that the collector reads itself. While such
readings come they count, and samples only say who held what in between; when they cease, the samples of that time are
booked by what meters they have.

`booked` says up to which instant a node's energy was handed over by an earlier process. What begins before it is not
booked again, so that a log that is read a second time counts once.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from oarlock.measure.energy.division import (
    DAY,
    BookingKey,
    EnergyBooking,
    EnergyRules,
    HeldByJob,
    NodeState,
    divide,
    not_divided,
)
from oarlock.measure.energy.meter import CONTROLLER, MeteredEnergy, NodeReading, count_cores, gpu_joules, measure

READING_SECONDS = 60.0
"""How often a management controller is read."""

_LONGEST_READING = 3 * READING_SECONDS
_MILLI = 1000


class PowerReading(NamedTuple):
    """What a management controller said: watts of the whole machine at an instant (epoch seconds)."""

    at: float
    watts: float


@dataclass(slots=True)
class _MeteredNode:
    """What is known of a node. `states` are its samples around and since the last reading of its controller."""

    booked: int = 0
    last: NodeState | None = None
    reading: PowerReading | None = None
    states: list[NodeState] = field(default_factory=list)


class EnergyLedger:
    """Divides the energy of nodes, and hands over what it booked."""

    def __init__(self, rules: EnergyRules, booked: Mapping[str, int] | None = None) -> None:
        self._rules = rules
        self._nodes = {node: _MeteredNode(until) for node, until in (booked or {}).items()}
        self._booked: dict[BookingKey, EnergyBooking] = {}

    def take(self, name: str, state: NodeState) -> None:
        """Take a sample of a node: book the energy since the last one, unless a controller is to tell it."""
        node, at = self._nodes.setdefault(name, _MeteredNode()), state.reading.at
        if node.last is not None and at <= node.last.reading.at:
            return  # late or doubled
        if node.reading is not None and at - node.reading.at > _LONGEST_READING:
            self._leave_controller(name, node)
        if node.reading is not None:
            state = _with_cores(node.last, state)
            node.states.append(state)
        elif node.last is not None:
            self._book_samples(name, node, node.last, state)
        node.last = state

    def take_reading(self, name: str, reading: PowerReading) -> None:
        """Take what the controller of a node said: book the energy since it said something last."""
        node = self._nodes.setdefault(name, _MeteredNode())
        if node.reading is not None and reading.at <= node.reading.at:
            return
        if node.reading is not None and reading.at - node.reading.at > _LONGEST_READING:
            self._leave_controller(name, node)
        if node.reading is None:
            node.states = [] if node.last is None else [node.last]
        else:
            booking = EnergyBooking()
            for part in _between_readings(node.reading, reading, node.states, self._rules):
                booking.add(part)
            self._book(name, node, CONTROLLER, node.reading.at, reading.at, booking)
        node.reading = reading
        earlier = [state for state in node.states if state.reading.at <= reading.at]
        node.states = [*earlier[-1:], *(state for state in node.states if state.reading.at > reading.at)]

    def hand_over(self) -> dict[BookingKey, EnergyBooking]:
        """Return what was booked since the last call."""
        booked, self._booked = self._booked, {}
        return booked

    def _leave_controller(self, name: str, node: _MeteredNode) -> None:
        """Book the samples since the last reading by their own meters: the controller is away."""
        if node.reading is None:
            return
        since = node.reading.at
        for before, after in pairwise([state for state in node.states if state.reading.at >= since]):
            self._book_samples(name, node, before, after)
        node.reading, node.states = None, []

    def _book_samples(self, name: str, node: _MeteredNode, before: NodeState, after: NodeState) -> None:
        rules = self._rules
        metered = measure(
            before.reading, after.reading, longest=longest_hole(rules, before), configured=rules.configured
        )
        if metered is not None:
            booking = divide(metered, before, after, rules)
            self._book(name, node, metered.method, before.reading.at, after.reading.at, booking)

    def _book(
        self, name: str, node: _MeteredNode, method: str, since: float, until: float, booking: EnergyBooking
    ) -> None:
        """Book what a stretch took in the day of its end, unless it begins before what is booked already."""
        if round(since * _MILLI) < node.booked:
            return
        node.booked = booking.until = round(until * _MILLI)
        self._booked.setdefault(BookingKey(name, int(until) // DAY * DAY, method), EnergyBooking()).add(booking)


def _with_cores(before: NodeState | None, state: NodeState) -> NodeState:
    """Add the number of cores that two samples tell: beside a controller's reading, one alone may have to do."""
    cores = None if before is None else count_cores(before.reading, state.reading)
    return state if not cores else state._replace(reading=state.reading._replace(cores=cores))


def longest_hole(rules: EnergyRules, before: NodeState) -> float:
    """Return for how long nothing may come after a sample: nodes without jobs are sampled less often."""
    return rules.longest if before.jobs else max(rules.longest, rules.longest_idle)


def _between_readings(
    first: PowerReading, last: PowerReading, states: list[NodeState], rules: EnergyRules
) -> Iterator[EnergyBooking]:
    """Divide the energy between two readings of a controller, from sample to sample; watts go straight in between."""
    inside = [state.reading.at for state in states if first.at < state.reading.at < last.at]
    for begin, end in pairwise([first.at, *inside, last.at]):
        middle = (begin + end) / 2 - first.at
        watts = first.watts + (last.watts - first.watts) * middle / (last.at - first.at)
        yield _one_stretch(begin, end, watts * (end - begin), states, rules)


def _one_stretch(begin: float, end: float, joules: float, states: list[NodeState], rules: EnergyRules) -> EnergyBooking:
    """Divide a stretch in which no sample lies, by the samples before and after it."""
    before = next((state for state in reversed(states) if state.reading.at <= begin), None)
    after = next((state for state in states if state.reading.at >= end), None)
    held_by = before or after
    if held_by is None:
        return not_divided(joules, end - begin, idle=True)  # nobody ever reported a job there
    hole = (after.reading.at if after else end) - (before.reading.at if before else begin)
    if hole > longest_hole(rules, held_by):
        is_idle = not any(state.jobs for state in (before, after) if state is not None)
        return not_divided(joules, end - begin, idle=is_idle)
    first, last = before or held_by, after or held_by
    seconds = last.reading.at - first.reading.at
    gpus = gpu_joules(first.reading, last.reading, seconds) if seconds > 0 else {}
    part = (end - begin) / seconds if seconds > 0 else 0.0
    metered = MeteredEnergy(CONTROLLER, end - begin, joules, {uuid: energy * part for uuid, energy in gpus.items()})
    return divide(metered, first, last, rules)


class KnownHolding(NamedTuple):
    """A job held so many cores of a node from one instant to another, as its resource manager knows."""

    job: int
    cores: int
    start: float
    stop: float


def book_known(
    readings: Sequence[PowerReading],
    held: Sequence[KnownHolding],
    *,
    cores: int,
    rules: EnergyRules,
    gpus: Mapping[int, Sequence[PowerReading]],
) -> dict[int, EnergyBooking]:
    """Divide what the meter of a node told, by day, where it is known to the second who held what.

    `gpus` has the power of the GPUs of jobs. Between readings that are three times as far apart as usual is a hole.
    """
    gaps = [later.at - earlier.at for earlier, later in pairwise(readings)]
    longest = max(_LONGEST_READING, 3 * median(gaps)) if gaps else 0.0
    days: dict[int, EnergyBooking] = {}
    for first, last in pairwise(readings):
        if last.at - first.at > longest:
            continue
        for begin, end in pairwise(_edges(first.at, last.at, held)):
            joules = (_watts_at(begin, first, last) + _watts_at(end, first, last)) / 2 * (end - begin)
            booking = days.setdefault(int(begin) // DAY * DAY, EnergyBooking())
            booking.add(_known_stretch(begin, end, joules, held, cores, rules, gpus))
            booking.until = round(end * _MILLI)
    return days


def _edges(begin: float, end: float, held: Sequence[KnownHolding]) -> list[float]:
    """Return the instants in a stretch at which somebody else holds something, its ends, and midnight."""
    changes = {instant for holding in held for instant in (holding.start, holding.stop)}
    changes.add(float(int(end) // DAY * DAY))
    return sorted({begin, end, *(instant for instant in changes if begin < instant < end)})


def _watts_at(instant: float, first: PowerReading, last: PowerReading) -> float:
    return first.watts + (last.watts - first.watts) * (instant - first.at) / (last.at - first.at)


def _known_stretch(
    begin: float, end: float, joules: float, held: Sequence[KnownHolding], cores: int, rules: EnergyRules,
    gpus: Mapping[int, Sequence[PowerReading]],
) -> EnergyBooking:  # fmt: skip
    """Divide a stretch in which everybody holds the same from its beginning to its end."""
    present = [holding for holding in held if holding.start <= begin and end <= holding.stop]
    drawn = {
        str(holding.job): watts * (end - begin)
        for holding in present
        if (watts := _mean_watts(gpus.get(holding.job, ()), begin, end)) is not None
    }
    jobs = {
        holding.job: HeldByJob(holding.cores, None, frozenset({str(holding.job)} & drawn.keys())) for holding in present
    }
    states = (NodeState(NodeReading(at, {}, {}, {}, cores=cores), jobs) for at in (begin, end))
    return divide(MeteredEnergy(CONTROLLER, end - begin, joules, drawn), next(states), next(states), rules)


def _mean_watts(readings: Sequence[PowerReading], begin: float, end: float) -> float | None:
    """Return the mean of the readings in a stretch, or else that of the last one shortly before it."""
    inside = [reading.watts for reading in readings if begin <= reading.at <= end]
    if not inside:
        inside = [reading.watts for reading in readings if begin - READING_SECONDS <= reading.at < begin][-1:]
    return sum(inside) / len(inside) if inside else None
