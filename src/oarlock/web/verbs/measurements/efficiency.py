"""The verb behind lists with efficiency bars: how much of what jobs held they used."""

from typing import Annotated

from msgspec import Meta, Struct

from oarlock.store.engine.tx import Tx
from oarlock.store.queries.job import job_pages
from oarlock.store.queries.usage import summaries
from oarlock.store.queries.usage.summaries import Summary
from oarlock.web.context import RequestContext
from oarlock.web.decode import Id, VerbRequest
from oarlock.web.policy import RequiredRole
from oarlock.web.registry import verb
from oarlock.web.verbs.job.jobs import MOST_OF_PAGE


class EfficiencyRequest(VerbRequest):
    """Jobs by number."""

    ids: Annotated[list[Id], Meta(max_length=MOST_OF_PAGE)]


class EfficiencyView(Struct, frozen=True, omit_defaults=True):
    """What a job used of what it held, from 0 to 1; null is "not known". `cores` is what it held on average."""

    job_id: int
    cores: float | None = None
    cpu_share: float | None = None
    memory_share: float | None = None
    gpu_share: float | None = None
    energy_joules: float | None = None


class EfficiencyResponse(Struct, frozen=True):
    """Jobs of which something was measured."""

    jobs: list[EfficiencyView]


@verb(
    "jobs.efficiency", "GET /jobs/efficiency",
    role=RequiredRole.USERS, request=EfficiencyRequest, response=EfficiencyResponse,
    summary="Show how much of their cores, memory and GPUs jobs used.",
)  # fmt: skip
async def efficiency(context: RequestContext, request: EfficiencyRequest) -> EfficiencyResponse:
    """Divide what summaries say was used by what was held."""

    def read(tx: Tx) -> EfficiencyResponse:
        return EfficiencyResponse(
            [_view(summary) for summary in summaries.of_jobs(tx, job_pages.seen(tx, context.sight, request.ids))]
        )

    return await context.read(read)


def _view(summary: Summary) -> EfficiencyView:
    return EfficiencyView(
        summary.job_id,
        _share(summary.core_seconds, summary.run_seconds),
        _share(summary.cpu_seconds, summary.core_seconds),
        _share(summary.memory_own_peak_bytes, summary.memory_asked_bytes),
        _share(summary.gpu_busy_seconds, summary.gpu_seconds),
        summary.energy_joules,
    )


def _share(used: float | None, held: float | None) -> float | None:
    return None if used is None or not held else used / held
