"""Whose energy it was: what a meter counted, divided among jobs, idle resources and what nobody is known to have.

Energy of a GPU goes to the job that has it, that of a GPU that nobody has to idle. The rest goes by the cores that jobs
hold (`cores`); or, above what the node draws when idle, by their CPU time (`cpu`). Cores that nobody holds are idle.

Amounts are whole millijoules, and what rounding leaves goes to the largest share, so that for every node and day
jobs + idle + not assigned = meter, exactly.
"""

import struct
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from oarlock.measure.energy.meter import (
    CONFIGURED,
    ConfiguredWatts,
    MeteredEnergy,
    NodeReading,
    Values,
    count_cores,
    read_gpus,
    read_node,
)
from oarlock.node.measure.stream import IDLE_SECONDS

CORES, CPU = "cores", "cpu"
DAY = 86_400

_MILLI = 1000
_IDLE, _NOT_ASSIGNED = -1, -2  # no job has such a number
_MOST = 1e15  # of seconds, joules or watts
_MOST_CORES = 1e5
_MOST_TABLES = 10_000  # of names whose columns are remembered

Key = TypeVar("Key", bound=Hashable)


class EnergyRules(NamedTuple):
    """How a site divides energy. `configured` is for nodes without a meter.

    `period` is the time between two samples of a node with jobs, in seconds. What is longer than `longest`, or on a
    node without jobs than `longest_idle`, is a hole in which nothing was measured.
    """

    split: str = CORES
    longest: float = 30.0
    idle_watts: float = 0.0
    configured: ConfiguredWatts | None = None
    longest_idle: float = 3 * IDLE_SECONDS
    period: float = 10.0


class HeldByJob(NamedTuple):
    """What a job holds on a node at an instant: its cores, the CPU seconds it has used, and its GPUs by uuid."""

    cores: float
    cpu_seconds: float | None
    gpus: frozenset[str]


class NodeState(NamedTuple):
    """A node at an instant: its meters, and who holds what."""

    reading: NodeReading
    jobs: dict[int, HeldByJob]


@dataclass(slots=True)
class EnergyBooking:
    """What one method counted on a node and day, in millijoules, and the seconds in which it did, also of each job.

    `until` is the end of what is in it, in milliseconds: what begins before is booked.
    """

    meter: int = 0
    idle: int = 0
    not_assigned: int = 0
    seconds: float = 0.0
    jobs: dict[int, int] = field(default_factory=dict)
    job_seconds: dict[int, float] = field(default_factory=dict)
    until: int = 0

    def add(self, other: "EnergyBooking") -> None:
        """Add what was counted on the same node and day by the same method."""
        self.meter += other.meter
        self.idle += other.idle
        self.not_assigned += other.not_assigned
        self.seconds += other.seconds
        self.until = max(self.until, other.until)
        for job, energy in other.jobs.items():
            self.jobs[job] = self.jobs.get(job, 0) + energy
        for job, seconds in other.job_seconds.items():
            self.job_seconds[job] = self.job_seconds.get(job, 0.0) + seconds


class BookingKey(NamedTuple):
    """Where energy is booked. A day begins at midnight UTC."""

    node: str
    day: int
    method: str


_OF_NODE = (
    "power_watts",
    "rapl_energy_joules_total",
    "sensor_power_watts",
    "cpu_seconds_total",
    "core_cpu_seconds_total",
    "gpu_",
)
_OF_JOB = ("cpus", "cpu_seconds_total", "gpu_energy", "gpu_power")


def energy_columns(names: tuple[str, ...], *, of_node: bool) -> tuple[int, ...]:
    """Return the places of the values that the ledger reads: few of hundreds."""
    wanted = _OF_NODE if of_node else _OF_JOB
    return tuple(place for place, name in enumerate(names) if name.startswith(wanted))


class EnergyColumns:
    """Reads what the ledger needs of rows: where it stands is found once for each tuple of names."""

    __slots__ = ("_tables",)

    def __init__(self) -> None:
        self._tables: dict[tuple[int, bool], tuple[tuple[str, ...], tuple[str, ...], struct.Struct]] = {}

    def read(self, names: tuple[str, ...], packed: bytes, *, of_node: bool) -> dict[str, float]:
        """Read those values of a row, by name."""
        entry = self._tables.get((id(names), of_node))
        if entry is None:
            if len(self._tables) > _MOST_TABLES:
                self._tables = {}
            columns = energy_columns(names, of_node=of_node)
            # The tuple is kept, since its id is its name here.
            entry = names, tuple(names[column] for column in columns), _layout(columns, len(names))
            self._tables[id(names), of_node] = entry
        return dict(zip(entry[1], entry[2].unpack(packed), strict=True))


def _layout(columns: tuple[int, ...], width: int) -> struct.Struct:
    """Return what unpacks some of the doubles of a row, and passes over the others."""
    wanted = set(columns)
    return struct.Struct("<" + "".join("d" if column in wanted else "8x" for column in range(width)))


def read_state(at: float, node: Values, jobs: Mapping[int, Values]) -> NodeState:
    """Read a sample. What nobody can believe is left out; a job whose CPUs are unknown holds none that are known."""
    held = {job: read_holding(believable(values)) for job, values in jobs.items()}
    return NodeState(read_node(at, believable(node)), held)


def read_holding(values: Values) -> HeldByJob:
    """Read what a job holds."""
    cpus = values.get("cpus", 0.0)
    cores = cpus if cpus <= _MOST_CORES else 0.0
    return HeldByJob(cores, values.get("cpu_seconds_total"), frozenset(read_gpus(values)))


def believable(values: Values) -> Values:
    """Return the values without those that are no amounts of anything: negative ones, endless ones, no numbers."""
    return {name: value for name, value in values.items() if 0.0 <= value <= _MOST}


def divide(metered: MeteredEnergy, before: NodeState, after: NodeState, rules: EnergyRules) -> EnergyBooking:
    """Divide the energy between two samples of a node."""
    total = round(metered.total * _MILLI)
    gpus = _bounded({uuid: joules * _MILLI for uuid, joules in metered.gpus.items()}, total)
    once = _weight_of_one_end(before, after, rules.period)
    owners = _gpu_owners(before, after, once)
    weights: dict[int, float] = {}
    for uuid, energy in gpus.items():
        for owner, part in owners.get(uuid, {_IDLE: 1.0}).items():
            weights[owner] = weights.get(owner, 0.0) + energy * part
    rest = total - sum(gpus.values())
    for owner, part in _rest_parts(rest / _MILLI, metered, before, after, rules, once).items():
        weights[owner] = weights.get(owner, 0.0) + rest * part
    shares = apportion(total, weights)
    return EnergyBooking(
        meter=total,
        idle=shares.pop(_IDLE, 0),
        not_assigned=shares.pop(_NOT_ASSIGNED, 0),
        jobs={job: share for job, share in shares.items() if share},
        job_seconds={job: metered.seconds * part for job, part in _present(before, after, once).items()},
        seconds=metered.seconds,
    )


def _present(before: NodeState, after: NodeState, once: float) -> dict[int, float]:
    """Return for which part of the time jobs were there: at both ends all of it, at one end a part."""
    both = before.jobs.keys() & after.jobs.keys()
    return {job: 1.0 if job in both else once for job in before.jobs.keys() | after.jobs.keys()}


def apportion(total: int, weights: Mapping[Key, float]) -> dict[Key, int]:
    """Divide a whole number by weights into whole numbers that add up to it; what is left goes to the largest."""
    everything = sum(weights.values())
    if total <= 0 or everything <= 0:
        return {}
    shares = {owner: min(int(total * weight / everything), total) for owner, weight in weights.items()}
    largest = max(shares, key=lambda owner: weights[owner])
    shares[largest] += total - sum(shares.values())
    return shares


def _bounded(parts: Mapping[str, float], total: int) -> dict[str, float]:
    """Scale parts down where they exceed the whole: a controller may lag behind the GPUs."""
    everything = sum(parts.values())
    factor = total / everything if everything > total else 1.0
    return {name: part * factor for name, part in parts.items()}


def not_divided(joules: float, seconds: float, *, idle: bool) -> EnergyBooking:
    """Book the energy of a stretch of which no samples tell who held what."""
    total = round(joules * _MILLI)
    return EnergyBooking(total, total if idle else 0, 0 if idle else total, seconds)


def _weight_of_one_end(before: NodeState, after: NodeState, period: float) -> float:
    """Return how long a job was there that is in one of two samples, as a part of the time between them.

    Half of it; of an idle node samples are far apart, and a job begins at most a period before the sample it is in.
    """
    seconds = after.reading.at - before.reading.at
    return 0.5 * min(period / seconds, 1.0) if period and seconds > 0 else 0.5


def _gpu_owners(before: NodeState, after: NodeState, once: float) -> dict[str, dict[int, float]]:
    """Return who had each GPU: a job at both ends all of the time, one at one end a part of it."""
    parts: dict[str, dict[int, float]] = {}
    for uuid in _gpus(before) | _gpus(after):
        ends = [job for state in (before, after) for job, held in state.jobs.items() if uuid in held.gpus]
        had = {job: 1.0 if ends.count(job) > 1 else once for job in ends}
        together = sum(had.values())
        scale = max(together, 1.0)
        parts[uuid] = {job: part / scale for job, part in had.items()}
        if together < 1.0:
            parts[uuid][_IDLE] = 1.0 - together
    return parts


def _gpus(state: NodeState) -> set[str]:
    return {uuid for held in state.jobs.values() for uuid in held.gpus}


def _rest_parts(
    joules: float, metered: MeteredEnergy, before: NodeState, after: NodeState, rules: EnergyRules, once: float
) -> dict[int, float]:
    """Return who gets which part of what is not the GPUs'."""
    by_cores = _core_parts(before, after, once)
    if rules.split != CPU or joules <= 0:
        return by_cores
    by_time = _time_parts(before, after)
    if by_time is None:
        return by_cores
    idle_watts = rules.configured.idle if metered.method == CONFIGURED and rules.configured else rules.idle_watts
    base = min(idle_watts * metered.seconds / joules, 1.0)
    return _mix(by_cores, base, by_time, 1.0 - base)


def _core_parts(before: NodeState, after: NodeState, once: float) -> dict[int, float]:
    """Divide by cores held, by a part of them for who was there at one end only; without a count of cores, not at all.

    A node without jobs is idle, however many cores it has.
    """
    held = {job: _mean_cores(before, after, job, once) for job in before.jobs.keys() | after.jobs.keys()}
    if not held:
        return {_IDLE: 1.0}
    together = sum(held.values())
    cores = count_cores(before.reading, after.reading)
    if cores is None:
        return {_NOT_ASSIGNED: 1.0}
    whole = max(float(cores), together)
    parts = {job: count / whole for job, count in held.items() if count}
    parts[_IDLE] = max(1.0 - together / whole, 0.0)
    return parts


def _mean_cores(before: NodeState, after: NodeState, job: int, once: float) -> float:
    ends = [state.jobs[job].cores for state in (before, after) if job in state.jobs]
    return sum(ends) / 2 if len(ends) > 1 else ends[0] * once


def _time_parts(before: NodeState, after: NodeState) -> dict[int, float] | None:
    """Divide by CPU time; what no job used (the system, and jobs that came and went) is not assigned."""
    first, last = before.reading.busy_seconds, after.reading.busy_seconds
    if first is None or last is None or last <= first:
        return None
    used = {job: seconds for job in after.jobs if (seconds := _cpu_seconds(before, after, job)) > 0}
    whole = max(last - first, sum(used.values()))
    parts = {job: seconds / whole for job, seconds in used.items()}
    parts[_NOT_ASSIGNED] = max(1.0 - sum(parts.values()), 0.0)
    return parts


def _cpu_seconds(before: NodeState, after: NodeState, job: int) -> float:
    last = after.jobs[job].cpu_seconds
    first = before.jobs[job].cpu_seconds if job in before.jobs else 0.0
    return 0.0 if last is None or first is None else last - first


def _mix(base: Mapping[int, float], weight: float, other: Mapping[int, float], rest: float) -> dict[int, float]:
    return {key: base.get(key, 0.0) * weight + other.get(key, 0.0) * rest for key in base.keys() | other.keys()}
