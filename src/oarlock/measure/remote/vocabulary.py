"""Under which names an engine may have what we measure: our own, or those of other exporters of jobs and nodes.

The tables in `measure/names` say what our metrics are called elsewhere; here they are read backwards. What another
exporter has only in parts (the cores of a job in place of their sum) is added up by the engine.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from oarlock.measure.metrics import MetricKind, catalogue
from oarlock.measure.names import OURS, MetricName, select_families
from oarlock.measure.naming import pairs
from oarlock.measure.remote.engine import literal, quoted
from oarlock.node.sources.probe import split

JOB_NAMES = (OURS, "slurm", "jobs", "lustre")
NODE_NAMES = (OURS, "node", "redfish")
FOREIGN_NAMES = tuple(dict.fromkeys((*JOB_NAMES, *NODE_NAMES)))
"""What a portal over a cluster that others run looks for."""

_JOB, _NODE = "job", "node"
CONTROLLER_SUFFIX = "([-.](oob|bmc|ipmi|mgmt|ilo|idrac|sp))?"
"""What may stand behind the name of a node in that of its management controller."""


@dataclass(frozen=True, slots=True)
class ForeignSeries:
    """One of our metrics as another exporter has it.

    Our value is theirs divided by `times`; `combine` is the aggregation that makes one series of several; `rename` maps
    their labels to ours; `only` are labels that its series have.
    """

    metric: str
    name: str
    times: float = 1
    combine: str = ""
    rename: Mapping[str, str] = field(default_factory=dict)
    only: Mapping[str, str] = field(default_factory=dict)

    def expression(self, matchers: Sequence[str], around: Callable[[str], str] = str) -> str:
        """Return the PromQL of its series; `around` writes what stands around their selector (`rate(…[60s])`)."""
        own = [f"{label}={quoted(text)}" for label, text in self.only.items()]
        text = around(f"{self.name}{{{','.join([*matchers, *own])}}}")
        text = f"{self.combine} ({text})" if self.combine else text
        return text if self.times == 1 else f"({text}) / {self.times!r}"


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The names of one exporter: the label that has the number of a job, and its series by scope and metric.

    `clock` is the series whose timestamps are those of its samples of a job.
    """

    name: str
    job_label: str
    series: Mapping[tuple[str, str], Sequence[ForeignSeries]]
    clock: str = ""

    def find(self, scope: str, metric: str) -> list[tuple[ForeignSeries, list[str]]]:
        """Return the series that have a metric, which may have labels, and the matchers for these labels."""
        name, own = split(metric)
        matches = []
        for series in self.series.get((scope, name), ()):
            theirs = {ours: label for label, ours in series.rename.items()}
            matches.append((series, [f"{theirs.get(label, label)}={quoted(text)}" for label, text in pairs(own)]))
        return matches

    def job_matcher(self, label: str) -> str:
        """Return what chooses the series of a job."""
        return f"{self.job_label}={quoted(label)}"

    def node_matcher(self, node: str) -> str:
        """Return what chooses the series of a node: with its domain or without, with a port or without."""
        controller = CONTROLLER_SUFFIX if self.name == "redfish" else ""
        domain = "" if "." in node else "([.][^:]*)?"
        return f"instance=~{quoted(f'{literal(node)}{controller}{domain}(:[0-9]+)?')}"


_PER_NODE = "sum by (instance)"
_DERIVED: Mapping[str, Mapping[str, Sequence[ForeignSeries]]] = {
    "slurm": {
        _JOB: (
            ForeignSeries("cpu_seconds_total", "slurm_job_core_usage_total", 1e9, _PER_NODE),
            ForeignSeries("cpus", "slurm_job_core_usage_total", combine="count by (instance)"),
            ForeignSeries("threads", "slurm_job_threads_count", combine="sum by (instance, state)"),
            ForeignSeries("processes", "slurm_job_process_count", combine=_PER_NODE),
        )
    },
    "jobs": {
        _JOB: (
            ForeignSeries("cpus", "jobs_cpu_time_core", combine="count by (instance)"),
            # It does not know memory without what processes share; this is as near as it comes.
            ForeignSeries("memory_anonymous_bytes", "jobs_rss", 1 / (1 << 20)),
        )
    },
    "lustre": {
        # The servers count by job, not by its nodes.
        _JOB: (
            ForeignSeries("read_bytes_total", "lustre_job_read_bytes_total", combine="sum", only={"component": "ost"}),
            ForeignSeries(
                "written_bytes_total", "lustre_job_write_bytes_total", combine="sum", only={"component": "ost"}
            ),
        )
    },
    "node": {
        _NODE: (
            ForeignSeries("cpu_seconds_total", "node_cpu_seconds_total", combine="sum by (instance, mode)"),
            ForeignSeries("meminfo_mem_available_bytes", "node_memory_MemAvailable_bytes"),
        )
    },
    "redfish": {_NODE: (ForeignSeries("power_watts", "redfish_chassis_power_average_consumed_watts"),)},
}
_CLOCKS = {OURS: "oarlock_job_cpus", "slurm": "slurm_job_core_usage_total", "jobs": "jobs_cpu_time_total"}
_JOB_LABELS = {OURS: "job_id", "lustre": "jobid"}


@cache
def vocabulary(name: str) -> Vocabulary:
    """Return the names of one exporter."""
    series: dict[tuple[str, str], list[ForeignSeries]] = {}
    for scope, derived in _DERIVED.get(name, {}).items():
        for entry in derived:
            series.setdefault((scope, entry.metric), []).append(entry)
    label = _JOB_LABELS.get(name, "")
    if name != "lustre":
        [family] = select_families([name])
        label = label or next((key for key, says in family.labels.items() if says == "job"), "")
        for scope, names in family.names.items():
            for row in names:
                if row.form == "value" and (scope, row.metric) not in series:
                    series[scope, row.metric] = [_inverted(row)]
    return Vocabulary(name, label, series, _CLOCKS.get(name, ""))


def _inverted(entry: MetricName) -> ForeignSeries:
    return ForeignSeries(
        entry.metric, entry.name, entry.times, only=entry.add,
        rename={theirs: ours for ours, theirs in entry.rename.items()},
    )  # fmt: skip


def is_counter(scope: str, metric: str) -> bool:
    """Return whether one of our metrics is a counter."""
    definition = catalogue().get((scope, split(metric)[0]))
    return definition is not None and definition.kind is MetricKind.COUNTER
