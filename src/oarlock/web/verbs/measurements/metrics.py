"""Verbs about measurements as Prometheus reads them."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from msgspec import Struct

from oarlock.config import Config
from oarlock.measure.batch import JobFacts
from oarlock.measure.exposition import CONTENT_TYPE
from oarlock.measure.live import LiveUsage
from oarlock.model.job import JobState
from oarlock.model.resource import ResourceState
from oarlock.node.sources.probe import series
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.job import agent_jobs, jobs, listing
from oarlock.store.queries.job.listing import GpuCounts, NodeOccupation
from oarlock.store.queries.usage import accounting
from oarlock.web.context import RequestContext
from oarlock.web.decode import EmptyRequest
from oarlock.web.policy import RequiredRole
from oarlock.web.registry import verb


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
    collector = context.core.collector
    counts = Counter(live.refused)
    counts.update(collector.refused)
    refused = _refused_page(counts, config)
    batches = live.batches(now=context.core.clock.now())
    page = await context.core.compute(lambda: live.page(batches), user=context.reader)
    return page + _site_page(site, config) + refused + _collector_page(collector.figures, config)


def _facts(tx: Tx, ids: set[int]) -> dict[int, JobFacts]:
    if not ids:
        return {}
    own = {job.id: JobFacts(job.user, job.project, job.name or "") for job in jobs.existing(tx, ids)}
    others = agent_jobs.by_number(tx, ids).values()
    return own | {job.number: JobFacts(job.user, job.account, job.name, job.job, job.manager) for job in others}


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


_COLLECTOR = {
    "rows_total": "Rows that the collector logged.",
    "values_total": "Values in them.",
    "refused_total": "Samples that the collector could not read, or that came before, late, or with too many series.",
    "dropped_total": "Samples that were dropped because the collector or its disk was behind.",
    "archived_total": "Jobs that became a file.",
    "restarts_total": "How often the collector had to be started again.",
    "queue_bytes": "Bytes of samples that wait for the collector.",
    "behind_seconds": "For how long the sample waits that is to be logged next.",
    "failing": "1 while the disk does not take measurements, or the collector does not keep up.",
    "controller_readings_total": "What management controllers of REDFISH_FILE said.",
    "controllers_failing": "How many of them did not answer the last time.",
    "remote_written_total": "Values that were written to the engine of REMOTE_WRITE_URL.",
    "remote_dropped_total": "Values that were not, because too many waited for it.",
    "remote_refused_total": "Values that it refused.",
    "remote_retries_total": "Requests that it did not take at once.",
    "remote_queue_values": "Values that wait for it.",
    "remote_failing": "1 while it takes nothing.",
}


def _collector_page(figures: Mapping[str, float], config: Config) -> bytes:
    """Write how the collector is; it is not there before the first sample."""
    return "".join(
        _column(
            f"oarlock_collector_{name}", about, {(): figures[name]}, config.cluster_name,
            kind="counter" if name.endswith("_total") else "gauge",
        )
        for name, about in _COLLECTOR.items()
        if name in figures
    ).encode()  # fmt: skip


def _column(name: str, about: str, lines: Lines, cluster: str, *, kind: str = "gauge") -> str:
    rows = (f"{series(name, **dict(labels), cluster=cluster)} {value}\n" for labels, value in lines.items())
    text = "".join(rows)
    return f"# HELP {name} {about}\n# TYPE {name} {kind}\n{text}" if text else ""
