"""What samples say of one attempt of a job on one node, added up row by row in a few hundred bytes.

Counters count from the beginning of the attempt, whose cgroup was new: the first value is what was used before the
first sample. A counter that falls adds nothing. Between two samples that are further apart than `longest` there is a
hole: counters go on over it, while gauges are not known in it.

The result depends on the order of rows only, not on how they are split: an accumulator that is stored, read again and
fed with the rest says the same.
"""

from collections.abc import Iterable
from typing import TypeVar

from msgspec import Struct, field

from oarlock.measure.collect.sums.row_values import GpuPlaces, Row, RowValues, number_at, sum_at
from oarlock.model.summary import DayUsage, GpuMeasured, NodeMeasured

DAY = 86_400

_WINDOW, _MARK = 600.0, 60.0  # the ten minutes, and how finely they are moved
_IDLE = 0.01  # below this part a core or a GPU is idle
_NEAR = 0.95  # of the limit
_MOST_EXECUTABLES, _KEPT_EXECUTABLES = 64, 8

Amount = TypeVar("Amount", int, float)

Mark = tuple[float, float, float]
"""An instant, and two sums at that instant."""


class RateWindow(Struct):
    """The least rate of one sum, and the most of another, over any ten minutes. Moves by whole minutes."""

    marks: list[Mark] = []
    least: float | None = None
    most: float | None = None

    def take(self, at: float, first: float, second: float) -> None:
        """Take both sums at an instant."""
        marks = self.marks
        if marks and at - marks[-1][0] < _MARK:
            return
        marks.append((at, first, second))
        while len(marks) > 1 and at - marks[1][0] >= _WINDOW:
            marks.pop(0)
        begin, first_before, second_before = marks[0]
        seconds = at - begin
        if seconds < _WINDOW:
            return
        low, high = (first - first_before) / seconds, (second - second_before) / seconds
        self.least = low if self.least is None else min(self.least, low)
        self.most = high if self.most is None else max(self.most, high)


class CounterSum(Struct, gc=False):
    """A counter that never falls: what it has grown by since the attempt began. None until it was seen."""

    total: float | None = None
    last: float = 0.0

    def take(self, value: float | None) -> float:
        """Take a value; return by how much it has grown."""
        if value is None:
            return 0.0
        growth = max(value - self.last, 0.0)
        self.last = value
        self.total = growth if self.total is None else self.total + growth
        return growth


class GaugeSum(Struct, gc=False):
    """The mean and the most of what samples saw."""

    count: int = 0
    total: float = 0.0
    most: float | None = None

    def take(self, value: float | None) -> None:
        """Take a value."""
        if value is None:
            return
        self.count += 1
        self.total += value
        self.most = value if self.most is None else max(self.most, value)

    @property
    def mean(self) -> float | None:
        """The mean; None if there was no value."""
        return self.total / self.count if self.count else None


class GpuAccumulator(Struct):
    """A GPU of a job."""

    model: str = ""
    seconds: float = 0.0
    busy_seconds: float = 0.0
    last: float | None = None
    busy: GaugeSum = field(default_factory=GaugeSum)
    memory: GaugeSum = field(default_factory=GaugeSum)
    memory_total: float | None = None
    window: RateWindow = field(default_factory=RateWindow)
    worked: bool = False
    idle: float = 0.0
    idle_longest: float = 0.0
    idle_after_work: float = 0.0

    def take(self, row: Row, places: GpuPlaces, *, elapsed: float | None) -> float:
        """Take a row; `elapsed` is the time since the row before, None over a hole. Return for how long it computed."""
        self.memory.take(number_at(row, places.memory))
        total = number_at(row, places.memory_total)
        self.memory_total = self.memory_total if total is None else total
        now, before = number_at(row, places.busy), self.last
        self.last = now
        if now is None:
            return 0.0
        self.busy.take(now)
        computed = 0.0
        if elapsed is None or before is None:
            self.idle = 0.0
        else:
            computed = (before + now) / 2 * elapsed
            self.seconds += elapsed
            self.busy_seconds += computed
            self._take_idle(elapsed, is_idle=now < _IDLE and before < _IDLE)
        self.worked = self.worked or now >= _IDLE
        # The window is over measured time: a hole in it is neither idle nor busy.
        self.window.take(self.seconds, self.busy_seconds, 0.0)
        return computed

    def _take_idle(self, elapsed: float, *, is_idle: bool) -> None:
        self.idle = self.idle + elapsed if is_idle else 0.0
        self.idle_longest = max(self.idle_longest, self.idle)
        if self.worked:
            self.idle_after_work = max(self.idle_after_work, self.idle)

    def measured(self) -> GpuMeasured:
        """Return what is kept of it."""
        mean = self.busy_seconds / self.seconds if self.seconds else self.busy.mean
        return GpuMeasured(
            model=self.model,
            seconds=_short(self.seconds),
            busy_mean_ratio=_optional(mean),
            busy_most_ratio=self.busy.most,
            busy_least_10min_ratio=_optional(self.window.least),
            idle_seconds=_short(self.idle_longest),
            idle_after_work_seconds=_short(self.idle_after_work),
            idle_now_seconds=_short(self.idle),
            memory_mean_bytes=_optional(self.memory.mean),
            memory_most_bytes=self.memory.most,
            memory_total_bytes=self.memory_total,
        )


class NodeAccumulator(Struct):
    """An attempt of a job on a node. Instants are epoch seconds."""

    since: float = 0.0
    until: float = 0.0
    samples: int = 0
    seconds: float = 0.0
    cores: float | None = None
    node_cores: int | None = None
    cpu: CounterSum = field(default_factory=CounterSum)
    cpu_most: float | None = None
    idle: float = 0.0
    idle_longest: float = 0.0
    window: RateWindow = field(default_factory=RateWindow)
    by_core: list[float] = []
    asked: float | None = None
    own: GaugeSum = field(default_factory=GaugeSum)
    own_last: float | None = None
    own_byte_seconds: float = 0.0
    own_seconds: float = 0.0
    near: int | None = None
    cache: GaugeSum = field(default_factory=GaugeSum)
    peak: float | None = None
    limit_hits: CounterSum = field(default_factory=CounterSum)
    oom_kills: CounterSum = field(default_factory=CounterSum)
    runnable: GaugeSum = field(default_factory=GaugeSum)
    processes: GaugeSum = field(default_factory=GaugeSum)
    threads: dict[str, int] = {}
    executable_cpu: dict[str, CounterSum] = {}
    open_files: GaugeSum = field(default_factory=GaugeSum)
    scratch: int | None = None
    read: CounterSum = field(default_factory=CounterSum)
    written: CounterSum = field(default_factory=CounterSum)
    block_read: CounterSum = field(default_factory=CounterSum)
    block_written: CounterSum = field(default_factory=CounterSum)
    calls: CounterSum = field(default_factory=CounterSum)
    received: float | None = None
    sent: float | None = None
    traffic_before: tuple[float, float] | None = None
    gpus: dict[str, GpuAccumulator] = {}
    days: dict[int, DayUsage] = {}

    def take(self, at: float, values: RowValues, packed: bytes | memoryview, *, longest: float) -> None:
        """Take a row; one that is not later than the last is left out."""
        if self.samples and at <= self.until:
            return
        row = values.unpack(packed)
        elapsed = at - self.until if self.samples else 0.0
        if not self.samples:
            self.since = at
        self.until = at
        self.samples += 1
        whole = 0.0 < elapsed <= longest
        if whole:
            self.seconds += elapsed
        day = self.days.setdefault(int(at // DAY) * DAY, DayUsage())
        self._take_cpu(at, row, values, elapsed, day, whole=whole)
        self._take_memory(row, values, elapsed, day, whole=whole)
        self._take_processes(row, values)
        for places in values.gpus:
            gpu = self.gpus.get(places.uuid)
            if gpu is None:
                gpu = self.gpus[places.uuid] = GpuAccumulator(model=places.model)
            before = gpu.seconds
            day.gpu_busy_seconds += gpu.take(row, places, elapsed=elapsed if whole else None)
            day.gpu_seconds += gpu.seconds - before

    def _take_cpu(self, at: float, row: Row, values: RowValues, elapsed: float, day: DayUsage, *, whole: bool) -> None:
        cores = number_at(row, values.cpus)
        self.cores = self.cores if cores is None else cores
        self.calls.take(sum_at(row, values.calls))
        used = number_at(row, values.cpu)
        if used is None:
            return
        grown = self.cpu.take(used)
        day.core_busy_seconds += grown
        if values.cores:
            self.by_core = [row[place] for place in values.cores]
        self.window.take(at, self.cpu.total or 0.0, self.calls.total or 0.0)
        if elapsed <= 0:
            return
        if whole:
            self.cpu_most = max(self.cpu_most or 0.0, grown / elapsed)
        # The counter goes on over a hole, so it is known there as well.
        self.idle = self.idle + elapsed if grown / elapsed < _IDLE * (self.cores or 1.0) else 0.0
        self.idle_longest = max(self.idle_longest, self.idle)

    def _take_memory(self, row: Row, values: RowValues, elapsed: float, day: DayUsage, *, whole: bool) -> None:
        limit = number_at(row, values.limit)
        self.asked = self.asked if limit is None else limit
        peak = number_at(row, values.peak)
        self.peak = self.peak if peak is None else max(peak, self.peak or 0.0)
        self.limit_hits.take(number_at(row, values.limit_hits))
        self.oom_kills.take(number_at(row, values.oom_kills))
        shared = number_at(row, values.shared) or 0.0
        cache = number_at(row, values.cache)
        self.cache.take(None if cache is None else max(cache - shared, 0.0))
        anonymous, before = number_at(row, values.anonymous), self.own_last
        self.own_last = own = None if anonymous is None else anonymous + shared
        if own is None:
            return
        self.own.take(own)
        if limit:
            self.near = (self.near or 0) + (own > _NEAR * limit)
        if whole and before is not None:
            used = (before + own) / 2 * elapsed
            self.own_byte_seconds += used
            self.own_seconds += elapsed
            day.memory_used_byte_seconds += used
            day.memory_asked_byte_seconds += (limit or 0.0) * elapsed

    def _take_processes(self, row: Row, values: RowValues) -> None:
        self.processes.take(number_at(row, values.processes))
        self.runnable.take(number_at(row, values.runnable))
        self.open_files.take(number_at(row, values.open_files))
        scratch = number_at(row, values.scratch)
        if scratch is not None:
            self.scratch = (self.scratch or 0) + (scratch > 0)
        self.read.take(number_at(row, values.read))
        self.written.take(number_at(row, values.written))
        self.block_read.take(sum_at(row, values.block_read))
        self.block_written.take(sum_at(row, values.block_written))
        for exe, place in values.executables:
            count = number_at(row, place)
            if count is not None and count > self.threads.get(exe, 0):
                self.threads[exe] = int(count)
        if len(self.threads) > _MOST_EXECUTABLES:
            self.threads = dict(_largest(self.threads, _MOST_EXECUTABLES))
        for exe, place in values.executable_cpu:
            used = number_at(row, place)
            if used is None:
                continue
            counted = self.executable_cpu.get(exe)
            if counted is None:
                if len(self.executable_cpu) >= _MOST_EXECUTABLES:
                    continue
                counted = self.executable_cpu[exe] = CounterSum()
            counted.take(used)

    def take_traffic(self, received: float, sent: float, *, alone: bool) -> None:
        """Take the counters of the node's interfaces; what they grow by is the job's while it is alone on the node."""
        before, self.traffic_before = self.traffic_before, (received, sent) if alone else None
        if before is None or not alone:
            return
        self.received = (self.received or 0.0) + max(received - before[0], 0.0)
        self.sent = (self.sent or 0.0) + max(sent - before[1], 0.0)

    def measured(self) -> NodeMeasured:
        """Return what is kept of it."""
        least, mean, most = self._cores()
        own_mean = self.own_byte_seconds / self.own_seconds if self.own_seconds else self.own.mean
        return NodeMeasured(
            since=self.since,
            until=self.until,
            samples=self.samples,
            seconds=_short(self.seconds),
            cores=self.cores,
            node_cores=self.node_cores,
            cpu_seconds=_optional(self.cpu.total),
            cpu_most_cores=_optional(self.cpu_most),
            cpu_least_10min_cores=_optional(self.window.least),
            cpu_idle_seconds=_short(self.idle_longest),
            cpu_idle_now_seconds=_short(self.idle),
            core_least_seconds=least,
            core_mean_seconds=mean,
            core_most_seconds=most,
            memory_asked_bytes=self.asked,
            memory_own_mean_bytes=_optional(own_mean),
            memory_own_most_bytes=self.own.most,
            memory_cache_mean_bytes=_optional(self.cache.mean),
            memory_cache_most_bytes=self.cache.most,
            memory_peak_bytes=self.peak,
            memory_near_samples=self.near,
            memory_limit_hits=self.limit_hits.total,
            oom_kills=self.oom_kills.total,
            runnable_mean_threads=_optional(self.runnable.mean),
            runnable_most_threads=self.runnable.most,
            processes_most=self.processes.most,
            threads_most=dict(_largest(self.threads, _KEPT_EXECUTABLES)),
            executable_cpu_seconds=dict(_largest(self._executable_seconds(), _KEPT_EXECUTABLES)),
            open_files_mean=_optional(self.open_files.mean),
            open_files_most=self.open_files.most,
            scratch_samples=self.scratch,
            read_bytes=_traffic(self.read, self.block_read),
            written_bytes=_traffic(self.written, self.block_written),
            calls=self.calls.total,
            calls_most_10min_per_second=_optional(self.window.most if self.calls.total is not None else None),
            network_received_bytes=self.received,
            network_sent_bytes=self.sent,
            gpus={uuid: gpu.measured() for uuid, gpu in self.gpus.items()},
        )

    def _executable_seconds(self) -> dict[str, float]:
        return {exe: seconds for exe, count in self.executable_cpu.items() if (seconds := _short(count.total or 0.0))}

    def _cores(self) -> tuple[float | None, float | None, float | None]:
        """Return the CPU time of the least busy core, of all on average, and of the busiest, if cores are counted.

        On version 2 the kernel does not count by core, and each is given the same share: such counts say nothing.
        """
        cores = [value for value in self.by_core if value - value == 0]
        if not cores or (len(cores) > 1 and min(cores) == max(cores)):
            return None, None, None
        return _short(min(cores)), _short(sum(cores) / len(cores)), _short(max(cores))


def _traffic(processes: CounterSum, devices: CounterSum) -> float | None:
    """Return what was read or written: processes are believed first; a device that saw nothing may have missed it."""
    if processes.total is not None:
        return processes.total
    return devices.total or None


def _largest(amounts: dict[str, Amount], count: int) -> Iterable[tuple[str, Amount]]:
    return sorted(amounts.items(), key=lambda item: (-item[1], item[0]))[:count]


def _short(value: float) -> float:
    """Round to a thousandth: these numbers are stored for every job for years."""
    return round(value, 3)


def _optional(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
