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

from oarlock.node.cgroup.hierarchies import UNIFIED, Hierarchy
from oarlock.node.measure import inotify
from oarlock.node.measure.layout import OARLOCK, CgroupIdentity, CgroupLayout, match
from oarlock.node.sources.files import is_exhausted

log = logging.getLogger(__name__)

RESCAN_SECONDS = 30.0
BLIND_RESCAN_SECONDS = 5.0
DEEPEST = 5
"""How deep below the root of a hierarchy a resource manager's directories are looked for."""
_HOMES = ("cpuacct", UNIFIED, "memory", "cpuset", "cpu", "pids", "blkio", "devices", "perf_event")

_LINKS_OF_A_LEAF = 2  # its name and its own dot; each directory inside adds one

Key = tuple[str, str, str]


class CgroupDirectory(NamedTuple):
    """One directory of one hierarchy; the path is relative, without a leading slash."""

    hierarchy: Hierarchy
    path: str

    @property
    def absolute(self) -> str:
        """Give the path to open."""
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

    def __init__(self, place: CgroupIdentity) -> None:
        self.place = place
        self.spots: list[CgroupDirectory] = []
        self.directories: dict[str, str] = {}
        self.process_directories: list[str] = []
        self.path = ""
        self.revision = 0
        self.identify_at = float("-inf")
        self.looks = 0
        self.is_empty = False

    @property
    def home(self) -> CgroupDirectory:
        """Give the directory whose tree holds its processes."""
        return min(self.spots, key=lambda spot: min(_HOMES.index(name) for name in spot.hierarchy.controllers))

    def add(self, spot: CgroupDirectory) -> bool:
        """Take a directory as one of its own; false when a directory of these controllers is known already."""
        if any(known.hierarchy.root == spot.hierarchy.root for known in self.spots):
            return False
        self.spots.append(spot)
        self.directories = {**self.directories, **dict.fromkeys(spot.hierarchy.controllers, spot.absolute)}
        if self.home == spot:  # a further controller changes nothing about where the processes are
            self.process_directories = [spot.absolute]
            self.path = f"/{spot.path}"
        self.revision += 1
        return True


class _Watched(NamedTuple):
    spot: CgroupDirectory
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
        self._blind = self._inotify is None
        self.foreign = frozenset(layout.name for layout in layouts if layout.is_job and layout.name != OARLOCK.name)
        self._next_scan = float("-inf")

    @property
    def jobs(self) -> Mapping[Key, FoundCgroup]:
        """Give the jobs known since the last look."""
        return self._jobs

    def look(self, now: float) -> Mapping[Key, FoundCgroup]:
        """Take in what changed since the last look; scan everything when it is time to."""
        for change in self._inotify.changes() if self._inotify else ():
            self._take_or_rescan(change)
        if now >= self._next_scan:
            seen_all = self._scanned()
            self._next_scan = now + (self._rescan_seconds if seen_all and not self._blind else BLIND_RESCAN_SECONDS)
        return self._jobs

    def forget(self, key: Key) -> None:
        """Drop a job whose files say that it ended."""
        found = self._jobs.pop(key, None)
        for spot in found.spots if found else ():
            self._where.pop(spot, None)
            self._left_over.add(spot)

    def close(self) -> None:
        """Stop watching."""
        if self._inotify:
            self._inotify.close()
            self._inotify = None

    def _take_or_rescan(self, change: inotify.InotifyEvent) -> None:
        try:
            self._take(change)
        except OSError as error:
            if not is_exhausted(error):
                raise
            self._next_scan = float("-inf")

    def _take(self, change: inotify.InotifyEvent) -> None:
        if change.what == inotify.OVERFLOWN:
            self._next_scan = float("-inf")
            return
        if change.what == inotify.UNWATCHED:
            self._watched.pop(change.watch, None)
            return
        watched = self._watched.get(change.watch)
        if watched is None:
            return
        spot = CgroupDirectory(watched.spot.hierarchy, f"{watched.spot.path}/{change.name}".lstrip("/"))
        if watched.owner:
            self._look_inside(watched.owner)
        elif change.what == inotify.APPEARED:
            self._appeared(spot)
        else:
            self._vanished(spot)

    def _appeared(self, spot: CgroupDirectory) -> None:
        place = match(self._layouts, spot.path)
        if place is None:
            self._step_in(spot, set(), deepest=0)
            return
        # Its directories in other hierarchies may be older than this one, and may have been an ended job's.
        for hierarchy in self._mounted:
            twin = CgroupDirectory(hierarchy, spot.path)
            if twin == spot or os.path.isdir(twin.absolute):
                self._left_over.discard(twin)
                self._add(twin, place)

    def _vanished(self, spot: CgroupDirectory) -> None:
        self._left_over.discard(spot)
        key = self._where.get(spot)
        if key:
            self.forget(key)
            self._left_over.discard(spot)

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
            self._step_in(CgroupDirectory(hierarchy, ""), present, deepest=DEEPEST)
        self._left_over &= present
        for key in [key for key, found in self._jobs.items() if not present.issuperset(found.spots)]:
            self.forget(key)
        self._left_over &= present
        for found in self._jobs.values():
            self._look_inside(found)

    def _step_in(self, spot: CgroupDirectory, present: set[CgroupDirectory], *, deepest: int) -> None:
        """Look for jobs below a directory, and watch it when jobs may appear in it."""
        on_the_way = not spot.path or any(layout.on_the_way(spot.path) for layout in self._layouts)
        if on_the_way:
            self._watch(spot, None)
        elif spot.path.count("/") >= deepest:
            return
        for name in _directories_in(spot.absolute):
            self._see(CgroupDirectory(spot.hierarchy, f"{spot.path}/{name}".lstrip("/")), present, deepest=deepest)

    def _see(self, spot: CgroupDirectory, present: set[CgroupDirectory], *, deepest: int) -> None:
        present.add(spot)
        if spot in self._left_over:
            return
        if spot not in self._where:
            place = match(self._layouts, spot.path)
            if place is None:
                self._step_in(spot, present, deepest=deepest)
                place = CgroupIdentity("cgroup", spot.path) if self._others else None
            if place:
                self._add(spot, place)

    def _add(self, spot: CgroupDirectory, place: CgroupIdentity) -> None:
        found = self._jobs.setdefault(place.key, FoundCgroup(place))
        if found.add(spot):
            self._where[spot] = place.key
            if found.home == spot:
                self._look_inside(found)

    def _look_inside(self, found: FoundCgroup) -> None:
        """List the directories inside a job's own, where Slurm and OAR 3 put the processes."""
        directories = [spot.absolute for spot in self._watched_tree(found.home, found)]
        if directories != found.process_directories:
            found.process_directories = directories

    def _watched_tree(self, spot: CgroupDirectory, owner: FoundCgroup) -> Iterator[CgroupDirectory]:
        """Yield a directory and all below it, parents first, each watched before it is listed.

        In the other order, a directory made between the listing and the watch would stay unknown until the rescan.
        A cgroup's link count shows without listing that it has no directories inside.
        """
        self._watch(spot, owner)
        yield spot
        if _is_leaf(spot.absolute):
            return
        for name in _directories_in(spot.absolute):
            yield from self._watched_tree(CgroupDirectory(spot.hierarchy, f"{spot.path}/{name}"), owner)

    def _watch(self, spot: CgroupDirectory, owner: FoundCgroup | None) -> None:
        if self._inotify is None or self._blind:
            return
        try:
            self._watched[self._inotify.watch(spot.absolute)] = _Watched(spot, owner)
        except OSError as error:
            if not inotify.is_exhausted(error):
                return  # it vanished, or is not ours to read; the next scan sees
            log.warning("no inotify watches left: new jobs are found by scanning", extra={"path": spot.absolute})
            self._blind = True


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
