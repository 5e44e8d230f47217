"""One sample, made ready for the outputs: every subject with its scope and its owner."""

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from oarlock.measure.owners import JobOwner, JobOwners
from oarlock.node.measure.discovery import Key
from oarlock.node.measure.sampler import Sample

log = logging.getLogger(__name__)

JOB, CGROUP, NODE, AGENT = "job", "cgroup", "node", "agent"


class MeasuredSubject(NamedTuple):
    """A job, or a cgroup that is none. `values` are shared with other samples: do not change them."""

    key: Key
    scope: str
    owner: JobOwner
    values: Mapping[str, float]
    path: str = ""  # of its cgroup


@dataclass(frozen=True, slots=True)
class SampleBatch:
    """What was measured at one instant (epoch seconds): subjects, the node, and the agent itself."""

    at: float
    host: str
    subjects: Sequence[MeasuredSubject]
    node: Mapping[str, float]
    agent: Mapping[str, float] = field(default_factory=dict)

    @property
    def involved_jobs(self) -> list[int | str]:
        """Return the ids of the jobs on the node, as measurements of the whole node carry them."""
        ids = {subject.owner.job for subject in self.subjects if subject.scope == JOB}
        return sorted((int(job) if job.isdigit() else job for job in ids), key=lambda job: (isinstance(job, str), job))


class BatchAssembler:
    """Turn samples into batches. `job_layouts` are those whose cgroups are jobs."""

    def __init__(self, owners: JobOwners, job_layouts: Collection[str], host: str) -> None:
        self._owners, self._job_layouts, self._host = owners, job_layouts, host
        self._logged_twins: set[tuple[str, str]] = set()

    def batch(self, sample: Sample, agent: Mapping[str, float]) -> SampleBatch:
        """Add the owner to each reading. A job whose owner is still being looked up is left out."""
        layouts: dict[tuple[str, str], str] = {}
        subjects = []
        for key, reading in sample.jobs.items():
            layout, node, job = key
            if layouts.setdefault((node, job), layout) != layout:
                self._log_twin(layout, job)
                continue
            owner = self._owners.owner(key, reading.identity)
            if owner is not None:
                scope = JOB if layout in self._job_layouts else CGROUP
                subjects.append(MeasuredSubject(key, scope, owner, reading.values, reading.path))
        self._owners.keep(sample.jobs)
        jobs = sum(key[0] in self._job_layouts for key in sample.jobs)
        return SampleBatch(sample.at, self._host, subjects, {**sample.node, "jobs": jobs}, agent)

    def _log_twin(self, layout: str, job: str) -> None:
        """Log that two managers use the same job id: the second's series would be taken for the first's."""
        if (layout, job) not in self._logged_twins and len(self._logged_twins) < 1000:
            self._logged_twins.add((layout, job))
            log.warning(
                "a job is left out: another manager has one of its number", extra={"job": job, "layout": layout}
            )
