"""Start candidates: which waiting jobs could start now, checked before each job so that a pass can stop early."""

from collections.abc import Mapping, Sequence

from oarlock.model.errors import OarlockError
from oarlock.model.snapshot import WaitingJob
from oarlock.plan.fit.fit import Fit
from oarlock.plan.pass_state import PassState
from oarlock.plan.timeline.occupancies import Occupancies, OccupancyKind


class StartClass:
    """Jobs that can all start now, or none of them: same kind, shape, length. `possible`: on an empty cluster."""

    __slots__ = ("fit", "kind", "length", "possible")

    def __init__(self, kind: OccupancyKind, fit: Fit, length: int, *, possible: bool) -> None:
        self.kind, self.fit, self.length, self.possible = kind, fit, length, possible


class StartClasses:
    """The start classes of all waiting jobs without open dependencies; `job_counts` counts the jobs of each."""

    def __init__(self, state: PassState) -> None:
        self._state = state
        self._known: dict[tuple[OccupancyKind, int, int], StartClass] = {}
        self._of_job: dict[int, tuple[StartClass, ...]] = {}
        self.job_counts: dict[StartClass, int] = {}

    def of(self, job_id: int) -> tuple[StartClass, ...]:
        """Return the start classes of a job: one per alternative."""
        return self._of_job.get(job_id, ())

    def add(self, job: WaitingJob) -> None:
        """Add a waiting job."""
        self._of_job[job.job_id] = classes = self._find(job)
        for start_class in classes:
            self.job_counts[start_class] = self.job_counts.get(start_class, 0) + 1

    def forget(self, job_id: int) -> tuple[StartClass, ...]:
        """Remove a waiting job and return its start classes."""
        classes = self._of_job.pop(job_id, ())
        for start_class in classes:
            self.job_counts[start_class] -= 1
            if not self.job_counts[start_class]:
                del self.job_counts[start_class]
        return classes

    def _find(self, job: WaitingJob) -> tuple[StartClass, ...]:
        try:
            kind = self._state.kind(job)
            classes = [self._class_of(kind, choice.shape, choice.walltime) for choice in job.choices]
        except (OarlockError, ValueError):
            return ()  # it will be set aside, and never start
        return tuple(classes if len(classes) == 1 else dict.fromkeys(classes))

    def _class_of(self, kind: OccupancyKind, shape: int, walltime: int) -> StartClass:
        start_class = self._known.get((kind, shape, walltime))
        if start_class is None:
            state = self._state
            fit, length = state.fit(shape), state.hole_length(kind, walltime)
            start_class = StartClass(kind, fit, length, possible=state.fits_empty_cluster(shape))
            self._known[kind, shape, walltime] = start_class
        return start_class


class StartCandidates:
    """The start classes of jobs that a pass has not reached yet, and which of them could start.

    Inside a pass free sets only shrink: a class that could not start once never can again. Only where groups compete
    for the same resources (`monotone` is False) a smaller set may fit, so such a class always remains a candidate.
    """

    __slots__ = ("_gone", "_impossible", "_job_counts", "_untried")

    def __init__(self, job_counts: Mapping[StartClass, int]) -> None:
        """Begin with all waiting jobs. `job_counts` is a live view: it counts waiting jobs, handled or not."""
        self._job_counts = job_counts
        self._gone: dict[StartClass, int] = {}
        self._untried: list[StartClass] | None = None  # those of `jobs_of`, until somebody asks
        self._impossible: set[StartClass] = set()

    def come(self, classes: Sequence[StartClass]) -> None:
        """Add a job that the pass has not reached yet; `job_counts` counts it already."""
        if self._untried is not None:
            self._untried += [start_class for start_class in classes if start_class not in self._impossible]

    def gone(self, classes: Sequence[StartClass]) -> None:
        """Record that the pass has handled a job."""
        gone = self._gone
        for start_class in classes:
            gone[start_class] = gone.get(start_class, 0) + 1

    def waits_no_more(self, classes: Sequence[StartClass]) -> None:
        """Remove a handled job that no longer waits."""
        gone = self._gone
        for start_class in classes:
            if start_class in gone:
                gone[start_class] -= 1

    def left(self, occupancies: Occupancies) -> bool:
        """Return whether any remaining job could start now."""
        untried, gone, job_counts, impossible = self._untried, self._gone, self._job_counts, self._impossible
        if untried is None:
            untried = self._untried = list(job_counts)
        kind: OccupancyKind | None = None
        while untried:
            start_class = untried[-1]
            if start_class not in impossible and job_counts.get(start_class, 0) > gone.get(start_class, 0):
                if start_class.kind is not kind:  # nearly all are of one kind
                    kind, occupancy = start_class.kind, occupancies.occupancy(start_class.kind)
                    most = occupancy.free_now
                fit = start_class.fit
                if not fit.monotone or (fit.least <= most and occupancy.find_now(fit, start_class.length) is not None):
                    return True
                impossible.add(start_class)
            untried.pop()
        return False

    def could_start(self, classes: Sequence[StartClass], occupancies: Occupancies) -> bool:
        """Return whether a job could start now."""
        impossible = self._impossible
        for start_class in classes:  # noqa: SIM110 - a generator would take twice as long
            if start_class not in impossible and self._could(start_class, occupancies):
                return True
        return False

    def _could(self, start_class: StartClass, occupancies: Occupancies) -> bool:
        if (
            not start_class.fit.monotone
            or occupancies.occupancy(start_class.kind).find_now(start_class.fit, start_class.length) is not None
        ):
            return True
        self._impossible.add(start_class)
        return False
