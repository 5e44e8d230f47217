"""What a slurm-exporter tells an engine of the whole cluster: cores, GPUs, nodes by state, shares."""

from collections.abc import Iterable, Mapping

from oarlock.measure.collect.questions import SchedulerFigures, SchedulerFiguresView, UserShare
from oarlock.measure.remote.engine import EngineRow, PrometheusTarget, ask_instant, ask_range, quoted

_AMOUNTS = ("alloc", "idle", "other", "total")
_SHARE = "slurm_account_levelfs"
_USER_SHARES = ("slurm_user_levelfs", "oarlock_user_levelfs")
_NODES = "slurm_node_state_info"
_STEP = 300.0
_METRIC = "__name__"
_STATE = "oarlock_state"


def read_figures(target: PrometheusTarget, question: SchedulerFigures) -> SchedulerFiguresView | None:
    """Return what the exporter says now, and its cores over time; None if there is none. `EngineAway` if it fails."""
    chosen = f"cluster=~{quoted(f'{target.cluster}|')}" if target.cluster else ""
    # A node is in a state while its series is there: some exporters keep the others at 0.
    states = f'label_replace(count by (state) ({_NODES}{{{chosen}}} > 0), "{_STATE}", "$1", "state", "(.*)")'
    amounts = f"slurm_(cpus|gpus)_({'|'.join(_AMOUNTS)})|{'|'.join((_SHARE, *_USER_SHARES))}"
    # Not by name alone: where two controllers are scraped, each tells the whole cluster.
    now = f"max by ({_METRIC}, account, user) ({{{_METRIC}=~{quoted(amounts)},{chosen}}}) or {states}"
    rows = ask_instant(target, now, at=question.now)
    if not rows:
        return None
    history = f'max by ({_METRIC}) ({{{_METRIC}=~"slurm_cpus_(alloc|total)",{chosen}}})'
    curves = ask_range(target, history, since=question.since, until=question.now, step=_STEP)
    times = sorted({at for row in curves for at in row.values})
    return SchedulerFiguresView(
        cores=_amounts(rows, "cpus"),
        gpus=_amounts(rows, "gpus"),
        nodes={labels[_STATE]: int(value) for labels, value in rows if labels.get(_STATE)},
        shares={labels.get("account", ""): value for labels, value in rows if labels.get(_METRIC) == _SHARE},
        user_shares=[
            UserShare(labels["user"], labels.get("account", ""), value)
            for labels, value in rows
            if labels.get(_METRIC) in _USER_SHARES and labels.get("user")
        ],
        times=[at / 1000 for at in times],
        allocated=_values(curves, "slurm_cpus_alloc", times),
        total=_values(curves, "slurm_cpus_total", times),
    )


def _amounts(rows: Iterable[tuple[Mapping[str, str], float]], kind: str) -> dict[str, float]:
    values = {labels.get(_METRIC, ""): value for labels, value in rows}
    return {name: values[f"slurm_{kind}_{name}"] for name in _AMOUNTS if f"slurm_{kind}_{name}" in values}


def _values(rows: Iterable[EngineRow], name: str, times: Iterable[int]) -> list[float | None]:
    values = next((row.values for row in rows if row.labels.get(_METRIC) == name), {})
    return [values.get(at) for at in times]
