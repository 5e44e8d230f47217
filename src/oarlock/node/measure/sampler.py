"""One sample: what every job on this machine, and the machine itself, reads at one instant.

Used by the agent on other resource managers' clusters and by the node program on Oarlock's own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from oarlock.node.measure.discovery import CgroupFinder, FoundCgroup, Key
from oarlock.node.measure.layout import CgroupIdentity
from oarlock.node.measure.probes import JobProbes, count_error
from oarlock.node.sources.environ import identify
from oarlock.node.sources.files import CgroupGone, Values
from oarlock.node.sources.metrics import series
from oarlock.node.sources.probe import JobSource, NodeSource
from oarlock.node.sources.processes import owner


class Reading(NamedTuple):
    """One job's values. They are shared with the next sample when the job did nothing: do not change them."""

    identity: CgroupIdentity
    values: Values
    path: str = ""  # of its cgroup


class Sample(NamedTuple):
    """All values of one instant (epoch seconds)."""

    at: float
    jobs: Mapping[Key, Reading]
    node: Values

    @property
    def involved_jobs(self) -> list[str]:
        """Return the ids of the jobs on this node, for measurements of the node as a whole."""
        return sorted({key[2] for key in self.jobs}, key=lambda job: (len(job), job))


LEFT_OVER_SECONDS = 300.0
"""How long the cgroup of another manager's job may be without a process before it is taken for a left-over one."""


class Sampler:
    """Measure all jobs that a finder finds, with every source that is switched on.

    A source that fails for one job costs that job its series, this once, and counts in `errors`. A cgroup that another
    manager forgot to remove has no series; it has them again when a process appears in it.
    """

    def __init__(
        self, finder: CgroupFinder, job_sources: Sequence[JobSource], node_sources: Sequence[NodeSource] = ()
    ) -> None:
        self._finder = finder
        self._job_sources = {source.name: source for source in job_sources}
        self._node_sources = {source.name: source for source in node_sources}
        self._probes: dict[Key, JobProbes] = {}
        self._empty_since: dict[Key, float] = {}
        self.errors: Counter[str] = Counter(dict.fromkeys([*self._job_sources, *self._node_sources], 0))

    def sample(self, now: float) -> Sample:
        """Read everything. A job that ended meanwhile is not in the sample."""
        jobs = self._finder.look(now)
        for key in [key for key, probes in self._probes.items() if jobs.get(key) is not probes.job]:
            self._probes.pop(key).close()
        readings, left_over = {}, 0
        were_empty, self._empty_since = self._empty_since, {}
        for key, job in list(jobs.items()):
            try:
                values = self._probes_of(key, job).read(now, self.errors)
            except CgroupGone:
                self._end(key)
                continue
            if job.is_empty and self._is_left_over(key, were_empty, now):
                left_over += 1
                continue
            if job.identity.user is None and job.identity.uid is None:
                job.identity = job.identity._replace(uid=owner(job.process_directories))
            if now >= job.identify_at:
                _identify(job, now)
            readings[key] = Reading(job.identity, values, job.path)
        return Sample(now, readings, self._read_node(len(readings), left_over))

    def switch(self, source: JobSource) -> None:
        """Replace a job source by another of the same name, or add it; running jobs are opened anew with it."""
        self._job_sources[source.name] = source
        self.errors.setdefault(source.name, 0)
        for probes in self._probes.values():
            probes.open(source, self.errors)

    def switch_node(self, source: NodeSource) -> None:
        """Replace a source of the node by another of the same name, or add it."""
        self._close_node(source.name)
        self._node_sources[source.name] = source
        self.errors.setdefault(source.name, 0)

    def switch_off(self, name: str) -> None:
        """Stop measuring jobs and the node with a source."""
        self._job_sources.pop(name, None)
        for probes in self._probes.values():
            probes.drop(name)
        self._close_node(name)

    def close(self) -> None:
        """Release every file, watch and thread."""
        for key in list(self._probes):
            self._probes.pop(key).close()
        for name in list(self._node_sources):
            self._close_node(name)
        self._finder.close()

    def _probes_of(self, key: Key, job: FoundCgroup) -> JobProbes:
        probes = self._probes.get(key)
        if probes is None:
            probes = self._probes[key] = JobProbes(job, turn=len(self._probes))
        if probes.revision != job.revision:
            probes.refresh(self._job_sources.values(), self.errors)
        return probes

    def _is_left_over(self, key: Key, were_empty: Mapping[Key, float], now: float) -> bool:
        if key[0] not in self._finder.foreign:
            return False
        since = self._empty_since[key] = were_empty.get(key, now)
        return now - since >= LEFT_OVER_SECONDS

    def _end(self, key: Key) -> None:
        self._finder.forget(key)
        self._probes.pop(key).close()

    def _close_node(self, name: str) -> None:
        source = self._node_sources.pop(name, None)
        if source:
            source.close()

    def _read_node(self, jobs: int, left_over: int) -> Values:
        values: Values = {"jobs": jobs}
        if self._finder.foreign:
            values["jobs_left_over"] = left_over
        for name, source in self._node_sources.items():
            try:
                source.read(values)
            except Exception as error:  # noqa: BLE001  one source must not cost the others their values
                count_error(self.errors, name, "the node", error)
        for name, count in self.errors.items():
            values[series("source_errors_total", source=name)] = count
        return values


def _identify(job: FoundCgroup, now: float) -> None:
    """Identify the job from its processes; if that fails, try again with growing pauses."""
    job.identity, settled = identify(job.identity, job.process_directories)
    job.looks += 1
    job.identify_at = float("inf") if settled else now + 2.0**job.looks - 2
