"""How long measurements are kept: whole, thinned, and then no more; what is kept, and whether it can be read."""

import logging
import os
import time
from collections.abc import Callable, Generator, Iterator, Set
from pathlib import Path
from typing import TypeVar

from msgspec import Struct

from oarlock.measure.collect.files import hdf5, thinning
from oarlock.measure.collect.files.hdf5 import ArchivedJob, DamagedArchive
from oarlock.measure.collect.files.places import SamplePlaces, day_of, is_thinned
from oarlock.measure.collect.files.rowlog import read_log_file, survey_in_steps
from oarlock.measure.collect.files.steps import Steps

log = logging.getLogger(__name__)

T = TypeVar("T")

_DAY = 86_400
_AGAIN_SECONDS = 3600.0
_ROOM_SECONDS = 300.0  # between two attempts to make room
_SETTLED = 3600  # seconds after its end at which a day of a node is over for good


class RetentionPolicy(Struct, frozen=True):
    """Days that files are kept whole, thinned to 5 minutes, and, of nodes, to an hour; 0 keeps them for ever.

    `keep_free`: percent of the disk below which the oldest files are thinned earlier.
    """

    full_days: int = 90
    thin_days: int = 730
    node_days: int = 3650
    keep_free: int = 10


class Retention:
    """Keeps the files of one folder as long as a policy says, a little at a time.

    `pinned` returns the jobs whose files are neither thinned nor deleted; `on_shortage` receives a sentence when the
    disk is nearly full, at most once a day.
    """

    def __init__(
        self,
        places: SamplePlaces,
        policy: RetentionPolicy,
        *,
        pinned: Callable[[], Set[int]] = frozenset,
        on_shortage: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._places, self._policy, self._pinned, self._on_shortage = places, policy, pinned, on_shortage
        self._walk: Iterator[str] | None = None
        self._next = self._next_room = self._tell_at = 0.0

    def step(self, *, now: float, seconds: float = 0.1) -> None:
        """Look at files for so many seconds; when all were looked at, begin again an hour later.

        Where the disk is nearly full, room is made at once.
        """
        end = time.monotonic() + seconds
        if self._walk is None:
            if now >= self._next:
                self._walk, self._next = self.run(now=now), now + _AGAIN_SECONDS
            elif now >= self._next_room and self._is_short_of_room():
                self._walk = self.make_room(now=now)
            else:
                return
        walk, self._walk = self._walk, None  # what raises is not gone on with
        for _ in walk:
            if time.monotonic() > end:
                self._walk = walk
                return

    def run(self, *, now: float) -> Iterator[str]:
        """Look at all files once; yield after each what was done to it, or an empty text."""
        if not hdf5.is_available():
            return
        pinned = self._pinned()
        for log_path in sorted(self._places.nodes.glob("*/*.rows")):
            yield from self._close_day(log_path, now)
        for path in sorted(self._places.nodes.glob("*/*.h5")):
            yield from self._keep(path, now - day_of(path), self._policy.node_days)
        for job, path in self._places.archived_jobs():
            if job not in pinned:
                yield from self._keep(path, _age(path, now), self._policy.thin_days)
            yield ""
        yield from self.make_room(now=now)

    def make_room(self, *, now: float) -> Iterator[str]:
        """Thin whole files, the oldest first, for as long as the disk is nearly full; yield as `run` does."""
        self._next_room = now + _ROOM_SECONDS
        if not hdf5.is_available() or not self._is_short_of_room():
            return
        self._tell_shortage(now)
        ages: list[tuple[float, Path]] = []
        for age, path in self._whole_files(now):
            ages.append((age, path))
            yield ""
        for _, path in sorted(ages, reverse=True):
            if not self._is_short_of_room():
                return
            yield from self._attempt(path, self._thin)

    def _whole_files(self, now: float) -> Iterator[tuple[float, Path]]:
        """Yield the files that may be thinned early, with their age."""
        pinned = self._pinned()
        for path in self._places.nodes.glob("*/*.h5"):
            if not is_thinned(path):
                yield now - day_of(path), path
        for job, path in self._places.archived_jobs():
            if job not in pinned and not is_thinned(path):
                yield _age(path, now), path

    def _close_day(self, path: Path, now: float) -> Iterator[str]:
        """Make a file of a node's log once its day is over."""
        if now >= day_of(path) + _DAY + _SETTLED:
            yield from self._attempt(path, self._archive_day)
        yield ""

    def _archive_day(self, path: Path) -> Iterator[str]:
        target = path.with_suffix(".h5")
        if not target.exists():
            content = yield from _quietly(survey_in_steps(path))
            if content.rows:
                about = ArchivedJob(0, name=path.parent.name)
                yield from _quietly(hdf5.write_in_steps(target, self._places.temporary, about, content, scope="node"))
        path.unlink()
        yield f"{target} made"

    def _keep(self, path: Path, age: float, last_days: int) -> Iterator[str]:
        change = self._due_change(path, age, last_days)
        if change is not None:
            yield from self._attempt(path, change)
        yield ""

    def _due_change(self, path: Path, age: float, last_days: int) -> "_Change | None":
        policy = self._policy
        if last_days and age > last_days * _DAY:
            return _delete
        if is_thinned(path):
            is_due = policy.thin_days and age > policy.thin_days * _DAY
            return self._thin_to_hours if is_due and self._is_of_node(path) else None
        is_due = policy.full_days and age > policy.full_days * _DAY
        return self._thin if is_due else None

    def _is_of_node(self, path: Path) -> bool:
        return path.parent.parent == self._places.nodes

    @staticmethod
    def _attempt(path: Path, change: "_Change") -> Iterator[str]:
        """Change a file; one that is damaged, or a disk that takes nothing, is logged, and the others go on."""
        try:
            yield from change(path)
        except FileNotFoundError:  # somebody else deleted it
            pass
        except DamagedArchive as damaged:
            log.warning("a file of measurements is damaged", extra={"file": str(path), "why": str(damaged)})
        except OSError as error:
            log.warning("a file of measurements is kept as it is", extra={"file": str(path), "why": str(error)})

    def _thin(self, path: Path) -> Iterator[str]:
        """Thin a file; what was its age stays so."""
        about = path.stat()
        target = path.with_name(path.name.removesuffix(".h5") + ".thin.h5")
        for _ in thinning.thin_in_steps(path, target, self._places.temporary):
            yield ""
        os.utime(target, (about.st_atime, about.st_mtime))
        yield f"{path} thinned"

    def _thin_to_hours(self, path: Path) -> Iterator[str]:
        if hdf5.read_about(path).get("thinned") == thinning.HOUR_SECONDS:
            return
        for _ in thinning.thin_in_steps(path, path, self._places.temporary, thinning.HOUR_SECONDS):
            yield ""
        yield f"{path} thinned to hours"

    def _is_short_of_room(self) -> bool:
        return self._places.room().free_percent < self._policy.keep_free

    def _tell_shortage(self, now: float) -> None:
        if now < self._tell_at:
            return
        self._tell_at = now + _DAY
        free, wanted = round(self._places.room().free_percent, 1), self._policy.keep_free
        log.warning(
            "the disk of the measurements is nearly full: the oldest are thinned early",
            extra={"free_percent": free, "wanted": wanted},
        )
        self._on_shortage(
            f"{free:g} % of the disk of the measurements are free, less than {wanted} % (ARCHIVE_KEEP_FREE): the "
            "oldest files are thinned early"
        )


def _quietly(steps: Steps[T]) -> Generator[str, None, T]:
    """Do steps as a walk over files does: none of them has something to say."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
        yield ""


def _age(path: Path, now: float) -> float:
    """Return how old a file is; one that was deleted meanwhile has no age."""
    try:
        return now - path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _delete(path: Path) -> Iterator[str]:
    path.unlink()
    yield f"{path} deleted"


_Change = Callable[[Path], Iterator[str]]
"""Changes a file in steps; yields at the end what it did, and before that empty texts."""


class KeptFiles(Struct, frozen=True):
    """How many files of one kind there are, and how large they are together."""

    kind: str
    files: int
    bytes: int


def status(places: SamplePlaces) -> list[KeptFiles]:
    """Count what is kept, by kind."""
    kinds: dict[str, list[int]] = {}
    for kind, paths in (
        ("jobs, live", places.live.glob("*.rows")),
        ("jobs, whole", (path for _, path in places.archived_jobs() if not is_thinned(path))),
        ("jobs, thinned", (path for _, path in places.archived_jobs() if is_thinned(path))),
        ("nodes", places.nodes.glob("*/*")),
    ):
        kinds[kind] = [path.stat().st_size for path in paths]
    return [KeptFiles(kind, len(sizes), sum(sizes)) for kind, sizes in kinds.items()]


def count_files(places: SamplePlaces) -> int:
    """Count all files."""
    return sum(1 for _ in _all_files(places))


def _all_files(places: SamplePlaces) -> Iterator[Path]:
    """Yield row logs, then files of jobs, then those of nodes."""
    yield from sorted([*places.live.glob("*.rows"), *places.nodes.glob("*/*.rows")])
    yield from (path for _, path in places.archived_jobs())
    yield from sorted(places.nodes.glob("*/*.h5"))


def check(
    places: SamplePlaces,
    report: Callable[[str], None],
    progress: Callable[[int], None] = lambda _done: None,
) -> int:
    """Read every file to its end; report those that cannot be read, and return how many files there are.

    `progress` is called with how many were read. What a running server deletes meanwhile is left out.
    """
    count = 0
    for done, path in enumerate(list(_all_files(places))):
        progress(done)
        try:
            problem = _problem_of_log(path) if path.suffix == ".rows" else _problem_of_file(path)
        except FileNotFoundError:
            continue
        count += 1
        if problem:
            report(f"{path}: {problem}")
    return count


def _problem_of_log(path: Path) -> str:
    size = path.stat().st_size
    length = read_log_file(path, lambda _names: ()).length
    return f"{size - length} bytes at its end are no whole row" if length < size else ""


def _problem_of_file(path: Path) -> str:
    try:
        hdf5.read_about(path)
        hdf5.read_through(path)
    except DamagedArchive as damaged:
        return str(damaged)
    return ""
