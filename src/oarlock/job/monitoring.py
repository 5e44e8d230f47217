"""Recording what a job does while it runs (`oarmonitor`): which values, and what the site's sensor adds to them."""

import math
import re
from collections.abc import Iterator, Mapping

from msgspec import Struct

from oarlock.model.errors import MonitoringRefused, NothingRecorded, UnknownJob
from oarlock.model.job import FINAL, Job, JobState
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.job import attempts, jobs
from oarlock.store.queries.usage import monitoring
from oarlock.store.queries.usage.monitoring import MonitoredValue

RECORDED = (
    "cpu_seconds_total", "cpus", "memory_usage_bytes", "memory_anonymous_bytes", "memory_cache_bytes",
    "memory_limit_bytes", "read_bytes_total", "written_bytes_total", "tasks",
)  # fmt: skip
"""Metrics of a job on a node that are recorded, those that are there."""

SENSOR_PREFIX = "site_"
"""Before the names of a site's own values, so that they are never taken for ours."""

RECORDABLE = frozenset({JobState.RUNNING, JobState.SUSPENDED, JobState.RESUMING})
MOST_POINTS = 100_000
_MOST_SENSED = 100  # values of a sensor on one node
_SENSED = re.compile(r"([A-Za-z_][A-Za-z0-9_]{0,63})[ \t=]+(\S+)")


class MonitoringStatus(Struct, frozen=True, kw_only=True):
    """Whether a job is being recorded, and what was so far; `problems` are nodes and what is wrong there.

    `runs`: its state is one in which it can be recorded.
    """

    job_id: int
    state: str
    runs: bool
    recording: bool
    period: int = 0
    sample_period: int = 0
    values: int = 0
    nodes: int = 0
    problems: dict[str, str] = {}


class RecordedCurve(Struct, frozen=True):
    """A metric of a job on a node: dates (epoch seconds) and values, oldest first."""

    node: str
    metric: str
    points: list[tuple[int, float]]


class RecordedJob(Struct, frozen=True, kw_only=True):
    """All that was recorded of a job."""

    job_id: int
    name: str
    state: str
    start: int
    curves: list[RecordedCurve]


class RecordingTarget(Struct, frozen=True):
    """Where a job runs that is being recorded."""

    state: JobState
    cpuset: str
    nodes: tuple[str, ...]


def find_target(tx: Tx, job_id: int) -> RecordingTarget:
    """Return where a job runs; `UnknownJob` if there is none."""
    job = get_job(tx, job_id)
    places = [node.name for attempt in attempts.of_jobs(tx, [job_id]) for node in attempt.nodes]
    return RecordingTarget(job.state, f"{job.user}_{job.id}", tuple(dict.fromkeys(places)))


def check_recordable(target: RecordingTarget, job_id: int, *, sample_period: int, sensor: bool) -> None:
    """Raise `MonitoringRefused` if there is nothing to record of a job."""
    if target.state in FINAL:
        raise MonitoringRefused(
            f"Job {job_id} is over ({target.state}): nothing more can be recorded.",
            hint=f"oarmonitor_graph_gen -j {job_id} draws what was recorded while it ran.",
        )
    if target.state not in RECORDABLE:
        raise MonitoringRefused(
            f"Job {job_id} is {target.state}: it does not run yet.", hint="Record it once oarstat shows it as Running."
        )
    if not sample_period and not sensor:
        raise MonitoringRefused(
            "Nodes are not measured here (SAMPLE_PERIOD is 0).",
            hint="Set SAMPLE_PERIOD, or OARMONITOR_SENSOR_FILE, and start the server again.",
        )


def measured_values(job_id: int, node: str, at: float, values: Mapping[str, float]) -> Iterator[MonitoredValue]:
    """Yield what is recorded of a sample."""
    for metric in RECORDED:
        if metric in values:
            yield MonitoredValue(job_id, node, int(at), metric, values[metric])


def sensed_values(job_id: int, node: str, at: float, text: str) -> Iterator[MonitoredValue]:
    """Yield the values that a site's sensor printed: `name value` a line. Other lines are passed over."""
    matches = [match for line in text.splitlines() if (match := _SENSED.fullmatch(line.strip()))]
    for match in matches[:_MOST_SENSED]:
        try:
            value = float(match[2])
        except ValueError:
            continue
        if math.isfinite(value):
            yield MonitoredValue(job_id, node, int(at), SENSOR_PREFIX + match[1], value)


def read_recorded(tx: Tx, job_id: int) -> RecordedJob:
    """Return what was recorded of a job; `UnknownJob` or `NothingRecorded` if there is nothing."""
    job = get_job(tx, job_id)
    curves = [RecordedCurve(*curve) for curve in monitoring.curves(tx, job_id, most=MOST_POINTS)]
    if not curves:
        raise NothingRecorded(job_id)
    return RecordedJob(job_id=job_id, name=job.name or "", state=job.state, start=job.start, curves=curves)


def get_job(tx: Tx, job_id: int) -> Job:
    """Return a job; `UnknownJob` if there is none."""
    for job in jobs.existing(tx, [job_id]):
        return job
    raise UnknownJob(job_id)
