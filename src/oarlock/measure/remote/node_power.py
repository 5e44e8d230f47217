"""Power of nodes, and of GPUs by job, out of an engine: what redfish_exporter and slurm-job-exporter measured."""

import re
from collections.abc import Collection
from typing import NamedTuple

from oarlock.measure.energy.ledger import PowerReading
from oarlock.measure.remote.engine import PrometheusTarget, ask_range, node_of, quoted
from oarlock.measure.remote.vocabulary import CONTROLLER_SUFFIX, vocabulary

_STEP, _SECONDS = 60.0, 20.0
_CLOCK, _GPU_PARTS = "timestamp", ("instance", "slurmjobid")
_METRIC = "oarlock_metric"
_MILLIWATTS = 1000.0


class PowerSamples(NamedTuple):
    """Readings of nodes, by name; and of the GPUs that a job has on a node, by node and job."""

    nodes: dict[str, list[PowerReading]]
    gpus: dict[str, dict[int, list[PowerReading]]]


def read_power(target: PrometheusTarget, *, since: float, until: float, nodes: Collection[str]) -> PowerSamples:
    """Return what was measured between two instants of these nodes; `EngineAway` if the engine fails."""
    chosen = f"cluster=~{quoted(f'{target.cluster}|')}" if target.cluster else ""
    [series] = [series for series, _ in vocabulary("redfish").find("node", "power_watts")]
    watts = f"{series.name}{{{chosen}}}"
    gpus = f"slurm_job_power_gpu{{{chosen}}}"
    query = " or ".join(
        f'label_replace({expression}, "{_METRIC}", "{name}", "", "")'
        for name, expression in (
            ("watts", f"sum by (instance) ({watts})"),
            # The grid repeats a sample until the next one: its own instant tells which are new.
            (_CLOCK, f"max by (instance) (timestamp({watts}))"),
            ("gpus", f"sum by ({', '.join(_GPU_PARTS)}) ({gpus}) / {_MILLIWATTS:g}"),
        )
    )
    rows = ask_range(target, query, since=since, until=until, step=_STEP, seconds=_SECONDS)
    clocks = {row.labels.get("instance", ""): row.values for row in rows if row.labels[_METRIC] == _CLOCK}
    samples = PowerSamples({}, {})
    for row in rows:
        instance = row.labels.get("instance", "")
        node = _node(instance, nodes)
        if node is None:
            continue
        if row.labels[_METRIC] == "watts":
            clock = clocks.get(instance, {})
            readings = {clock.get(at, at / 1000): watts for at, watts in row.values.items()}
            samples.nodes[node] = [PowerReading(at, readings[at]) for at in sorted(readings)]
        elif row.labels[_METRIC] == "gpus" and row.labels.get("slurmjobid", "").isdecimal():
            readings = {at / 1000: watts for at, watts in row.values.items()}
            of_jobs = samples.gpus.setdefault(node, {})
            of_jobs[int(row.labels["slurmjobid"])] = [PowerReading(at, readings[at]) for at in sorted(readings)]
    return samples


def _node(instance: str, nodes: Collection[str]) -> str | None:
    """Return the node that an `instance` is of: with a port, a domain, or the name of its controller."""
    name = node_of(instance)
    short, _, domain = name.partition(".")
    for candidate in (name, short, *(re.sub(rf"{CONTROLLER_SUFFIX}\Z", "", text) for text in (name, short))):
        if candidate in nodes:
            return candidate
    bare = f"{re.sub(rf'{CONTROLLER_SUFFIX}$', '', short)}.{domain}"  # n1-oob.example, where nodes have domains
    return bare if bare in nodes else None
