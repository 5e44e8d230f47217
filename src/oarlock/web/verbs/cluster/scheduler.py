"""Verbs behind the scheduler's page: queues, why jobs wait, passes, and how good predicted starts were."""

import math
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from oarlock.job.reactor.passes import PassRecord
from oarlock.job.run.starting.schedule import plan_settings
from oarlock.measure.collect.questions import SchedulerFigures, SchedulerFiguresView, no_figures
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.job import jobs
from oarlock.store.queries.planning import predictions
from oarlock.store.queries.planning.predictions import PredictionError
from oarlock.store.queries.site import administration, site_counts
from oarlock.web.context import RequestContext
from oarlock.web.decode import EmptyRequest
from oarlock.web.policy import RequiredRole
from oarlock.web.registry import verb
from oarlock.web.verbs.cluster.overview import QueueNow, WaitingNow, count_waiting, queue_counts
from oarlock.web.verbs.job.jobs import JobByIdRequest

_HOUR, _DAY = 3600, 86_400
AHEAD = (_HOUR, _DAY, None)
"""Predictions are judged apart: those up to an hour ahead, up to a day, and longer. What is far is vague."""

SHARE = 0.8
LEAST_JUDGED = 10
"""Below so many predictions nothing is said of how good they are."""

_ON_TIME = 60
_TERMS = ("age", "share", "size", "slowdown", "qos", "project")


class QueuePolicyView(Struct, frozen=True):
    """A queue: how it is planned, and how many jobs it has."""

    name: str
    priority: int
    policy: str
    counts: QueueNow


class PredictionQuality(Struct, frozen=True):
    """How good predictions were that were made up to `ahead` seconds before (null: longer than the others).

    Four of five of these `jobs` started within `within` seconds of the prediction, null for fewer than ten jobs;
    `later` and `sooner` of them by over a minute.
    """

    ahead: int | None
    jobs: int
    within: int | None
    later: int
    sooner: int


class SchedulerResponse(Struct, frozen=True):
    """The scheduler now. `weights`: of the terms of a priority, where a queue orders its jobs by one; else null.

    `passes`: the last ones since the server's start, oldest first.
    """

    now: int
    queues: list[QueuePolicyView]
    waiting: WaitingNow
    weights: dict[str, float] | None
    passes: list[PassRecord]
    predictions: list[PredictionQuality]


@verb(
    "scheduler.show", "GET /scheduler",
    role=RequiredRole.USERS, request=EmptyRequest, response=SchedulerResponse,
    summary="Show queues with their policies, why jobs wait, the last passes, and how good predicted starts were.",
)  # fmt: skip
async def show_scheduler(context: RequestContext, _request: EmptyRequest) -> SchedulerResponse:
    """Count and compare, in few queries."""
    core, now = context.core, context.now
    hopeless, passes = len(core.hopeless), list(core.passes)

    def read(tx: Tx) -> SchedulerResponse:
        queues, counts = administration.all_queues(tx), site_counts.queues(tx)
        by_name = {row.name: row for row in queue_counts(counts, {queue.name: queue.active for queue in queues})}
        rows = [
            QueuePolicyView(
                queue.name,
                queue.priority,
                queue.policy,
                by_name.get(queue.name) or QueueNow(queue.name, queue.active, 0, 0, 0, None),
            )
            for queue in queues
        ]
        weighs = any("multifactor" in queue.policy for queue in queues)
        starts = site_counts.planned_starts(tx, now=now, limits=(_HOUR, _DAY))
        return SchedulerResponse(
            now,
            sorted(rows, key=lambda row: (-row.priority, row.name)),
            count_waiting(counts, starts, hopeless),
            _weights(context) if weighs else None,
            passes,
            judge(predictions.errors(tx)),
        )

    return await context.read(read, context.verb)


@verb(
    "scheduler.exporter", "GET /scheduler/exporter",
    role=RequiredRole.USERS, request=EmptyRequest, response=SchedulerFiguresView,
    summary="Show what slurm-exporter reports about a Slurm cluster: cores, GPUs, nodes by state, shares.",
)  # fmt: skip
async def show_exporter(context: RequestContext, _request: EmptyRequest) -> SchedulerFiguresView:
    """Return what the exporter says; accounts and other users only to who sees everybody's jobs."""
    if not context.core.config.prometheus_url:
        raise no_figures()
    answer = await context.core.collector.ask(SchedulerFigures(context.now, context.now - _DAY))
    figures = msgspec.json.decode(answer, type=SchedulerFiguresView)
    if context.sight is None:
        return figures
    own = [share for share in figures.user_shares if share.user == context.user.name]
    return msgspec.structs.replace(figures, shares={}, user_shares=own)


def _weights(context: RequestContext) -> dict[str, float]:
    weights = plan_settings(context.core.config).weights
    return {term: float(getattr(weights, term)) for term in _TERMS}


def judge(errors: Sequence[PredictionError]) -> list[PredictionQuality]:
    """Return how good predictions were, by how far ahead they were made."""
    groups: dict[int | None, list[int]] = {limit: [] for limit in AHEAD}
    for error in errors:
        groups[_limit_of(error.ahead)].append(error.later)
    return [_quality(limit, later) for limit, later in groups.items()]


def _limit_of(ahead: int) -> int | None:
    return next((limit for limit in AHEAD if limit is not None and ahead <= limit), None)


def _quality(ahead: int | None, later: Sequence[int]) -> PredictionQuality:
    sizes = sorted(abs(seconds) for seconds in later)
    within = sizes[math.ceil(len(sizes) * SHARE) - 1] if len(sizes) >= LEAST_JUDGED else None
    return PredictionQuality(
        ahead,
        len(sizes),
        within,
        sum(seconds > _ON_TIME for seconds in later),
        sum(seconds < -_ON_TIME for seconds in later),
    )


class PredictionResponse(Struct, frozen=True):
    """The first start predicted for a job, and when that was; null where none was. `quality`: of such predictions."""

    at: int | None = None
    start: int | None = None
    quality: PredictionQuality | None = None


@verb(
    "jobs.prediction", "GET /jobs/{id}/prediction",
    role=RequiredRole.USERS, request=JobByIdRequest, response=PredictionResponse,
    summary="Tell which start was first predicted for a job, and how good such predictions were lately.",
)  # fmt: skip
async def show_prediction(context: RequestContext, request: JobByIdRequest) -> PredictionResponse:
    """Return the prediction, and the quality of those that were made as far ahead."""

    def read(tx: Tx) -> PredictionResponse:
        context.check_seen(tx, request.id)
        jobs.get(tx, request.id)
        first = predictions.first_of(tx, request.id)
        if first is None:
            return PredictionResponse()
        limit = _limit_of(first.start - first.at)
        [quality] = [row for row in judge(predictions.errors(tx)) if row.ahead == limit]
        return PredictionResponse(first.at, first.start, quality)

    return await context.read(read)
