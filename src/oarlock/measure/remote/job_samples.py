"""What an engine has of a job that is over or runs, as the samples from which our collector makes summaries.

The engine answers on a grid; the timestamps that the exporter's samples really had come with the answer, so that a
sample that is repeated on the grid counts once. Cores are counted one by one at the end only: the series of a wide job
would be too many.
"""

import math
import struct
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from oarlock.measure.collect.sums.accumulate import NodeAccumulator
from oarlock.measure.collect.sums.row_values import RowValues
from oarlock.measure.collect.sums.running_sums import added_days
from oarlock.measure.remote.engine import (
    EngineRow,
    PrometheusTarget,
    ask_instant,
    ask_range,
    node_of,
    quoted,
    span,
    with_label,
)
from oarlock.measure.remote.range_query import RemoteSubject, series_of
from oarlock.measure.remote.vocabulary import Vocabulary, vocabulary
from oarlock.model.summary import MeasuredJob

SECONDS = 20.0
"""How long the engine may take: nobody waits."""

_POINTS, _LEAST_STEP = 600, 5.0
_HOLE_PERIODS = 3
_METRIC, _CLOCK = "oarlock_metric", "clock"
_CORES = "core_cpu_seconds_total"
_NO_NODE = ""  # of what servers count by job
_ATTEMPT = "1"
_METRICS = (
    "cpu_seconds_total", "cpus", "memory_anonymous_bytes", "memory_shared_bytes", "memory_cache_bytes",
    "memory_limit_bytes", "memory_peak_bytes", "memory_limit_hits_total", "memory_oom_kills_total", "processes",
    "threads", "open_files", "uses_scratch", "read_bytes_total", "written_bytes_total", "read_calls_total",
    "write_calls_total", "process_threads", "process_cpu_seconds_total", "gpu_utilization_ratio",
    "gpu_memory_used_bytes", "gpu_memory_total_bytes",
)  # fmt: skip
"""What summaries are made of."""


class RemoteRun(NamedTuple):
    """A job of which samples are wanted: how it is called there, from when to when it ran, and on which nodes.

    `node_cores` has how many cores each of its nodes has.
    """

    subject: RemoteSubject
    start: float
    stop: float
    node_cores: Mapping[str, int] = {}


class _NodeSamples(NamedTuple):
    """The samples of a job on a node: their instants (milliseconds), and every series by instant."""

    instants: Sequence[int]
    series: Mapping[str, Mapping[int, float]]


def read_measured(target: PrometheusTarget, run: RemoteRun) -> MeasuredJob | None:
    """Return what the engine's samples of a job say; None if it has none. `EngineAway` if it fails."""
    if run.stop <= run.start:
        return None
    names = _answering(target, run)
    if names is None:
        return None
    shared = [vocabulary(name) for name in target.names if name == "lustre"]
    query = " or ".join(_parts(target, run, [names, *shared]))
    step = max((run.stop - run.start) / _POINTS, _LEAST_STEP)
    rows = ask_range(target, query, since=run.start, until=run.stop, step=step, seconds=SECONDS)
    nodes = _by_node(rows, run, names)
    cores = _core_counts(target, run, names) if nodes else {}
    sums = {node: _add_up(samples, cores.get(node, {})) for node, samples in nodes.items()}
    for node, accumulator in sums.items():
        accumulator.node_cores = run.node_cores.get(node)
    if not sums:
        return None
    measured = {node: accumulator.measured() for node, accumulator in sorted(sums.items())}
    return MeasuredJob(nodes={_ATTEMPT: measured}, days=added_days(sums.values()))


def _answering(target: PrometheusTarget, run: RemoteRun) -> Vocabulary | None:
    """Return the names under which the engine has the job, the preferred ones if there are several."""
    vocabularies = [vocabulary(name) for name in target.names if vocabulary(name).clock]
    window = span(run.stop - run.start)
    counts = [
        with_label(
            f"count(last_over_time({names.clock}{{{','.join(run.subject.matchers(target, names))}}}[{window}]))",
            _METRIC, names.name,
        )
        for names in vocabularies
    ]  # fmt: skip
    present = {labels[_METRIC] for labels, _ in ask_instant(target, " or ".join(counts), at=run.stop, seconds=SECONDS)}
    return next((names for names in vocabularies if names.name in present), None)


def _parts(target: PrometheusTarget, run: RemoteRun, vocabularies: Iterable[Vocabulary]) -> Iterable[str]:
    for names in vocabularies:
        matchers = run.subject.matchers(target, names)
        for metric in _METRICS:
            for series, own in names.find("job", metric):
                yield with_label(series.expression([*matchers, *own]), _METRIC, metric)
        if names.clock:
            clock = f"max by (instance) (timestamp({names.clock}{{{','.join(matchers)}}}))"
            yield with_label(clock, _METRIC, _CLOCK)


def _by_node(rows: Iterable[EngineRow], run: RemoteRun, names: Vocabulary) -> dict[str, _NodeSamples]:
    """Sort an answer by node; a sample that the grid repeats is taken once."""
    clocks: dict[str, dict[int, float]] = {}
    series: dict[str, dict[str, Mapping[int, float]]] = {}
    for row in rows:
        metric, node = row.labels.get(_METRIC, ""), _node(row.labels, run)
        if metric == _CLOCK:
            clocks[node] = row.values
        else:
            series.setdefault(node, {})[series_of(metric, row.labels, names, "job")] = row.values
    for metric, values in series.pop(_NO_NODE, {}).items():
        share = {at: value / len(clocks) for at, value in values.items()} if clocks else {}
        for node in clocks:
            series.setdefault(node, {})[metric] = share
    return {
        node: _NodeSamples(*_sampled(clock, series.get(node, {}), run)) for node, clock in clocks.items() if clock
    }  # fmt: skip


def _sampled(
    clock: Mapping[int, float], series: Mapping[str, Mapping[int, float]], run: RemoteRun
) -> tuple[list[int], dict[str, dict[int, float]]]:
    """Return the instants of real samples, and the series at these instants."""
    instants: list[int] = []
    moved: dict[str, dict[int, float]] = {name: {} for name in series}
    for at, stamp in sorted(clock.items()):
        instant = round(stamp * 1000)
        if instant < run.start * 1000 or (instants and instant <= instants[-1]):
            continue
        instants.append(instant)
        for name, values in series.items():
            if at in values:
                moved[name][instant] = values[at]
    return instants, moved


def _node(labels: Mapping[str, str], run: RemoteRun) -> str:
    """Return the node of a series as the resource manager calls it: without a port, and without a domain it lacks."""
    node = node_of(labels.get("instance", ""))
    short = node.partition(".")[0]
    return short if node not in run.node_cores and short in run.node_cores else node


def _core_counts(target: PrometheusTarget, run: RemoteRun, names: Vocabulary) -> dict[str, dict[str, float]]:
    """Return how busy each core was in all, by node and core."""
    sources = names.find("job", _CORES)
    if not sources:
        return {}
    window = span(run.stop - run.start)
    series, _ = sources[0]
    text = series.expression(run.subject.matchers(target, names), partial(_last, window=window))
    counts: dict[str, dict[str, float]] = {}
    for labels, value in ask_instant(target, text, at=run.stop, seconds=SECONDS):
        counts.setdefault(_node(labels, run), {})[f"{_CORES}{{core={quoted(labels.get('core', ''))}}}"] = value
    return counts


def _last(selector: str, *, window: str) -> str:
    return f"last_over_time({selector}[{window}])"


def _add_up(samples: _NodeSamples, cores: Mapping[str, float]) -> NodeAccumulator:
    """Add up the samples of a node. What is known of its cores stands in the last row."""
    names = (*samples.series, *cores)
    values, packer = RowValues(names), struct.Struct(f"<{len(names)}d")
    accumulator = NodeAccumulator()
    steps = [later - earlier for earlier, later in pairwise(samples.instants)]
    longest = _HOLE_PERIODS * median(steps) / 1000 if steps else 0.0
    for instant in samples.instants:
        is_last = instant == samples.instants[-1]
        row = [samples.series[name].get(instant, math.nan) for name in samples.series]
        row += [value if is_last else math.nan for value in cores.values()]
        accumulator.take(instant / 1000, values, packer.pack(*row), longest=longest)
    return accumulator
