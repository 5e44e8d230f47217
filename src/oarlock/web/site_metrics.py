"""Metrics of the site as a whole, under our names and under those that slurm-exporter has for them."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from oarlock.config import Config
from oarlock.model.job import JobState
from oarlock.model.resource import ResourceState
from oarlock.node.sources.metrics import series
from oarlock.store.engine.tx import Tx
from oarlock.store.queries import accounting, jobs, occupation
from oarlock.store.queries.occupation import GpuCounts, NodeOccupation

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


def read(tx: Tx, config: Config, *, now: int) -> SiteNow:
    """Count jobs, resources and what was used in the time that counts for fair sharing."""
    used = accounting.used(tx, since=now - config.karma_window)
    return SiteNow(jobs.count(tx), occupation.of_nodes(tx), occupation.gpus(tx, _GPU), used)


def page(now: SiteNow, config: Config) -> bytes:
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


def refused(counts: Mapping[str, int], config: Config) -> bytes:
    """Write how often each node told what the server did not believe."""
    name, about = "oarlock_refused_samples_total", "Samples of a node, and jobs in them, that were not believed."
    return _column(name, about, _by("node", dict(sorted(counts.items()))), config.cluster_name, kind="counter").encode()


def _column(name: str, about: str, lines: Lines, cluster: str, *, kind: str = "gauge") -> str:
    rows = (f"{series(name, **dict(labels), cluster=cluster)} {value}\n" for labels, value in lines.items())
    text = "".join(rows)
    return f"# HELP {name} {about}\n# TYPE {name} {kind}\n{text}" if text else ""
