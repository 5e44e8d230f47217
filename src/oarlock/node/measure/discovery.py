"""Which jobs are on this machine: found by their cgroups, the moment they appear (inotify) and by a slow rescan.

Nothing here needs a resource manager to be there: its directory may appear later, or never. A job is its cgroup,
so a job without a process is seen too. A job ends when the first of its directories goes; what is left of it in
other hierarchies is not taken for a new job.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from oarlock.node.measure import inotify
from oarlock.node.measure.layout import OARLOCK, CgroupIdentity, CgroupLayout, match
from oarlock.node.sources.files import UNIFIED, Hierarchy, is_exhausted

log = logging.getLogger(__name__)

RESCAN_SECONDS = 30.0
BLIND_RESCAN_SECONDS = 5.0
DEEPEST = 5
"""How deep below the root of a hierarchy a resource manager's directories are looked for."""
_HOMES = ("cpuacct", UNIFIED, "memory", "cpuset", "cpu", "pids", "blkio", "devices", "perf_event")

_LINKS_OF_A_LEAF = 2  # st_nlink of a cgroup without children: its name and its own dot; each child adds one

Key = tuple[str, str, str]


class CgroupDirectory(NamedTuple):
    """One directory of one hierarchy; the path is relative, without a leading slash."""

    hierarchy: Hierarchy
    path: str

    @property
    def absolute(self) -> str:
        """Return the absolute path."""
        return f"{self.hierarchy.root}/{self.path}" if self.path else self.hierarchy.root


class FoundCgroup:
    """A job that is here now. `is_empty`: it had no process when it was last read.

    `identify_at` is when its processes are next asked whose it is, after `looks` times in vain.
    `revision` grows when a directory of it is found, so that more files are opened.
    `directories` is its directory for each controller (`unified` for version 2); replaced, never changed.
    `path` is that of its home below the root of the hierarchy, as managers write it.
    `process_directories` are those whose `cgroup.procs` together hold its processes; the list is replaced, never
    changed, when there are others.
    """

    def __init__(self, identity: CgroupIdentity) -> None:
        self.identity = identity
        self.cgroup_directories: list[CgroupDirectory] = []
        self.directories: dict[str, str] = {}
        self.process_directories: list[str] = []
        self.path = ""
        self.revision = 0
        self.identify_at = float("-inf")
        self.looks = 0
        self.is_empty = False

    @property
    def home(self) -> CgroupDirectory:
        """Return the directory whose tree holds its processes."""
        return min(
            self.cgroup_directories,
            key=lambda directory: min(_HOMES.index(name) for name in directory.hierarchy.controllers),
        )

    def add(self, directory: CgroupDirectory) -> bool:
        """Add a directory; return false if one of this hierarchy is known already."""
        if any(existing.hierarchy.root == directory.hierarchy.root for existing in self.cgroup_directories):
            return False
        self.cgroup_directories.append(directory)
        self.directories = {**self.directories, **dict.fromkeys(directory.hierarchy.controllers, directory.absolute)}
        if self.home == directory:  # a further controller changes nothing about where the processes are
            self.process_directories = [directory.absolute]
            self.path = f"/{directory.path}"
        self.revision += 1
        return True


class _Watched(NamedTuple):
    directory: CgroupDirectory
    owner: FoundCgroup | None  # the job it lies in, if it does


class CgroupFinder:
    """Keep the list of jobs. `look` is cheap when nothing changed; no call raises because a cgroup vanishes.

    `hierarchies` is asked again at each rescan, since a hierarchy may be mounted later. With `others`, cgroups that
    are no jobs are given too (layout `cgroup` where no layout knows them). `foreign` are the layouts of jobs of other
    resource managers.
    """

    def __init__(
        self,
        layouts: Sequence[CgroupLayout],
        hierarchies: Callable[[], Sequence[Hierarchy]],
        *,
        others: bool = False,
        rescan_seconds: float = RESCAN_SECONDS,
    ) -> None:
        self._layouts = [layout for layout in layouts if layout.is_job or others]
        self._hierarchies = hierarchies
        self._others = others
        self._rescan_seconds = rescan_seconds
        self._jobs: dict[Key, FoundCgroup] = {}
        self._where: dict[CgroupDirectory, Key] = {}
        self._left_over: set[CgroupDirectory] = set()
        self._watched: dict[int, _Watched] = {}
        self._mounted: Sequence[Hierarchy] = ()
        self._inotify = _inotify_or_none()
        self._without_watches = self._inotify is None
        self.foreign = frozenset(layout.name for layout in layouts if layout.is_job and layout.name != OARLOCK.name)
        self._next_scan = float("-inf")

    @property
    def jobs(self) -> Mapping[Key, FoundCgroup]:
        """Return the jobs as of the last `look`."""
        return self._jobs

    def look(self, now: float) -> Mapping[Key, FoundCgroup]:
        """Apply the changes since the last call, rescan everything when that is due, and return all jobs."""
        for change in self._inotify.changes() if self._inotify else ():
            self._apply_or_rescan(change)
        if now >= self._next_scan:
            seen_all = self._scanned()
            self._next_scan = now + (
                self._rescan_seconds if seen_all and not self._without_watches else BLIND_RESCAN_SECONDS
            )
        return self._jobs

    def forget(self, key: Key) -> None:
        """Drop a job whose files say that it ended."""
        job = self._jobs.pop(key, None)
        for directory in job.cgroup_directories if job else ():
            self._where.pop(directory, None)
            self._left_over.add(directory)

    def close(self) -> None:
        """Stop watching."""
        if self._inotify:
            self._inotify.close()
            self._inotify = None

    def _apply_or_rescan(self, change: inotify.InotifyEvent) -> None:
        try:
            self._apply(change)
        except OSError as error:
            if not is_exhausted(error):
                raise
            self._next_scan = float("-inf")

    def _apply(self, change: inotify.InotifyEvent) -> None:
        if change.what == inotify.OVERFLOWN:
            self._next_scan = float("-inf")
            return
        if change.what == inotify.UNWATCHED:
            self._watched.pop(change.watch, None)
            return
        watched = self._watched.get(change.watch)
        if watched is None:
            return
        directory = CgroupDirectory(watched.directory.hierarchy, f"{watched.directory.path}/{change.name}".lstrip("/"))
        if watched.owner:
            self._update_process_directories(watched.owner)
        elif change.what == inotify.APPEARED:
            self._appeared(directory)
        else:
            self._vanished(directory)

    def _appeared(self, directory: CgroupDirectory) -> None:
        identity = match(self._layouts, directory.path)
        if identity is None:
            self._scan_below(directory, set(), deepest=0)
            return
        # Its directories in other hierarchies may be older than this one, and may have been an ended job's.
        for hierarchy in self._mounted:
            twin = CgroupDirectory(hierarchy, directory.path)
            if twin == directory or os.path.isdir(twin.absolute):
                self._left_over.discard(twin)
                self._add(twin, identity)

    def _vanished(self, directory: CgroupDirectory) -> None:
        self._left_over.discard(directory)
        key = self._where.get(directory)
        if key:
            # Its directories in other hierarchies are removed a moment later; until then they are left over, not a
            # new job.
            self.forget(key)
            self._left_over.discard(directory)

    def _scanned(self) -> bool:
        """Scan everything; false, and nothing is forgotten, when there were no descriptors to do it with."""
        try:
            self._scan()
        except OSError as error:
            if not is_exhausted(error):
                raise
            log.warning("jobs cannot be looked for: %s", error.strerror)
            return False
        return True

    def _scan(self) -> None:
        present: set[CgroupDirectory] = set()
        self._mounted = self._hierarchies()
        for hierarchy in self._mounted:
            self._scan_below(CgroupDirectory(hierarchy, ""), present, deepest=DEEPEST)
        self._left_over &= present
        for key in [key for key, job in self._jobs.items() if not present.issuperset(job.cgroup_directories)]:
            self.forget(key)
        self._left_over &= present
        for job in self._jobs.values():
            self._update_process_directories(job)

    def _scan_below(self, directory: CgroupDirectory, present: set[CgroupDirectory], *, deepest: int) -> None:
        """Look for jobs below a directory, and watch it when jobs may appear in it."""
        on_the_way = not directory.path or any(layout.on_the_way(directory.path) for layout in self._layouts)
        if on_the_way:
            self._watch(directory, None)
        elif directory.path.count("/") >= deepest:
            return
        for name in _directories_in(directory.absolute):
            self._examine(
                CgroupDirectory(directory.hierarchy, f"{directory.path}/{name}".lstrip("/")), present, deepest=deepest
            )

    def _examine(self, directory: CgroupDirectory, present: set[CgroupDirectory], *, deepest: int) -> None:
        present.add(directory)
        if directory in self._left_over:
            return
        if directory not in self._where:
            identity = match(self._layouts, directory.path)
            if identity is None:
                self._scan_below(directory, present, deepest=deepest)
                identity = CgroupIdentity("cgroup", directory.path) if self._others else None
            if identity:
                self._add(directory, identity)

    def _add(self, directory: CgroupDirectory, identity: CgroupIdentity) -> None:
        job = self._jobs.setdefault(identity.key, FoundCgroup(identity))
        if job.add(directory):
            self._where[directory] = identity.key
            if job.home == directory:
                self._update_process_directories(job)

    def _update_process_directories(self, job: FoundCgroup) -> None:
        """List the directories inside a job's own, where Slurm and OAR 3 put the processes."""
        directories = [directory.absolute for directory in self._watched_tree(job.home, job)]
        if directories != job.process_directories:
            job.process_directories = directories

    def _watched_tree(self, directory: CgroupDirectory, owner: FoundCgroup) -> Iterator[CgroupDirectory]:
        """Yield a directory and all below it, parents first, each watched before it is listed.

        In the other order, a directory made between the listing and the watch would stay unknown until the rescan.
        A cgroup's link count shows without listing that it has no directories inside.
        """
        self._watch(directory, owner)
        yield directory
        if _is_leaf(directory.absolute):
            return
        for name in _directories_in(directory.absolute):
            yield from self._watched_tree(CgroupDirectory(directory.hierarchy, f"{directory.path}/{name}"), owner)

    def _watch(self, directory: CgroupDirectory, owner: FoundCgroup | None) -> None:
        if self._inotify is None or self._without_watches:
            return
        try:
            # The kernel gives a directory that is watched already its old number: watching twice only replaces the
            # owner.
            self._watched[self._inotify.watch(directory.absolute)] = _Watched(directory, owner)
        except OSError as error:
            if not inotify.is_exhausted(error):
                return  # it vanished, or is not ours to read; the next scan sees
            log.warning("no inotify watches left: new jobs are found by scanning", extra={"path": directory.absolute})
            self._without_watches = True


def _inotify_or_none() -> inotify.Inotify | None:
    try:
        return inotify.Inotify()
    except OSError as error:
        log.warning("jobs are found by scanning: %s", error.strerror)
        return None


def _directories_in(path: str) -> list[str]:
    try:
        with os.scandir(path) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
    except OSError as error:
        if is_exhausted(error):
            raise  # what cannot be listed is not gone
        return []


def _is_leaf(path: str) -> bool:
    try:
        return os.stat(path).st_nlink == _LINKS_OF_A_LEAF
    except OSError:
        return True
