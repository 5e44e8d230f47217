"""Verbs about measurements: what a job used, and the page that Prometheus reads."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from msgspec import Struct

from oarlock.config import Config
from oarlock.job.run import final_usage
from oarlock.measure.batch import JobFacts
from oarlock.measure.exposition import CONTENT_TYPE
from oarlock.measure.live import LiveUsage, MeasuredUsage
from oarlock.model.job import FINAL, Job, JobState
from oarlock.model.resource import ResourceState
from oarlock.node.sources.metrics import series
from oarlock.store.engine.tx import Tx
from oarlock.store.queries import accounting, jobs, listing
from oarlock.store.queries.accounting import Summary
from oarlock.store.queries.listing import GpuCounts, NodeOccupation
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
        rows = accounting.summaries_of(tx, [request.id])
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
    facts, site = await context.read(lambda tx: (_facts(tx, unknown), _read_site(tx, config, now=now)))
    live.learn(facts)
    batches, refused = live.batches(now=context.core.clock.now()), _refused_page(live.refused, config)
    page = await context.core.compute(lambda: live.page(batches), user=context.reader)
    return page + _site_page(site, config) + refused


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


_GPU = "gpudevice"
_DOWN = {ResourceState.DEAD: "down", ResourceState.ABSENT: "drained", ResourceState.SUSPECTED: "drained"}
_PERCENT = 100


@dataclass(frozen=True, slots=True)
class SiteNow:
    """What is counted at one instant. `used` are resource-seconds of each (user, project)."""

    jobs: Mapping[JobState, int]
    nodes: list[NodeOccupation]
    gpus: GpuCounts
    used: Mapping[tuple[str, str], int]


Lines = Mapping[tuple[tuple[str, str], ...], float]
"""Values by their labels."""


def _read_site(tx: Tx, config: Config, *, now: int) -> SiteNow:
    """Count jobs, resources and what was used in the time that counts for fair sharing."""
    used = accounting.used(tx, since=now - config.karma_window)
    return SiteNow(jobs.count(tx), listing.occupation_of_nodes(tx), listing.gpu_counts(tx, _GPU), used)


def _site_page(now: SiteNow, config: Config) -> bytes:
    """Write all lines, each with the name of the cluster."""
    columns = [
        # States without a job are reported as 0, so that their series do not come and go.
        ("oarlock_jobs", "Jobs in each state.",
         _by("state", {str(state): now.jobs.get(state, 0) for state in JobState})),
        *_counted("oarlock_resources", "Resources", _resources(now.nodes)),
        *_counted("slurm_cpus", "Resources", _resources(now.nodes)),
        *_counted("slurm_gpus", "GPUs", {"alloc": now.gpus.taken, "idle": now.gpus.free, "total": now.gpus.total}),
        ("slurm_node_state_info", "The state of a node, in Slurm's words; always 1.", _states(now.nodes)),
        ("oarlock_user_used_ratio", "A user's part of all that was used lately.", _by("user", _shares(now, 0))),
        ("oarlock_project_used_ratio", "A project's part of all that was used.", _by("project", _shares(now, 1))),
        ("oarlock_user_levelfs", "A user's share divided by its use: above 1, less was used than is due.",
         _by("user", _fair(_shares(now, 0), config.karma_user_targets))),
        ("slurm_account_levelfs", "A project's share divided by its use.",
         _by("account", _fair(_shares(now, 1), config.karma_project_targets))),
    ]  # fmt: skip
    return "".join(_column(name, about, lines, config.cluster_name) for name, about, lines in columns).encode()


_ABOUT = {"alloc": "given to jobs", "idle": "free for jobs", "other": "out of use", "total": "in all"}


def _counted(name: str, what: str, counts: Mapping[str, int]) -> Iterable[tuple[str, str, Lines]]:
    return [(f"{name}_{part}", f"{what} of the site {_ABOUT[part]}.", {(): value}) for part, value in counts.items()]


def _by(label: str, values: Mapping[str, float]) -> Lines:
    return {((label, name),): value for name, value in values.items()}


def _resources(nodes: Iterable[NodeOccupation]) -> dict[str, int]:
    rows = list(nodes)
    total, taken = sum(row.total for row in rows), sum(row.taken for row in rows)
    idle = sum(row.total - row.taken for row in rows if row.state is ResourceState.ALIVE and not row.leaving)
    return {"alloc": taken, "idle": idle, "other": total - taken - idle, "total": total}


def _states(nodes: Iterable[NodeOccupation]) -> Lines:
    """Name each node's state once: the worst of its resources. The node has no domain, as the portal wants it."""
    by_node: dict[str, list[NodeOccupation]] = {}
    for row in nodes:
        if row.node:
            by_node.setdefault(row.node, []).append(row)
    return {(("node", node.partition(".")[0]), ("state", _state(rows))): 1 for node, rows in by_node.items()}


def _state(rows: list[NodeOccupation]) -> str:
    down = [_DOWN[row.state] for row in rows if row.state in _DOWN]
    if down:
        return min(down)  # `down` comes before `drained`
    total, taken = sum(row.total for row in rows), sum(row.taken for row in rows)
    if any(row.leaving for row in rows):
        return "draining" if taken else "drained"
    return "idle" if not taken else "allocated" if taken == total else "mixed"


def _shares(now: SiteNow, which: int) -> dict[str, float]:
    """Return each user's (0) or project's (1) part of all use."""
    sums: Counter[str] = Counter()
    for key, consumed in now.used.items():
        sums[key[which]] += consumed
    total = sum(sums.values())
    return {name: consumed / total for name, consumed in sorted(sums.items()) if total}


def _fair(used: Mapping[str, float], targets: Mapping[str, float]) -> dict[str, float]:
    """Divide shares by use: above 1 less was used than is due. Without targets all have the same share."""
    shares = {name: targets[name] / _PERCENT for name in targets} or {name: 1 / len(used) for name in used}
    return {name: share / used[name] for name, share in shares.items() if used.get(name)}


def _refused_page(counts: Mapping[str, int], config: Config) -> bytes:
    """Write how often each node told what the server did not believe."""
    name, about = "oarlock_refused_samples_total", "Samples of a node, and jobs in them, that were not believed."
    return _column(name, about, _by("node", dict(sorted(counts.items()))), config.cluster_name, kind="counter").encode()


def _column(name: str, about: str, lines: Lines, cluster: str, *, kind: str = "gauge") -> str:
    rows = (f"{series(name, **dict(labels), cluster=cluster)} {value}\n" for labels, value in lines.items())
    text = "".join(rows)
    return f"# HELP {name} {about}\n# TYPE {name} {kind}\n{text}" if text else ""
