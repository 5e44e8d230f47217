"""One sample, made ready for the outputs: every subject with its scope, and its owner (user, account, name) as labels.

What the path of a cgroup does not say is looked up, or taken from the environment of the job's processes.
"""

import logging
import pwd
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple, Protocol

from oarlock.node.measure.discovery import Key
from oarlock.node.measure.layout import CgroupIdentity
from oarlock.node.measure.sampler import Sample

PATIENCE_SECONDS = 10.0
"""How long the series of a new job wait for a look-up, so that they do not change their labels soon after."""


class JobFacts(NamedTuple):
    """What a resource manager knows about a job; empty is "it does not say"."""

    user: str = ""
    account: str = ""
    name: str = ""
    job: str = ""  # its number, where its cgroup is called otherwise
    manager: str = ""


_NOTHING = JobFacts()


class JobOwner(NamedTuple):
    """Whose a measured cgroup is; the fields that families turn into labels."""

    job: str
    user: str = ""
    uid: str = ""
    account: str = ""
    node: str = ""  # where several nodes share this machine
    name: str = ""
    manager: str = ""


class OwnerLookup(Protocol):
    """Looks up facts of jobs. A call never waits: what is not known yet is None, and is looked up in the background."""

    def facts(self, job: str) -> JobFacts | None:
        """Return what is known of a job; None while it is looked up."""

    def keep(self, jobs: Iterable[str]) -> None:
        """Forget all jobs but these."""


class JobOwners:
    """Remember the owner of each job; ask the look-up, if there is one, until it knows."""

    def __init__(self, look_up: OwnerLookup | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._look_up = look_up
        self._clock = clock
        self._cache: dict[Key, tuple[CgroupIdentity, JobFacts, JobOwner]] = {}
        self._since: dict[Key, float] = {}

    def owner(self, key: Key, identity: CgroupIdentity) -> JobOwner | None:
        """Return a job's owner; the same object while nothing changed. None while a look-up is under way."""
        if self._look_up:
            facts = self._look_up.facts(identity.job)
        else:
            facts = _of_account(identity.account) if identity.account else _NOTHING
        if facts is None:
            since = self._since.setdefault(key, self._clock())
            if self._clock() - since < PATIENCE_SECONDS:
                return None
            facts = _NOTHING
        entry = self._cache.get(key)
        if entry and entry[0] is identity and entry[1] is facts:
            return entry[2]
        owner = describe_owner(identity, facts)
        if entry and entry[2] == owner:
            owner = entry[2]
        self._cache[key] = (identity, facts, owner)
        return owner

    def keep(self, present: Collection[Key]) -> None:
        """Forget all jobs but these."""
        if len(present) != len(self._cache) or any(key not in present for key in self._cache):
            self._cache = {key: entry for key, entry in self._cache.items() if key in present}
            self._since = {key: since for key, since in self._since.items() if key in present}
            if self._look_up:
                named = {entry[0].job for entry in self._cache.values()}
                self._look_up.keep(named | {key[2] for key in present})


def describe_owner(identity: CgroupIdentity, facts: JobFacts) -> JobOwner:
    """Combine what the path says with what was looked up; the resource manager's user wins."""
    user = facts.user or identity.user or (user_name(identity.uid) if identity.uid is not None else "")
    uid = str(identity.uid) if identity.uid is not None else user_number(user)
    return JobOwner(
        facts.job or identity.job, user, uid, facts.account, identity.host or "", facts.name, identity.layout
    )


@lru_cache(maxsize=4096)
def _of_account(account: str) -> JobFacts:
    """Return one object for an account, so that nothing seems to have changed."""
    return JobFacts(account=account)


@lru_cache(maxsize=4096)
def user_name(uid: int) -> str:
    """Return the name of a uid; the number itself if it is unknown."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


@lru_cache(maxsize=4096)
def user_number(name: str) -> str:
    """Return the number of a user as a text; empty where the system does not know the name."""
    try:
        return str(pwd.getpwnam(name).pw_uid) if name else ""
    except KeyError:
        return ""


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
