"""Full passes of an incremental plan, where limits, priorities or dates change with time and not only with events."""

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from oarlock.model.job import HOLDS_RESOURCES
from oarlock.model.job_type import parse_types
from oarlock.model.plan import Placement, Plan
from oarlock.model.snapshot import PlacedJob, Snapshot, WaitingJob
from oarlock.plan.inputs import PlanInputs
from oarlock.plan.pass_state import PassState
from oarlock.plan.planner import begin_pass, run_pass
from oarlock.plan.policy import predict


def is_needed(state: PassState, jobs: Iterable[WaitingJob]) -> bool:
    """Return whether more than free resources decides which jobs start, so that every decision is a full pass."""
    ranked = state.settings.pack or any(queue.weighs or queue.predicts for queue in state.queues)
    return ranked or bool(state.limits) or state.containers.needed or any(map(is_special, jobs))


def is_special(job: WaitingJob) -> bool:
    """Return whether a job by itself requires full passes: inner jobs, containers, own dates, deadlines."""
    inner = parse_types(job.types).nested
    return inner or job.not_before > 0 or job.deadline is not None


def replan(snapshot: Snapshot, inputs: PlanInputs, state: PassState, promised: Mapping[int, Placement] | None) -> Plan:
    """Run a full pass on the jobs of a state, and store the result there."""
    now, available = state.now, state.available
    asleep = tuple([sleeping for sleeping in available.asleep if sleeping[0] > now])
    seen = replace(
        snapshot,
        shapes=tuple(state.shapes),
        waiting=tuple(sorted(state.waiting.values(), key=lambda job: job.job_id)),
        placed=tuple(state.placed.values()),
        recent=state.recent,
    )
    # Promises are not verified here as in `make_plan`, so run times are predicted only where there are none.
    predicting = set() if state.accepted or state.dated or seen.windows else predict.predicting_queues(seen)
    shown = predict.with_predictions(seen, predicting, now=now) if predicting else seen
    whole = begin_pass(
        shown, now=now, settings=state.settings, inputs=inputs._replace(available=available._replace(asleep=asleep))
    )
    before = None if promised is None else Plan(now=now, ids=state.layout.ids, placements=dict(promised), unplaced={})
    plan = run_pass(whole, previous=before)
    places = predict.with_full_walltimes(plan, seen).placements if predicting else whole.placements
    state.occupancies, state.placements, state.unplaced = whole.occupancies, places, whole.unplaced
    return replace(plan, placements=places.copy(), unplaced=whole.unplaced.copy())


class RunHistory:
    """The run times of every user's last two ended jobs, by submission."""

    def __init__(self, before: Mapping[str, tuple[int, ...]]) -> None:
        self._before, self._runs = before, dict[str, list[tuple[int, int]]]()

    def ended(self, state: PassState, job: PlacedJob) -> None:
        """Record a job that has just ended."""
        if job.state in HOLDS_RESOURCES:
            runs = sorted([*self._runs.get(job.user, ()), (job.job_id, state.now - job.start)], reverse=True)[:2]
            self._runs[job.user] = runs
            state.recent[job.user] = (*(run for _, run in runs), *self._before.get(job.user, ()))[:2]
