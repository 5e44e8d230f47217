"""Who could start now: asked before each job of a pass, so that it need not go on when nobody could."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from oarlock.model.errors import OarlockError
from oarlock.model.snapshot import WaitingJob
from oarlock.plan.fit.fit import Fit
from oarlock.plan.timeline.occupancies import Occupancies, OccupancyKind

if TYPE_CHECKING:
    from oarlock.plan.planner import Planner


class StartClass:
    """What decides whether a job can start now: all jobs of a sort can, or none. `possible`: on an empty cluster."""

    __slots__ = ("fit", "kind", "length", "possible")

    def __init__(self, kind: OccupancyKind, fit: Fit, length: int, *, possible: bool) -> None:
        self.kind, self.fit, self.length, self.possible = kind, fit, length, possible


class StartClasses:
    """The sorts of all jobs that wait and are free to go; `jobs_of` counts the jobs of each."""

    def __init__(self, planner: "Planner") -> None:
        self._planner = planner
        self._known: dict[tuple[OccupancyKind, int, int], StartClass] = {}
        self._of_job: dict[int, tuple[StartClass, ...]] = {}
        self.jobs_of: dict[StartClass, int] = {}

    def of(self, job_id: int) -> tuple[StartClass, ...]:
        """Give the sorts of a job: one for each of its alternatives."""
        return self._of_job.get(job_id, ())

    def add(self, job: WaitingJob) -> None:
        """Let one job more wait."""
        self._of_job[job.job_id] = sorts = self._find(job)
        for sort in sorts:
            self.jobs_of[sort] = self.jobs_of.get(sort, 0) + 1

    def forget(self, job_id: int) -> tuple[StartClass, ...]:
        """Let a job wait no more; gives what its sorts were."""
        sorts = self._of_job.pop(job_id, ())
        for sort in sorts:
            self.jobs_of[sort] -= 1
            if not self.jobs_of[sort]:
                del self.jobs_of[sort]
        return sorts

    def _find(self, job: WaitingJob) -> tuple[StartClass, ...]:
        try:
            kind = self._planner.kind(job)
            sorts = [self._sort(kind, choice.shape, choice.walltime) for choice in job.choices]
        except (OarlockError, ValueError):
            return ()  # it will be set aside, and never start
        return tuple(sorts if len(sorts) == 1 else dict.fromkeys(sorts))

    def _sort(self, kind: OccupancyKind, shape: int, walltime: int) -> StartClass:
        sort = self._known.get((kind, shape, walltime))
        if sort is None:
            planner = self._planner
            fit, length = planner.fit(shape), planner.sought(kind, walltime)
            sort = StartClass(kind, fit, length, possible=planner.could_ever_start(shape))
            self._known[kind, shape, walltime] = sort
        return sort


class StartCandidates:
    """The sorts of jobs that are still to come in a pass, and which of them could start.

    Inside a pass room only shrinks: a sort that could not start once never can again. Only where groups want the same
    resources (`steady` is False) less room may be better, so for such a sort there is always hope.
    """

    __slots__ = ("_gone", "_hopeless", "_jobs_of", "_untried")

    def __init__(self, jobs_of: Mapping[StartClass, int]) -> None:
        """Begin with all jobs to come. `jobs_of` is followed: it counts those who wait, whether they had their turn."""
        self._jobs_of = jobs_of
        self._gone: dict[StartClass, int] = {}
        self._untried: list[StartClass] | None = None  # those of `jobs_of`, until somebody asks
        self._hopeless: set[StartClass] = set()

    def come(self, sorts: Sequence[StartClass]) -> None:
        """Let one job more be still to come; it is counted among those who wait."""
        if self._untried is not None:
            self._untried += [sort for sort in sorts if sort not in self._hopeless]

    def gone(self, sorts: Sequence[StartClass]) -> None:
        """Let a job have had its turn."""
        gone = self._gone
        for sort in sorts:
            gone[sort] = gone.get(sort, 0) + 1

    def waits_no_more(self, sorts: Sequence[StartClass]) -> None:
        """Let a job that had its turn be counted no more among those who wait."""
        gone = self._gone
        for sort in sorts:
            if sort in gone:
                gone[sort] -= 1

    def left(self, board: Occupancies) -> bool:
        """Say whether anybody who is still to come could start now."""
        untried, gone, jobs_of, hopeless = self._untried, self._gone, self._jobs_of, self._hopeless
        if untried is None:
            untried = self._untried = list(jobs_of)
        kind: OccupancyKind | None = None
        while untried:
            sort = untried[-1]
            if sort not in hopeless and jobs_of.get(sort, 0) > gone.get(sort, 0):
                if sort.kind is not kind:  # nearly all are of one kind
                    kind, chart = sort.kind, board.chart(sort.kind)
                    most = chart.most_now
                fit = sort.fit
                if not fit.steady or (fit.least <= most and chart.find_now(fit, sort.length) is not None):
                    return True
                hopeless.add(sort)
            untried.pop()
        return False

    def could_start(self, sorts: Sequence[StartClass], board: Occupancies) -> bool:
        """Say whether a job could start now."""
        hopeless = self._hopeless
        for sort in sorts:  # noqa: SIM110 - a generator would take twice as long
            if sort not in hopeless and self._could(sort, board):
                return True
        return False

    def _could(self, sort: StartClass, board: Occupancies) -> bool:
        if not sort.fit.steady or board.chart(sort.kind).find_now(sort.fit, sort.length) is not None:
            return True
        self._hopeless.add(sort)
        return False
