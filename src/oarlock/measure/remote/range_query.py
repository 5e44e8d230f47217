"""Curves that are not kept here, read from an engine that others keep: Prometheus' `query_range`.

One request a view. Of a gauge the engine is asked for the least, the mean and the most of each stretch, of a counter
for its rate; labels of ours, which no series has, mark the parts of the answer. Where several exporters measure the
same, the first of them that has a curve is believed.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from oarlock.measure.collect.files.hdf5 import Track, definition_of
from oarlock.measure.collect.series import SeriesRange, SeriesView, chooser, make_view, usual_metrics
from oarlock.measure.names import OURS
from oarlock.measure.remote.engine import (
    ANSWER_SECONDS,
    EngineAway,
    EngineRow,
    PrometheusTarget,
    ask_range,
    node_of,
    quoted,
    span,
    with_label,
)
from oarlock.measure.remote.vocabulary import Vocabulary, is_counter, vocabulary
from oarlock.node.sources.probe import series as series_text
from oarlock.node.sources.probe import split

__all__ = ["ANSWER_SECONDS", "EngineAway", "PrometheusTarget", "RemoteSubject", "read_curves"]

_METRIC, _PART, _NAMES = "oarlock_metric", "oarlock_part", "oarlock_names"
_JOB = "job"  # the part that lists the jobs on a node
_RATE = "mean"
_GAUGE = {"least": "min_over_time", "mean": "avg_over_time", "most": "max_over_time"}
_WINDOW_PERIODS = 1.5  # of a gauge: as samples come a little early or late, one period may have none
_RATE_PERIODS = 4


class RemoteSubject(NamedTuple):
    """A job, by its number, or a node. A job of another `cluster` has another number there, its `label`."""

    job: int | None = None
    node: str = ""
    cluster: str = ""
    label: str = ""

    @property
    def scope(self) -> str:
        """The scope of its metrics."""
        return "node" if self.job is None else "job"

    def matchers(self, target: PrometheusTarget, names: Vocabulary) -> list[str]:
        """Return the labels that choose its series under the names of one exporter.

        Our own series always have the label of their cluster; others may lack it.
        """
        own = names.node_matcher(self.node) if self.job is None else names.job_matcher(self.label or str(self.job))
        cluster = self.cluster or target.cluster
        if not cluster:
            return [own]
        strict = target.names == (OURS,)
        return [own, f"cluster={quoted(cluster)}" if strict else f"cluster=~{quoted(f'{cluster}|')}"]


def read_curves(target: PrometheusTarget, subject: RemoteSubject, wanted: SeriesRange) -> SeriesView | None:
    """Read curves between the two instants that are wanted; None if the engine has none. `EngineAway` if it fails."""
    since, until = wanted.since or 0.0, wanted.until or 0.0
    metrics = wanted.metrics or usual_metrics(subject.scope)
    chooser(metrics, subject.scope, named=bool(wanted.metrics))
    step = max((until - since) / max(wanted.points - 1, 1), target.period, 1.0)
    query = _query(target, subject, metrics, step)
    rows = ask_range(target, query, since=since, until=until, step=step) if query else []
    tracks = _tracks(subject, [row for row in rows if _part(row) != _JOB], metrics, target.names)
    if not tracks:
        return None
    jobs = sorted({int(row.labels["job_id"]) for row in rows if _part(row) == _JOB and _is_number(row)})
    return make_view(
        tracks, [], wanted, scope=subject.scope, job_id=subject.job, node=subject.node or None, live=False,
        thinned=math.ceil(step), involved_jobs=jobs, are_rates=True,
    )  # fmt: skip


def _is_number(row: EngineRow) -> bool:
    return row.labels.get("job_id", "").isdecimal()


def _part(row: EngineRow) -> str:
    return row.labels.get(_PART, "")


def _query(target: PrometheusTarget, subject: RemoteSubject, metrics: Iterable[str], step: float) -> str:
    names = [vocabulary(name) for name in target.names]
    parts = [
        part for entry in names for metric in metrics for part in _parts(target, subject, entry, metric, step)
    ]  # fmt: skip
    if subject.job is None and OURS in target.names:
        own = ",".join(subject.matchers(target, vocabulary(OURS)))
        listed = f"max by (job_id) (oarlock_node_job_info{{{own}}})"
        parts.append(with_label(with_label(listed, _METRIC, ""), _PART, _JOB))
    return " or ".join(parts)


def _parts(
    target: PrometheusTarget, subject: RemoteSubject, names: Vocabulary, metric: str, step: float
) -> Iterator[str]:
    marked = partial(_marked, metric=metric, names=names.name)
    for series, own in names.find(subject.scope, metric):
        matchers = [*subject.matchers(target, names), *own]
        if is_counter(subject.scope, metric):
            window = span(max(step, _RATE_PERIODS * target.period))
            yield marked(series.expression(matchers, partial(_over, function="rate", window=window)), part=_RATE)
            continue
        window = span(max(step, _WINDOW_PERIODS * target.period))
        for part, function in _GAUGE.items():
            yield marked(series.expression(matchers, partial(_over, function=function, window=window)), part=part)


def _over(selector: str, *, function: str, window: str) -> str:
    return f"{function}({selector}[{window}])"


def _marked(expression: str, *, metric: str, part: str, names: str) -> str:
    for label, text in ((_METRIC, metric), (_PART, part), (_NAMES, names)):
        expression = with_label(expression, label, text)
    return expression


def _tracks(
    subject: RemoteSubject, rows: Sequence[EngineRow], metrics: Sequence[str], preferred: Sequence[str]
) -> list[Track]:
    """Join the least, the mean and the most of each series of each node, of one exporter for each metric."""
    parts: dict[tuple[str, str, str], dict[str, dict[int, float]]] = {}
    believed = _believed(rows, preferred)
    for row in rows:
        metric = row.labels.get(_METRIC, "")
        if row.labels.get(_NAMES, OURS) != believed.get(metric):
            continue
        series = series_of(metric, row.labels, vocabulary(believed[metric]), subject.scope)
        # A node's series may have its domain, or the name of its controller.
        node = subject.node or node_of(row.labels.get("instance", ""))
        parts.setdefault((metric, series, node), {})[_part(row)] = row.values
    order = {metric: place for place, metric in enumerate(metrics)}
    chosen = sorted((key for key in parts if key[0] in order), key=lambda key: (order[key[0]], *key[1:]))
    return [track for key in chosen if (track := _track(key[1], key[2], parts[key])).times]


def _believed(rows: Iterable[EngineRow], preferred: Sequence[str]) -> dict[str, str]:
    """Return whose series are taken for each metric."""
    present = {(row.labels.get(_METRIC, ""), row.labels.get(_NAMES, OURS)) for row in rows if row.values}
    return {
        metric: next((name for name in preferred if (metric, name) in present), OURS) for metric, _ in present
    }  # fmt: skip


def _track(series: str, node: str, parts: Mapping[str, Mapping[int, float]]) -> Track:
    mean = parts.get(_RATE, {})
    least, most = parts.get("least", mean), parts.get("most", mean)
    times = sorted(mean.keys() & least.keys() & most.keys())
    return Track(series, node, times, *([part[at] for at in times] for part in (mean, least, most)))


def series_of(metric: str, labels: Mapping[str, str], names: Vocabulary, scope: str) -> str:
    """Write a series as our files name it: with the labels that the catalogue knows of its metric."""
    name = split(metric)[0]
    definition = definition_of(metric, scope)
    own = definition.labels if definition is not None else ()
    renamed = {theirs: ours for series, _ in names.find(scope, name) for theirs, ours in series.rename.items()}
    values = {renamed.get(label, label): text for label, text in labels.items()}
    return series_text(name, **{label: values[label] for label in own if label in values})
