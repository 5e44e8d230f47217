"""Verbs about measurements: what a job used, and the page that Prometheus reads."""

import asyncio
import json

from msgspec import Struct

from oarlock.measure.exposition import CONTENT_TYPE
from oarlock.measure.live import Live, Usage
from oarlock.measure.owners import Facts
from oarlock.store import jobs, summaries
from oarlock.store.summaries import Summary
from oarlock.store.tx import Tx
from oarlock.web import site_metrics
from oarlock.web.call import Call
from oarlock.web.policy import May
from oarlock.web.reading import Asked
from oarlock.web.verb import verb
from oarlock.web.verbs.jobs import OneJob
from oarlock.web.verbs.site import Nothing


class UsageView(Struct, frozen=True):
    """What a job used so far or, once it is over (`final`), in all; null is "not known", never 0.

    Memory and its peak are sums over the job's nodes; `at` is when it was measured (epoch seconds, 0: never).
    """

    job_id: int
    final: bool
    at: float
    nodes: list[str]
    cpu_seconds: float | None
    memory_bytes: int | None
    memory_peak_bytes: int | None
    read_bytes: int | None
    written_bytes: int | None


@verb(
    "jobs.usage", "GET /jobs/{id}/usage", may=May.USERS, asks=OneJob, answers=UsageView,
    says="Show what a job used so far: CPU time, memory, I/O.",
)  # fmt: skip
async def usage(call: Call, asked: OneJob) -> UsageView:
    """Give the last sample of a job that runs, the last counters of one that is over."""
    now = call.core.live.usage(asked.id)
    if now is not None:
        return _so_far(asked.id, now)

    def read(tx: Tx) -> UsageView:
        jobs.get(tx, asked.id)
        found = summaries.of_jobs(tx, [asked.id])
        return _final(found[0]) if found else UsageView(asked.id, False, 0, [], None, None, None, None, None)

    return await call.read(read)


def _so_far(job_id: int, now: Usage) -> UsageView:
    return UsageView(
        job_id, False, now.at, list(now.nodes), now.cpu_seconds, _whole(now.memory_bytes),
        _whole(now.memory_peak_bytes), _whole(now.read_bytes), _whole(now.written_bytes),
    )  # fmt: skip


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


def _final(summary: Summary) -> UsageView:
    nodes = sorted(json.loads(summary.detail).get("nodes", {}))
    return UsageView(
        summary.job_id, True, summary.date, nodes, summary.cpu_seconds, None,
        summary.memory_peak_bytes, summary.read_bytes, summary.written_bytes,
    )  # fmt: skip


@verb(
    "metrics", "GET /metrics", may=May.READERS, asks=Nothing, answers=str, media_type=CONTENT_TYPE,
    says="Give all that nodes measure and the scheduler knows, as Prometheus reads it; also at `/metrics`.",
)  # fmt: skip
async def metrics(call: Call, _asked: Nothing) -> bytes:
    """Take what is known on the loop, write it elsewhere."""
    live: Live = call.core.live
    unknown = live.unknown()
    config, now = call.core.config, call.now
    found, site = await call.read(lambda tx: (_facts(tx, unknown), site_metrics.read(tx, config, now=now)))
    live.learn(found)
    batches, refused = live.batches(now=call.core.clock.now()), site_metrics.refused(live.refused, config)
    page = await asyncio.to_thread(live.page, batches)
    return page + site_metrics.page(site, config) + refused


def _facts(tx: Tx, ids: set[int]) -> dict[int, Facts]:
    return {job.id: Facts(job.user, job.project, job.name or "") for job in jobs.known(tx, ids)} if ids else {}


class TargetsOf(Asked):
    """Nothing has to be said."""


class Target(Struct, frozen=True):
    """Addresses to scrape, and labels for what they give."""

    targets: list[str]
    labels: dict[str, str]


@verb(
    "prometheus.targets", "GET /prometheus/targets", may=May.READERS, asks=TargetsOf, answers=list[Target],
    says="Say what Prometheus should scrape, in the form of its `http_sd_configs`.",
)  # fmt: skip
async def targets(call: Call, _asked: TargetsOf) -> list[Target]:
    """Name this server: it tells for all its nodes, each line with the node as its `instance`."""
    config = call.core.config
    return [Target([f"{config.server_hostname}:{config.server_port}"], {"cluster": config.cluster_name})]
