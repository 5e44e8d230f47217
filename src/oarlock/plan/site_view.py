"""What a scheduler of the site gets, and what it answers: the forms of both, and the check of an answer.

The forms are public (`docs/running-a-site/own-scheduler.md`): a field may be added, none may change.
"""

from collections.abc import Iterable

from msgspec import Struct

from oarlock.lang.where import show
from oarlock.model.errors import OarlockError
from oarlock.model.job import Reservation
from oarlock.model.resource import Value
from oarlock.model.snapshot import Choice, Promise, Shape, SitePlan, Snapshot, Usage, WaitingJob
from oarlock.model.submission import WORDS, ResourceGroup
from oarlock.plan.planner import begin_pass, plan_before
from oarlock.plan.rules.prerequisites import Blocked
from oarlock.plan.settings import PlanSettings
from oarlock.plan.site_plan import place_as_decided
from oarlock.plan.timeline.occupancies import OccupancyKind

VERSION = 1
Ranges = list[tuple[int, int]]
"""Numbers of resources as ranges, first and last included."""

_WORDS = {count: word for word, count in WORDS.items()}


class RequestedGroup(Struct, frozen=True):
    """One hierarchy of a request: levels from the outermost on, and the resources that its conditions leave."""

    levels: list[tuple[str, int | str]]
    matching: Ranges
    where: str | None = None


class RequestedChoice(Struct, frozen=True):
    """One alternative of a job: its groups, each with resources of its own, for `walltime` seconds."""

    moldable_id: int
    walltime: int
    groups: list[RequestedGroup]


class WaitingJobView(Struct, frozen=True):
    """A job that could start; `not_before` and `deadline` are instants."""

    job_id: int
    user: str
    project: str
    name: str | None
    types: list[str]
    submitted: int
    not_before: int
    deadline: int | None
    choices: list[RequestedChoice]


class FreeSlot(Struct, frozen=True):
    """Resources that are free during [start, stop); the last slot has no end."""

    start: int
    stop: int | None
    free: Ranges


class SchedulerInput(Struct, frozen=True):
    """Everything that a scheduler of the site gets: one JSON object on its standard input."""

    version: int
    queue: str
    now: int
    security_time: int
    jobs: list[WaitingJobView]
    slots: list[FreeSlot]
    resources: list[dict[str, Value]]
    usage: Usage


class AnsweredPlacement(Struct, frozen=True, forbid_unknown_fields=True):
    """A place for a job: now unless `start` is in the future; its first alternative unless another is named."""

    job_id: int
    resources: list[int]
    start: int = 0
    moldable_id: int | None = None


class SchedulerAnswer(Struct, frozen=True, forbid_unknown_fields=True):
    """What a scheduler of the site prints: one JSON object on its standard output."""

    placements: list[AnsweredPlacement]


class WrongAnswer(OarlockError):
    """An answer of a site's scheduler that names a place which a job cannot have."""

    http_status = 500


class SiteView:
    """The state of a pass up to a queue of the site's own scheduler: what that one sees, and is checked against."""

    def __init__(self, snapshot: Snapshot, queue: str, *, now: int, settings: PlanSettings) -> None:
        self._state = begin_pass(snapshot, now=now, settings=settings)
        self._queue, self._shapes = queue, dict[int, list[RequestedGroup]]()
        plan_before(self._state, queue)
        self._jobs = {
            job.job_id: job
            for job in self._state.waiting.values()
            if job.queue == queue and job.reservation == Reservation.NONE
        }

    @property
    def has_jobs(self) -> bool:
        """Whether a job of the queue waits."""
        return bool(self._jobs)

    def input(self) -> SchedulerInput:
        """Return what the program gets; jobs that wait for others without a known end are left out."""
        state, table = self._state, self._state.layout.table
        columns = list(table.columns.items())
        return SchedulerInput(
            version=VERSION,
            queue=self._queue,
            now=state.now,
            security_time=state.settings.security_time,
            jobs=[view for job in self._jobs.values() if (view := self._job(job)) is not None],
            slots=[
                FreeSlot(start, stop, self._ranges(free))
                for start, stop, free in state.occupancies.occupancy(OccupancyKind()).slots()
            ],
            resources=[
                {**{name: values[row] for name, values in columns}, "resource_id": number}
                for row, number in enumerate(table.ids)
            ],
            usage=state.usage.get(self._queue, Usage()),
        )

    def _job(self, job: WaitingJob) -> WaitingJobView | None:
        earliest = self._state.earliest(job)
        if isinstance(earliest, Blocked):
            return None
        try:
            choices = [self._choice(choice) for choice in job.choices]
        except (OarlockError, ValueError):  # a property that it asks for was removed
            return None
        return WaitingJobView(
            job.job_id, job.user, job.project, job.name, list(job.types), job.submitted,
            max(earliest, self._state.now), job.deadline, choices,
        )  # fmt: skip

    def _choice(self, choice: Choice) -> RequestedChoice:
        groups = self._shapes.get(choice.shape)
        if groups is None:  # the same for all jobs that ask for the same
            shape = self._state.shapes[choice.shape]
            groups = self._shapes[choice.shape] = [self._group(shape, group) for group in shape.groups]
        return RequestedChoice(choice.moldable_id, choice.walltime, groups)

    def _group(self, shape: Shape, group: ResourceGroup) -> RequestedGroup:
        conditions = [show(condition) for condition in (shape.where, group.where) if condition is not None]
        return RequestedGroup(
            [(level.name, _WORDS.get(level.count, level.count)) for level in group.levels],
            self._ranges(self._state.fitter.allowed(shape, group)),
            " AND ".join(f"({text})" for text in conditions) or None,
        )

    def _ranges(self, bits: int) -> Ranges:
        return ranges(self._state.layout.ids_of(bits))

    def check(self, program: str, answer: SchedulerAnswer) -> SitePlan:
        """Return an answer as a plan; `WrongAnswer` if a place is not one of what the program was shown.

        Its places are taken one after the other, so two jobs cannot have the same. An answer is checked once.
        """
        left, places = dict(self._jobs), []
        for placement in answer.placements:
            number = placement.job_id
            job = left.pop(number, None)
            if job is None:
                why = "is named twice" if number in self._jobs else f"does not wait in queue {self._queue}"
                raise WrongAnswer(f"job {number} {why}")
            promise = _promise(job, placement)
            try:
                refusal = place_as_decided(self._state, job, promise)
            except (OarlockError, ValueError) as error:
                refusal = str(error)
            if refusal:
                raise WrongAnswer(f"job {number}: {refusal}")
            places.append((number, promise))
        return SitePlan(program, tuple(places))


def _promise(job: WaitingJob, placement: AnsweredPlacement) -> Promise:
    moldable = job.choices[0].moldable_id if placement.moldable_id is None else placement.moldable_id
    return Promise(moldable, placement.start, tuple(placement.resources))


def ranges(ids: Iterable[int]) -> Ranges:
    """Return numbers as ranges, lowest first."""
    joined: Ranges = []
    for number in sorted(ids):
        if joined and joined[-1][1] == number - 1:
            joined[-1] = (joined[-1][0], number)
        else:
            joined.append((number, number))
    return joined
