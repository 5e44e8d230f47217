"""The facts of stored jobs: their summaries and what is known besides, read for many jobs at once."""

import statistics
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

from msgspec import Struct

from oarlock.insight.facts import FactValue, JobContext, facts_of
from oarlock.model.job import FINAL, JobState
from oarlock.model.summary import SummaryDetail, least_start, parse_detail, totals
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.usage import judged_jobs, summaries
from oarlock.store.queries.usage.judged_jobs import JudgedJob

_HOUR, _DAY = 3600, 86_400
_SHORT = 300  # seconds
_FEWEST_RUNS, _MOST_RUNS = 5, 20
_RECENT_RUNS = 2000  # jobs of a user among which runs of a name are looked for
_MOST_EVENTS = 10_000
_MB = 1 << 20


class JudgedFacts(Struct, frozen=True):
    """A job and everything that findings can ask about it."""

    job: JudgedJob
    facts: Mapping[str, FactValue]
    script: str | None = None


def gather(tx: Tx, ids: Collection[int], *, now: int, gpu_property: str = "", cluster: str = "") -> list[JudgedFacts]:
    """Return the facts of jobs, by number; those that never ran, or of which nothing was measured, are left out.

    `cluster` is the name of our own: under it the scripts of a copied cluster are stored.
    """
    stored = {summary.job_id: summary for summary in summaries.of_jobs(tx, ids)}
    judged = [job for job in judged_jobs.by_id(tx, ids, gpu_property=gpu_property) if job.id in stored]
    details = {job.id: parse_detail(stored[job.id].detail) for job in judged}
    judged = [_with_measured(job, details[job.id]) if job.label else job for job in judged]
    surroundings = _Surroundings(tx, judged, now=now)
    scripts = judged_jobs.scripts_of(tx, [job.id for job in judged], cluster=cluster)
    return [
        JudgedFacts(
            job, facts_of(surroundings.context(job, stored[job.id].energy_joules), details[job.id]), scripts.get(job.id)
        )
        for job in judged
    ]


def _with_measured(job: JudgedJob, detail: SummaryDetail) -> JudgedJob:
    """Add to a job of another resource manager what nobody told and samples say."""
    used = totals(detail)
    return job._replace(start=int(least_start(job.start, detail.measured)), cores=used.cpus or 0, gpus=used.gpus or 0)


class _Surroundings:
    """What happened around some jobs. What several of them share is asked for once."""

    def __init__(self, tx: Tx, jobs: Sequence[JudgedJob], *, now: int) -> None:
        self._tx, self._now = tx, now
        self._events = self._events_by_node(jobs)
        self._memory = judged_jobs.memory_of_nodes(tx, {node for job in jobs for node in job.nodes})
        self._short: dict[tuple[str, int], int] = {}
        self._runs: dict[str, Mapping[str, Mapping[int, float]]] = {}  # by user, name and number

    def context(self, job: JudgedJob, energy_joules: float | None) -> JobContext:
        """Return what is known of one of the jobs."""
        is_over = job.state in FINAL
        end = job.stop if is_over else self._now
        return JobContext(
            walltime=job.walltime or None,
            run_seconds=max(end - job.start, 0),
            nodes=len(job.nodes),
            cores=job.cores or None,
            gpus=job.gpus,
            is_over=is_over,
            succeeded=None if job.label else job.state is JobState.TERMINATED and job.exit_code == 0,
            walltime_chosen=job.walltime_chosen,
            exceeded_walltime=job.walltime_exceeded,
            node_events=self._count_events(job, end),
            short_jobs_that_day=self._count_short_jobs(job) if is_over and end - job.start < _SHORT else None,
            energy_joules=energy_joules,
            usual_energy_joules=None if energy_joules is None else self._usual_energy(job),
            node_memory_bytes={node: self._memory[node] * _MB for node in job.nodes if node in self._memory},
        )

    def _events_by_node(self, jobs: Sequence[JudgedJob]) -> Mapping[str, Sequence[int]]:
        """Return the instants of the events of each node, in order."""
        by_node: dict[str, list[int]] = defaultdict(list)
        if jobs:
            since = min(job.start for job in jobs) - _HOUR
            for event in judged_jobs.host_events(self._tx, since, self._now + 1, most=_MOST_EVENTS):
                by_node[event.node].append(event.at)
        return by_node

    def _count_events(self, job: JudgedJob, end: int) -> int:
        count = 0
        for node in job.nodes:
            instants = self._events.get(node, ())
            count += bisect_left(instants, end + _HOUR) - bisect_left(instants, job.start - _HOUR)
        return count

    def _count_short_jobs(self, job: JudgedJob) -> int:
        day = job.start // _DAY * _DAY
        key = job.user, day
        if key not in self._short:
            self._short[key] = judged_jobs.short_jobs(self._tx, job.user, day, day + _DAY, shorter_than=_SHORT)
        return self._short[key]

    def _usual_energy(self, job: JudgedJob) -> float | None:
        if not job.name:
            return None
        if job.user not in self._runs:
            self._runs[job.user] = judged_jobs.energy_of_runs(self._tx, job.user, among=_RECENT_RUNS, most=_MOST_RUNS)
        runs = self._runs[job.user].get(job.name, {})
        others = [joules for number, joules in runs.items() if number != job.id]
        return statistics.median(others) if len(others) >= _FEWEST_RUNS else None
