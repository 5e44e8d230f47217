"""Verbs about measurements: what a job used, and the page that Prometheus reads."""

from dataclasses import asdict
from typing import Any

from msgspec import Struct

from oarlock.job.run import final_usage
from oarlock.measure.exposition import CONTENT_TYPE
from oarlock.measure.live import LiveUsage, MeasuredUsage
from oarlock.measure.owners import JobFacts
from oarlock.model.job import FINAL, Job
from oarlock.store.engine.tx import Tx
from oarlock.store.queries import jobs, summaries
from oarlock.store.queries.summaries import Summary
from oarlock.web import site_metrics
from oarlock.web.context import RequestContext
from oarlock.web.policy import RequiredRole
from oarlock.web.registry import verb
from oarlock.web.verbs.jobs import JobByIdRequest
from oarlock.web.verbs.site import EmptyRequest


class UsageView(Struct, frozen=True, kw_only=True):
    """What a job used so far or, once it is over (`final`), in all; null is "not known", never 0.

    Memory is added up over the job's nodes. `memory_bytes` is all that is charged to the job; its own part is anonymous
    and shared memory, the rest is mostly page cache. `memory_own_peak_bytes` is the most that samples saw. `seconds` is
    how long it ran, `cpus` and `memory_limit_bytes` what it may use, `cpu_seconds_offered` what its CPUs could have
    given in that time. `at` is when it was measured (epoch seconds, 0: never).
    """

    job_id: int
    final: bool = False
    at: float = 0
    nodes: tuple[str, ...] = ()
    seconds: float | None = None
    cpus: int | None = None
    cpu_seconds: float | None = None
    cpu_seconds_offered: float | None = None
    memory_bytes: int | None = None
    memory_own_bytes: int | None = None
    memory_cache_bytes: int | None = None
    memory_own_peak_bytes: int | None = None
    memory_peak_bytes: int | None = None
    memory_limit_bytes: int | None = None
    read_bytes: int | None = None
    written_bytes: int | None = None


@verb(
    "jobs.usage", "GET /jobs/{id}/usage",
    role=RequiredRole.USERS, request=JobByIdRequest, response=UsageView,
    summary="Show what a job used so far: CPU time, memory, I/O, and of how much.",
)  # fmt: skip
async def usage(context: RequestContext, request: JobByIdRequest) -> UsageView:
    """Return the last sample of a job that runs, else the last counters of its attempts."""
    now = context.core.live.usage(request.id)

    def read(tx: Tx) -> UsageView:
        job = jobs.get(tx, request.id)
        if now is not None:
            return _so_far(job, now)
        rows = summaries.of_jobs(tx, [request.id])
        return _reported(job, rows[0]) if rows else UsageView(job_id=request.id)

    return await context.read(read)


def _so_far(job: Job, now: MeasuredUsage) -> UsageView:
    seconds = max(0.0, now.at - job.start) if job.start else None
    sizes: dict[str, Any] = {name: _whole(getattr(now, name)) for name in _BYTES}
    offered = None if seconds is None or now.cpus is None else seconds * now.cpus
    return UsageView(
        job_id=job.id,
        at=now.at,
        nodes=now.nodes,
        seconds=seconds,
        cpus=_whole(now.cpus),
        cpu_seconds=now.cpu_seconds,
        cpu_seconds_offered=offered,
        **sizes,
    )


_BYTES = ("memory_bytes", "memory_own_bytes", "memory_cache_bytes", "memory_own_peak_bytes", "memory_peak_bytes",
          "memory_limit_bytes", "read_bytes", "written_bytes")  # fmt: skip


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


def _reported(job: Job, summary: Summary) -> UsageView:
    """Return the counters of attempts that are over; they are final once the job is, and not while another runs."""
    totals = final_usage.totals(final_usage.attempts(summary.detail))
    return UsageView(job_id=job.id, final=job.state in FINAL, at=summary.date, **asdict(totals))


@verb(
    "metrics", "GET /metrics",
    role=RequiredRole.READERS, request=EmptyRequest, response=str, media_type=CONTENT_TYPE,
    summary="Give all that nodes measure and the scheduler knows, as Prometheus reads it; also at `/metrics`.",
)  # fmt: skip
async def metrics(context: RequestContext, _request: EmptyRequest) -> bytes:
    """Return the page; the samples are collected on the event loop, the text is written in another thread."""
    live: LiveUsage = context.core.live
    unknown = live.unknown()
    config, now = context.core.config, context.now
    facts, site = await context.read(lambda tx: (_facts(tx, unknown), site_metrics.read(tx, config, now=now)))
    live.learn(facts)
    batches, refused = live.batches(now=context.core.clock.now()), site_metrics.refused(live.refused, config)
    page = await context.core.compute(lambda: live.page(batches), user=context.reader)
    return page + site_metrics.page(site, config) + refused


def _facts(tx: Tx, ids: set[int]) -> dict[int, JobFacts]:
    return {job.id: JobFacts(job.user, job.project, job.name or "") for job in jobs.existing(tx, ids)} if ids else {}


class ScrapeTarget(Struct, frozen=True):
    """Addresses to scrape, and labels for what they give."""

    targets: list[str]
    labels: dict[str, str]


@verb(
    "prometheus.targets", "GET /prometheus/targets",
    role=RequiredRole.READERS, request=EmptyRequest, response=list[ScrapeTarget],
    summary="Say what Prometheus should scrape, in the form of its `http_sd_configs`.",
)  # fmt: skip
async def targets(context: RequestContext, _request: EmptyRequest) -> list[ScrapeTarget]:
    """Name this server: it tells for all its nodes, each line with the node as its `instance`."""
    config = context.core.config
    return [ScrapeTarget([f"{config.server_hostname}:{config.server_port}"], {"cluster": config.cluster_name})]
