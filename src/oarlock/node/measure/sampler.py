"""One sample: what every job on this machine, and the machine itself, reads at one instant.

Used by the agent on other resource managers' clusters and by the node program on Oarlock's own.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from oarlock.node.measure.discovery import CgroupFinder, FoundCgroup, Key
from oarlock.node.measure.layout import CgroupIdentity, identify
from oarlock.node.sources.files import CgroupGone, Values, is_end, is_exhausted
from oarlock.node.sources.job.processes import owner
from oarlock.node.sources.probe import JobSource, NodeSource, Probe, series

log = logging.getLogger(__name__)

REST_SECONDS = 30.0
"""How old the values of a job may become that shows no sign of life."""

COSTLY_SECONDS = 20.0
"""How often costly values of a busy job are read. Of a job that came to rest they are read once more, this late."""

THOROUGH_SECONDS = 300.0
"""How old settings of a job may become (a limit, a list of CPUs)."""

_SHARES = 16
_NEW_READINGS = 5
"""Readings of a new job that include what is costly: short jobs have few."""

_SIGN_OF_REST = "cpu"
"""A job counts as idle only if this source is open and its reading did not change."""


class JobProbes:
    """Read one job. `turn` spreads the thorough readings of many jobs over time, so that no sample is much dearer."""

    __slots__ = ("_beat_calls", "_beating", "_costly", "_costly_at", "_costly_beats", "_due", "_has_costly",
                 "_known_controllers", "_last", "_may_rest", "_probes", "_readings", "_share", "_thorough_due",
                 "_unopened", "_values", "job", "revision")  # fmt: skip

    def __init__(self, job: FoundCgroup, turn: int = 0) -> None:
        self.job = job
        self.revision = -1
        self._probes: dict[str, Probe] = {}
        self._beating: list[tuple[str, Probe]] = []
        self._beat_calls: list[Callable[[], bytes]] = []
        self._may_rest = False
        self._known_controllers: frozenset[str] = frozenset()
        self._last: list[bytes] | None = None
        self._values: Values = {}
        self._costly: Values = {}
        self._costly_at = float("-inf")
        self._costly_beats: list[bytes] | None = None
        self._readings = 0
        self._has_costly = False
        self._unopened: set[str] = set()
        self._share = turn % _SHARES / _SHARES
        self._due = self._thorough_due = float("-inf")

    def refresh(self, sources: Iterable[JobSource], errors: Counter[str]) -> None:
        """Open what the job's new directories offer; what is open stays open."""
        self.revision = self.job.revision
        now = frozenset(self.job.directories)
        added, self._known_controllers = now - self._known_controllers, now
        for source in sources:
            if source.name not in self._probes or source.controllers & added:
                self.open(source, errors)

    def open(self, source: JobSource, errors: Counter[str]) -> None:
        """Open one source for this job, in place of what it had open."""
        self.drop(source.name)
        try:
            probe = source.open(self.job)
        except Exception as error:  # noqa: BLE001  one job that cannot be opened must not stop the others
            self._unopened.add(source.name)
            count_error(errors, source.name, self.job.identity.job, error)
            return
        if probe:
            self._probes[source.name] = probe
            self._rearrange()

    def drop(self, name: str) -> None:
        """Close one source, if it is open."""
        probe = self._probes.pop(name, None)
        if probe:
            probe.close()
            self._rearrange()

    def read(self, now: float, errors: Counter[str]) -> Values:
        """Return the job's values; those of the last reading, when no sign of life changed since.

        Raises `CgroupGone` when the job's cgroup is gone.
        """
        broken: list[str] = []
        try:
            beats = [beat() for beat in self._beat_calls]
        except Exception:  # noqa: BLE001  `_beats` calls them again one by one to find which failed
            beats, broken = self._beats(errors)
        if beats == self._last and now < self._due:
            return self._values
        thorough = self._plan_next(now)
        if thorough and self._unopened:
            self._unopened.clear()
            self.revision = -1  # the sampler opens them again before the next reading
        self._values = {}
        for name, probe in self._probes.items():
            if name not in broken and not self._read_one(name, probe, errors, thorough=thorough):
                broken.append(name)
        if self._has_costly:
            self._put_costly(now, beats, errors, broken, thorough=thorough)
        self.job.is_empty = not self._values.get("processes", self._values.get("tasks", 1))
        self._last = beats if self._may_rest and beats[0] and not broken else None
        if self._unopened:
            self._give_up_unopened()
        return self._values

    def close(self) -> None:
        """Close all sources."""
        for name in list(self._probes):
            self.drop(name)

    def _give_up_unopened(self) -> None:
        """Close sources that ran out of descriptors: those they hold are needed by other jobs."""
        for name in self._unopened & self._probes.keys():
            due, thorough_due = self._due, self._thorough_due
            self.drop(name)
            self._due, self._thorough_due = due, thorough_due

    def _plan_next(self, now: float) -> bool:
        """Return whether settings are to be read now, and set when everything is read again at the latest."""
        thorough = now >= self._thorough_due
        self._due = now + REST_SECONDS * (1 - self._share)
        if thorough:
            self._thorough_due = now + THOROUGH_SECONDS * (1 - self._share)
            self._share = 0.0
        return thorough

    def _beats(self, errors: Counter[str]) -> tuple[list[bytes], list[str]]:
        """Return the signs of life, and the sources that failed."""
        beats: list[bytes] = []
        broken: list[str] = []
        for name, probe in self._beating:
            try:
                beats.append(probe.beat())
            except Exception as error:  # noqa: BLE001  see `_failed`
                self._failed(name, error, errors)
                broken.append(name)
        return beats, broken

    def _put_costly(
        self, now: float, beats: list[bytes], errors: Counter[str], broken: list[str], *, thorough: bool
    ) -> None:
        """Read costly values when they are due; otherwise repeat the last ones, and see that they do not get old.

        A job that got no CPU time since they were read has not changed them.
        """
        self._readings += 1
        changed = not (self._may_rest and beats == self._costly_beats)
        if thorough or self._readings <= _NEW_READINGS or (changed and now >= self._costly_at + COSTLY_SECONDS):
            self._costly = {}
            for name, probe in self._probes.items():
                if probe.costly and name not in broken and not self._read_costly(name, probe, errors):
                    broken.append(name)
            self._costly_at, self._costly_beats = now, beats
        elif changed:
            self._due = min(self._due, self._costly_at + COSTLY_SECONDS)
        self._values.update(self._costly)

    def _read_costly(self, name: str, probe: Probe, errors: Counter[str]) -> bool:
        try:
            probe.read_costly(self._costly)
        except Exception as error:  # noqa: BLE001  see `_failed`
            self._failed(name, error, errors)
            return False
        return True

    def _read_one(self, name: str, probe: Probe, errors: Counter[str], *, thorough: bool) -> bool:
        try:
            probe.read(self._values, thorough=thorough)
        except Exception as error:  # noqa: BLE001  see `_failed`
            self._failed(name, error, errors)
            return False
        return True

    def _failed(self, name: str, error: Exception, errors: Counter[str]) -> None:
        """Raise `CgroupGone` at the end of the job; count other errors, which cost only this job its series."""
        if isinstance(error, OSError) and is_end(error):
            raise CgroupGone from error
        if isinstance(error, OSError) and is_exhausted(error):
            self._unopened.add(name)
        count_error(errors, name, self.job.identity.job, error)

    def _rearrange(self) -> None:
        self._may_rest = _SIGN_OF_REST in self._probes
        self._has_costly = any(probe.costly for probe in self._probes.values())
        beating = [(name, probe) for name, probe in self._probes.items() if probe.beats]
        self._beating = sorted(beating, key=lambda pair: pair[0] != _SIGN_OF_REST)
        self._beat_calls = [probe.beat for _, probe in self._beating]
        self._last, self._due, self._thorough_due = None, float("-inf"), float("-inf")


def count_error(errors: Counter[str], source: str, subject: str, error: Exception) -> None:
    """Count a source's error; log the first one only, as it tends to come with every sample."""
    errors[source] += 1
    if errors[source] == 1:
        log.warning("a source failed", exc_info=error, extra={"source": source, "subject": subject})


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
