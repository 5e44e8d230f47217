"""The verb behind the overview: what the cluster does now, in as few numbers as one look takes in."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from msgspec import Struct

from oarlock.lang import where as conditions
from oarlock.measure.live import NodeLook
from oarlock.model.job import HOLDS_RESOURCES, JobState
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.cluster import properties, resources
from oarlock.store.queries.job import listing
from oarlock.store.queries.job.listing import GpuCounts
from oarlock.store.queries.site import administration, site_counts
from oarlock.store.queries.site.site_counts import HeldResources, NodeCount, QueueCount
from oarlock.web.context import RequestContext
from oarlock.web.decode import Text, VerbRequest
from oarlock.web.policy import RequiredRole
from oarlock.web.registry import verb

_GPU = "gpudevice"
_HOUR, _DAY = 3600, 86_400
_DOWN = frozenset({"suspected", "absent", "dead"})
_LEAST_RUN = 1.0  # seconds after which a mean says something


class OverviewRequest(VerbRequest):
    """Nodes with a resource that fulfils a condition; without one, all of them."""

    where: Text | None = None


class CoreCounts(Struct, frozen=True):
    """Resources of the default type. `working` of those held are CPUs in use; null where it is not measured."""

    total: int
    held: int
    working: float | None
    down: int
    free: int


class MemoryNow(Struct, frozen=True):
    """Memory of the nodes that are measured, in bytes."""

    total: float
    used: float


class GpuNow(Struct, frozen=True):
    """GPUs of the site."""

    total: int
    held: int
    free: int


class PowerNow(Struct, frozen=True):
    """What the meters of nodes say together, and how many nodes have one.

    The watts of a node are divided by its cores: those that work, are held and idle, or free; a node that is suspected,
    absent or dead is down as a whole. The four parts add up to `watts`.
    """

    watts: float
    nodes: int
    working: float
    idle: float
    down: float
    free: float


class NodeNow(Struct, frozen=True):
    """A node. `state`: alive, drain, suspected, standby, absent or dead, in the words of the portal.

    `working` is null where nothing is measured. `users`: who holds how many of its resources, those whom the caller
    does not see under an empty name; null for those who are not signed in.
    """

    name: str
    state: str
    cores: int
    held: int
    working: float | None
    jobs: list[int] | None
    users: dict[str, int] | None


class QueueNow(Struct, frozen=True):
    """Jobs of a queue; `oldest`: when the one that waits longest was submitted."""

    name: str
    active: bool
    waiting: int
    held: int
    running: int
    oldest: int | None


class WaitingNow(Struct, frozen=True):
    """Why jobs wait, in counts: those planned within the hour, the day and later, those without a date, those that
    were held, and those that cannot run as things are."""

    within_hour: int
    within_day: int
    later: int
    no_date: int
    held: int
    impossible: int


class OverviewResponse(Struct, frozen=True):
    """The cluster at one instant; what is not measured is null."""

    cluster: str
    now: int
    cores: CoreCounts
    memory: MemoryNow | None
    gpus: GpuNow | None
    power: PowerNow | None
    nodes: list[NodeNow]
    queues: list[QueueNow]
    waiting: WaitingNow


@verb(
    "overview", "GET /overview",
    role=RequiredRole.VIEWERS, request=OverviewRequest, response=OverviewResponse,
    summary="Show what the cluster does now: nodes by state and use, queues, and why jobs wait.",
)  # fmt: skip
async def overview(context: RequestContext, request: OverviewRequest) -> OverviewResponse:
    """Count what there is, in few queries."""
    core, now, named, sight = context.core, context.now, context.caller is not None, context.sight
    looks, hopeless = core.live.look(now=core.clock.now()), len(core.hopeless)
    ids = await matching_resources(context, request.where)

    def read(tx: Tx) -> OverviewResponse:
        nodes = _nodes(site_counts.nodes(tx, ids), site_counts.held(tx, sight), looks, now=now, named=named)
        queues = site_counts.queues(tx)
        names = {queue.name: queue.active for queue in administration.all_queues(tx)}
        starts = site_counts.planned_starts(tx, now=now, limits=(_HOUR, _DAY))
        shown = {node.name for node in nodes}
        seen = [look for name, look in looks.items() if name in shown]
        return OverviewResponse(
            core.config.cluster_name,
            now,
            _cores(nodes),
            _memory(seen),
            _gpus(listing.gpu_counts(tx, _GPU)),
            _power(nodes, looks),
            nodes,
            queue_counts(queues, names),
            count_waiting(queues, starts, hopeless),
        )

    return await context.read(read, None if request.where else (context.verb, named, sight))


async def matching_resources(context: RequestContext, where: str | None) -> list[int] | None:
    """Return the resources that fulfil a condition; None, for all of them, where there is none."""
    if where is None:
        return None
    types = await context.read(properties.types)
    condition = conditions.check(conditions.parse(where), types)
    return await context.ask(lambda tx: resources.matching(tx, condition, types), ("resources", where))


def _nodes(
    counts: Sequence[NodeCount],
    held: Sequence[HeldResources],
    looks: Mapping[str, NodeLook],
    *,
    now: int,
    named: bool,
) -> list[NodeNow]:
    by_node: defaultdict[str, list[HeldResources]] = defaultdict(list)
    for row in held:
        by_node[row.node].append(row)
    return [_node(count, by_node.get(count.node, []), looks.get(count.node), now=now, named=named) for count in counts]


def _node(count: NodeCount, held: Sequence[HeldResources], look: NodeLook | None, *, now: int, named: bool) -> NodeNow:
    users: defaultdict[str, int] = defaultdict(int)
    for row in held:
        users[row.user if row.is_seen else ""] += row.resources
    working = None if look is None else sum(_in_use(row, look) for row in held)
    return NodeNow(
        count.node,
        _state(count, now),
        count.total,
        sum(row.resources for row in held),
        working,
        [row.job_id for row in held if row.is_seen] if named else None,
        dict(users) if named else None,
    )


def _in_use(row: HeldResources, look: NodeLook) -> float:
    """Return how many of its CPUs a job has in use on a node: between two samples, else on average since its start."""
    rate = look.cpus_in_use.get(row.job_id)
    if rate is None:
        seconds = look.at - row.start if row.start else 0.0
        rate = look.cpu_seconds.get(row.job_id, 0.0) / seconds if seconds >= _LEAST_RUN else 0.0
    return min(rate, float(row.resources))


def _state(count: NodeCount, now: int) -> str:
    """Return the state of a node in one word: the worst of its resources."""
    if count.dead == count.total:
        return "dead"
    if count.alive + count.absent + count.dead < count.total:
        return "suspected"
    if count.absent:
        return "standby" if count.wakes > now else "absent"
    return "drain" if count.leaving or count.drained else "alive"


def _cores(nodes: Sequence[NodeNow]) -> CoreCounts:
    held = sum(node.held for node in nodes)
    down = sum(node.cores - node.held for node in nodes if node.state in _DOWN)
    free = sum(node.cores - node.held for node in nodes if node.state in {"alive", "standby"})
    measured = [node.working for node in nodes if node.working is not None]
    total = sum(node.cores for node in nodes)
    return CoreCounts(total, held, sum(measured) if measured else None, down, free)


def _memory(looks: Sequence[NodeLook]) -> MemoryNow | None:
    pairs = [
        (look.memory_total, look.memory_available)
        for look in looks
        if look.memory_total is not None and look.memory_available is not None
    ]
    return MemoryNow(sum(total for total, _ in pairs), sum(total - left for total, left in pairs)) if pairs else None


def _gpus(counts: GpuCounts) -> GpuNow | None:
    return GpuNow(counts.total, counts.taken, counts.free) if counts.total else None


def _power(nodes: Sequence[NodeNow], looks: Mapping[str, NodeLook]) -> PowerNow | None:
    metered = [
        (node, look.watts) for node in nodes if (look := looks.get(node.name)) is not None and look.watts is not None
    ]
    if not metered:
        return None
    whole = sum(watts for _, watts in metered)
    working = idle = down = 0.0
    for node, watts in metered:
        if node.state in _DOWN:
            down += watts
            continue
        a_core = watts / max(node.cores, 1)
        used = min(node.working or 0.0, float(node.held))
        working += a_core * used
        idle += a_core * (node.held - used)
    return PowerNow(whole, len(metered), working, idle, down, max(whole - working - idle - down, 0.0))


def queue_counts(counts: Sequence[QueueCount], names: Mapping[str, bool]) -> list[QueueNow]:
    """Return the queues that have jobs, and those that are closed; the most waiting jobs first."""
    by_queue: defaultdict[str, list[QueueCount]] = defaultdict(list)
    for count in counts:
        by_queue[count.queue].append(count)
    rows = [_queue(name, by_queue.get(name, []), names.get(name, True)) for name in {*by_queue, *names}]
    kept = [row for row in rows if row.waiting or row.held or row.running or not row.active]
    return sorted(kept, key=lambda row: (-row.waiting, row.name))


def _queue(name: str, counts: Sequence[QueueCount], active: bool) -> QueueNow:
    waiting = [count for count in counts if count.state is JobState.WAITING]
    return QueueNow(
        name,
        active,
        sum(count.jobs for count in waiting),
        sum(count.jobs for count in counts if count.state is JobState.HOLD),
        sum(count.jobs for count in counts if count.state in HOLDS_RESOURCES),
        min((count.oldest for count in waiting), default=None),
    )


def count_waiting(counts: Sequence[QueueCount], starts: Sequence[int], hopeless: int) -> WaitingNow:
    """Count waiting jobs by what they wait for; `starts`: planned ones within the hour, the day, and later."""
    waiting = sum(count.jobs for count in counts if count.state is JobState.WAITING)
    held = sum(count.jobs for count in counts if count.state is JobState.HOLD)
    soon, today, later = starts
    impossible = min(hopeless, waiting)
    return WaitingNow(soon, today, later, max(0, waiting - soon - today - later - impossible), held, impossible)
