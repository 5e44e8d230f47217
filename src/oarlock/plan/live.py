"""A plan that lives: one job more, one job less, without planning everything anew.

Nobody's start is moved back, so what was announced is kept. A new job is placed behind all others, just as a whole
pass would. When a job ends early, those that can begin at once in the room it leaves do so, the first in the queue
first; that the others could move up a little is left to the next pass.
"""

from typing import NamedTuple

from oarlock.model.plan import Placement, Unplaced
from oarlock.model.snapshot import Choice, Shape, Waiting
from oarlock.plan.board import Kind
from oarlock.plan.chart import Stay
from oarlock.plan.dependencies import Blocked
from oarlock.plan.fit import Fit
from oarlock.plan.planner import Option, Planner
from oarlock.plan.timeline import Found, FromNow


def submit(planner: Planner, job: Waiting) -> Placement | Unplaced:
    """Place a new job behind all others."""
    planner.add(job)
    return planner.placements.get(job.job_id) or planner.unplaced[job.job_id]


def add_shape(planner: Planner, shape: Shape) -> int:
    """Make a shape known that no job asked for yet; gives its number."""
    planner.shapes.append(shape)
    return len(planner.shapes) - 1


def ended(planner: Planner, job_id: int, *, now: int) -> list[Placement]:
    """Let a job end before its time, or a waiting one go, and give the places of those that begin now because of it."""
    planner.advance(now)
    planner.forget(job_id)
    started: list[Placement] = []
    while (found := _Now(planner).first()) is not None:
        job, kind, option = found
        planner.move(job, kind, option)
        started.append(planner.placements[job.job_id])
    return started


class _Candidate(NamedTuple):
    job: Waiting
    kind: Kind
    option: Option


class _Now:
    """Looks for the first job in the queue that could begin at once."""

    def __init__(self, planner: Planner) -> None:
        self._planner = planner
        self._free: dict[tuple[Kind, bool], FromNow] = {}
        self._failed: set[tuple[Kind, int, int]] = set()

    def first(self) -> _Candidate | None:
        planner = self._planner
        for job_id, placement in planner.placements.items():
            if placement.start <= planner.now or job_id not in planner.waiting:
                continue
            job = planner.waiting[job_id]
            kind = planner.kind(job)
            for choice in job.choices:
                option = self._option(job, kind, choice, planner.board.settled[job_id].stay)
                if option is not None:
                    return _Candidate(job, kind, option)
        return None

    def _option(self, job: Waiting, kind: Kind, choice: Choice, stay: Stay) -> Option | None:
        """Try one alternative. Its own stay to come is not in its way: what it keeps free until then it can have."""
        planner = self._planner
        fit = planner.fit(choice.shape)
        stop = planner.now + planner.sought(kind, choice.walltime)
        own = self._own(kind, fit, stay) if stay.start < stop <= stay.stop else 0
        key = kind, choice.shape, choice.walltime
        if not own and key in self._failed:
            return None
        free = self._from_now(kind, fit).until(stop) | own
        if fit.fits(free) and not self._must_wait(job):
            return Option(choice, fit, Found(planner.now, free))
        if not own:
            self._failed.add(key)
        return None

    def _own(self, kind: Kind, fit: Fit, stay: Stay) -> int:
        units = self._planner.fitter.touched_nodes(stay.resources) if fit.of_nodes else stay.resources
        return units & self._from_now(kind, fit).until(stay.start)

    def _from_now(self, kind: Kind, fit: Fit) -> FromNow:
        key = kind, fit.of_nodes
        known = self._free.get(key)
        if known is None:
            known = self._free[key] = self._planner.board.chart(kind).from_now(of_nodes=fit.of_nodes)
        return known

    def _must_wait(self, job: Waiting) -> bool:
        earliest = self._planner.earliest(job)
        return isinstance(earliest, Blocked) or earliest > self._planner.now
