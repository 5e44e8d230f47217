"""Full passes of an incremental plan, where limits, priorities or dates change with time and not only with events."""

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from oarlock.model.job import HOLDS_RESOURCES
from oarlock.model.job_type import parse_types
from oarlock.model.plan import Placement, Plan
from oarlock.model.snapshot import PlacedJob, Snapshot, WaitingJob
from oarlock.plan.inputs import PlanInputs
from oarlock.plan.planner import Planner
from oarlock.plan.policy import predict


def is_needed(planner: Planner, jobs: Iterable[WaitingJob]) -> bool:
    """Return whether more than free resources decides which jobs start, so that every decision is a full pass."""
    ranked = planner.settings.pack or any(queue.weighs or queue.predicts for queue in planner.queues)
    return ranked or bool(planner.limits) or planner.containers.needed or any(map(is_special, jobs))


def is_special(job: WaitingJob) -> bool:
    """Return whether a job by itself requires full passes: inner jobs, containers, own dates, deadlines."""
    inner = parse_types(job.types).nested
    return inner or job.not_before > 0 or job.deadline is not None


def replan(snapshot: Snapshot, inputs: PlanInputs, planner: Planner, promised: Mapping[int, Placement] | None) -> Plan:
    """Run a full pass on the jobs of a planner, and store the result in the planner."""
    now, available = planner.now, planner.available
    asleep = tuple([sleeping for sleeping in available.asleep if sleeping[0] > now])
    seen = replace(
        snapshot,
        shapes=tuple(planner.shapes),
        waiting=tuple(sorted(planner.waiting.values(), key=lambda job: job.job_id)),
        placed=tuple(planner.placed.values()),
        recent=planner.recent,
    )
    # Promises are not verified here as in `predict.make_plan`, so run times are predicted only where there are none.
    predicting = set() if planner.accepted or planner.dated or seen.windows else predict.predicting_queues(seen)
    shown = predict.with_predictions(seen, predicting, now=now) if predicting else seen
    whole = Planner(
        shown, now=now, settings=planner.settings, inputs=inputs._replace(available=available._replace(asleep=asleep))
    )
    before = None if promised is None else Plan(now=now, ids=planner.layout.ids, placements=dict(promised), unplaced={})
    plan = whole.run(previous=before)
    places = predict.with_full_walltimes(plan, seen).placements if predicting else whole.placements
    planner.occupancies, planner.placements, planner.unplaced = whole.occupancies, places, whole.unplaced
    return replace(plan, placements=places.copy(), unplaced=whole.unplaced.copy())


class RunHistory:
    """The run times of every user's last two ended jobs, by submission."""

    def __init__(self, before: Mapping[str, tuple[int, ...]]) -> None:
        self._before, self._runs = before, dict[str, list[tuple[int, int]]]()

    def ended(self, planner: Planner, job: PlacedJob) -> None:
        """Record a job that has just ended."""
        if job.state in HOLDS_RESOURCES:
            runs = sorted([*self._runs.get(job.user, ()), (job.job_id, planner.now - job.start)], reverse=True)[:2]
            self._runs[job.user] = runs
            planner.recent[job.user] = (*(run for _, run in runs), *self._before.get(job.user, ()))[:2]
