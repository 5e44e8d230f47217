"""Curves that are not kept here any more, read from an engine that others keep: Prometheus' `query_range`.

One request a view. Of a gauge the engine is asked for the least, the mean and the most of each stretch, of a counter
for its rate; labels of ours, which no series has, mark the parts of the answer.
"""

import http.client
import json
import math
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlencode, urlsplit

from oarlock.measure.collect.hdf5 import Track, definition_of
from oarlock.measure.collect.series import SeriesRange, SeriesView, chooser, make_view, usual_metrics
from oarlock.measure.metrics import MetricKind
from oarlock.measure.naming import pairs
from oarlock.model.errors import Unavailable
from oarlock.node.sources.probe import series as series_text
from oarlock.node.sources.probe import split

ANSWER_SECONDS = 2.0
"""How long the engine may take: somebody waits for the curve."""

_METRIC, _PART = "oarlock_metric", "oarlock_part"
_JOB = "job"  # the part that lists the jobs on a node
_RATE = "mean"
_GAUGE = {"least": "min_over_time", "mean": "avg_over_time", "most": "max_over_time"}
_WINDOW_PERIODS = 1.5  # of a gauge: as samples come a little early or late, one period may have none
_RATE_PERIODS = 4
_MOST_BYTES = 64 << 20
_CHUNK = 1 << 16


class EngineAway(Unavailable):
    """The engine that has the curve does not answer."""

    def __init__(self, url: str, why: str) -> None:
        super().__init__(
            f"Prometheus at {url} has no answer: {why}.",
            hint="What was asked for is not kept here, and is read from there. Ask again in a moment.",
        )


class PrometheusTarget(NamedTuple):
    """Where curves are read: the address before `/api/v1`, how to be let in, and what is known about its series."""

    url: str
    token: str = ""
    tenant: str = ""
    cluster: str = ""
    period: float = 10.0


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

    def matchers(self) -> str:
        """Return the labels that choose its series. An agent's `instance` has its port."""
        if self.job is not None:
            return f"job_id={_quoted(self.label or str(self.job))}"
        return f"instance=~{_quoted(re.escape(self.node) + '(:[0-9]+)?')}"


def read_curves(target: PrometheusTarget, subject: RemoteSubject, wanted: SeriesRange) -> SeriesView | None:
    """Read curves between the two instants that are wanted; None if the engine has none. `EngineAway` if it fails."""
    since, until = wanted.since or 0.0, wanted.until or 0.0
    metrics = wanted.metrics or usual_metrics(subject.scope)
    chooser(metrics, subject.scope, named=bool(wanted.metrics))
    step = max((until - since) / max(wanted.points - 1, 1), target.period, 1.0)
    query = _query(target, subject, metrics, step)
    form = {"query": query, "start": since, "end": until, "step": step, "timeout": f"{ANSWER_SECONDS:g}s"}
    rows = list(_rows(_ask(target, form)))
    tracks = _tracks([row for row in rows if row.part != _JOB], metrics)
    if not tracks:
        return None
    jobs = sorted({int(row.labels["job_id"]) for row in rows if row.part == _JOB and row.labels["job_id"].isdecimal()})
    return make_view(
        tracks, [], wanted, scope=subject.scope, job_id=subject.job, node=subject.node or None, live=False,
        thinned=math.ceil(step), involved_jobs=jobs, are_rates=True,
    )  # fmt: skip


def _query(target: PrometheusTarget, subject: RemoteSubject, metrics: Iterable[str], step: float) -> str:
    cluster = subject.cluster or target.cluster
    matchers = subject.matchers() + (f",cluster={_quoted(cluster)}" if cluster else "")
    parts = [part for metric in metrics for part in _parts(metric, subject.scope, matchers, step, target.period)]
    if subject.job is None:
        parts.append(_marked(f"max by (job_id) (oarlock_node_job_info{{{matchers}}})", "", _JOB))
    return " or ".join(parts)


def _parts(metric: str, scope: str, matchers: str, step: float, period: float) -> Iterator[str]:
    name, own = split(metric)
    definition = definition_of(metric, scope)
    labels = [matchers, *(f"{label}={_quoted(text)}" for label, text in pairs(own))]
    selected = f"oarlock_{scope}_{name}{{{','.join(labels)}}}"
    if definition is not None and definition.kind is MetricKind.COUNTER:
        yield _marked(f"rate({selected}[{_seconds(max(step, _RATE_PERIODS * period))}])", metric, _RATE)
        return
    window = _seconds(max(step, _WINDOW_PERIODS * period))
    yield from (_marked(f"{function}({selected}[{window}])", metric, part) for part, function in _GAUGE.items())


def _marked(expression: str, metric: str, part: str) -> str:
    for label, text in ((_METRIC, metric), (_PART, part)):
        escaped = text.replace("$", "$$")  # a `$` begins the number of a group there
        expression = f'label_replace({expression}, "{label}", {_quoted(escaped)}, "", "")'
    return expression


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _seconds(seconds: float) -> str:
    return f"{math.ceil(seconds)}s"


class _Row(NamedTuple):
    """One series of an answer, by instant (milliseconds)."""

    labels: Mapping[str, str]
    values: dict[int, float]

    @property
    def part(self) -> str:
        return self.labels.get(_PART, "")


def _rows(answer: Mapping[str, Any]) -> Iterator[_Row]:
    for row in answer["data"]["result"]:
        values = {round(float(at) * 1000): float(text) for at, text in row["values"]}
        yield _Row(row["metric"], {at: value for at, value in values.items() if math.isfinite(value)})


def _tracks(rows: Iterable[_Row], metrics: Sequence[str]) -> list[Track]:
    """Join the least, the mean and the most of each series of each node."""
    parts: dict[tuple[str, str, str], dict[str, dict[int, float]]] = {}
    for row in rows:
        metric = row.labels.get(_METRIC, "")
        node = re.sub(r":\d+\Z", "", row.labels.get("instance", ""))
        parts.setdefault((metric, _series(metric, row.labels), node), {})[row.part] = row.values
    order = {metric: place for place, metric in enumerate(metrics)}
    chosen = sorted((key for key in parts if key[0] in order), key=lambda key: (order[key[0]], *key[1:]))
    return [track for key in chosen if (track := _track(key[1], key[2], parts[key])).times]


def _track(series: str, node: str, parts: Mapping[str, Mapping[int, float]]) -> Track:
    mean = parts.get(_RATE, {})
    least, most = parts.get("least", mean), parts.get("most", mean)
    times = sorted(mean.keys() & least.keys() & most.keys())
    return Track(series, node, times, *([part[at] for at in times] for part in (mean, least, most)))


def _series(metric: str, labels: Mapping[str, str]) -> str:
    """Write a series as our files name it: with the labels that the catalogue knows of its metric."""
    name = split(metric)[0]
    definition = definition_of(metric, "job") or definition_of(metric, "node")
    own = definition.labels if definition is not None else ()
    return series_text(name, **{label: labels[label] for label in own if label in labels})


def _ask(target: PrometheusTarget, form: Mapping[str, object]) -> Mapping[str, Any]:
    """Ask the engine; `EngineAway` if it is slow, away, or refuses."""
    deadline = time.monotonic() + ANSWER_SECONDS
    try:
        status, body = _exchange(target, urlencode(form).encode(), deadline)
        answer = json.loads(body)
    except TimeoutError:
        raise EngineAway(target.url, f"none within {ANSWER_SECONDS:g} s") from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise EngineAway(target.url, str(error) or type(error).__name__) from error
    if status != http.client.OK or not isinstance(answer, dict) or answer.get("status") != "success":
        why = answer.get("error") if isinstance(answer, dict) else None
        raise EngineAway(target.url, f"status {status}" + (f", {why}" if why else ""))
    return answer


def _exchange(target: PrometheusTarget, body: bytes, deadline: float) -> tuple[int, bytes]:
    parts = urlsplit(target.url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    headers |= {"Authorization": f"Bearer {target.token}"} if target.token else {}
    headers |= {"X-Scope-OrgID": target.tenant} if target.tenant else {}
    connection = kind(parts.hostname or "", parts.port, timeout=ANSWER_SECONDS)
    try:
        connection.request("POST", f"{parts.path.rstrip('/')}/api/v1/query_range", body, headers)
        response = connection.getresponse()
        content = bytearray()
        while chunk := response.read1(_CHUNK):
            content += chunk
            if time.monotonic() > deadline:
                raise TimeoutError
            if len(content) > _MOST_BYTES:
                raise ValueError(f"it is longer than {_MOST_BYTES >> 20} MiB")
        return response.status, bytes(content)
    finally:
        connection.close()
