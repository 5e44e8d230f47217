"""The reference page of all metrics."""

from itertools import groupby

from oarlock.measure import names
from oarlock.measure.metrics import MetricDefinition, catalogue

HEAD = """\
# Metrics reference

<!-- Made from src/oarlock/measure/metrics.toml by `make docs`; change it there. -->

Every metric that is measured of a job and of a node. Units are base units and stand in the name. What could not be
read is absent, never zero. Each source can be switched on and off by its name. v1 and v2 are the versions of cgroups;
where both offer a file, version 1 is read. A job that got no CPU time since the last sample is not read again, except
every 30 seconds: its values are those of the last reading. Open files are read every 20 seconds, and once more after a
job came to rest. Limits and lists of CPUs are read again every 5 minutes. User and system time on version 1 are in
ticks: their sum is the exact total within a tick each.

| source | measures | needs |
| --- | --- | --- |
| cpu, memory, blockio, pids | the job's cgroups | nothing |
| pressure | version 2 cgroups, a kernel with PSI | nothing |
| processes | /proc of the job's processes | for I/O and open files of other users: root or CAP_SYS_PTRACE |
| perf | events for each cgroup | root or CAP_PERFMON, or `perf_event_paranoid` at most 0 |
| gpu | NVIDIA GPUs, through `libnvidia-ml.so.1` | the driver |
| machine, disk, network, infiniband, temperature | /proc and /sys; whole disks, not their partitions | nothing |
| filesystem | local file systems, in a thread of its own; those of the network are left out | nothing |
| cores | each CPU of the node; on with the names of `node` | nothing |
| lustre | /proc/fs/lustre or debugfs | root where it is in debugfs |
| rapl | energy of the processors | root or CAP_PERFMON (perf), root or CAP_DAC_READ_SEARCH (powercap) |
| ipmi, redfish | power, asked in a thread of its own | root and an IPMI program; an account on the controller |

Names of other programs: alumet is Alumet's OAR plugin (seen in OAR clusters), jobs_exporter comes with petricore,
jobstats stands for its cgroup_exporter. A unit in brackets is theirs, where it is not ours.
"""

ELSEWHERE = """\
## Names elsewhere

What the families of `oarlock agent --names` are called, and what they are made of. Our own names have the labels
`job_id`, `user` and `account`; `oarlock_node_job_info` (always 1) lists the jobs of a node with all that is known of
them. Series of a job that ended vanish.
"""


def metrics() -> str:
    """Make the page."""
    rows = sorted(catalogue().values(), key=lambda metric: metric.scope)
    sections = [_section(*key, list(group)) for key, group in groupby(rows, key=lambda row: (row.scope, row.source))]
    return "\n".join([HEAD, *sections, _elsewhere()])


def _section(scope: str, source: str, rows: list[MetricDefinition]) -> str:
    whose = {"job": "Of a job", "node": "Of a node", "agent": "Of the agent itself"}[scope]
    table = "\n".join(_row(row) for row in rows)
    columns = "| metric | labels | kind | unit | meaning | read from | elsewhere |"
    title = whose if source == scope else f"{whose}: {source}"
    return f"## {title}\n\n{columns}\n| --- | --- | --- | --- | --- | --- | --- |\n{table}\n"


def _elsewhere() -> str:
    tables = [_family(family) for name, family in names.all_families().items() if name != names.OURS]
    return "\n".join([ELSEWHERE, *tables])


def _family(family: names.NameFamily) -> str:
    labels = ", ".join(f"`{label}` ({said})" for label, said in family.labels.items())
    rows: dict[str, list[names.MetricName]] = {}
    scope = next(iter(family.names))
    for name in family.names[scope]:
        rows.setdefault(name.name, []).append(name)
    table = "\n".join(_name(scope, called, made_of) for called, made_of in rows.items())
    whose = f"Labels of every series: {labels}." if labels else "Series of the node as a whole."
    head = f"### {family.name}: {family.about}\n\n{whose}\n\n"
    return f"{head}| name | kind | meaning | made of | labels of its own |\n| --- | --- | --- | --- | --- |\n{table}\n"


def _name(scope: str, called: str, made_of: list[names.MetricName]) -> str:
    first = made_of[0]
    own = {label: "" for name in made_of for label in _own_labels(scope, name)}
    what = ", ".join(f"`{name.metric}`" for name in made_of)
    factor = "" if first.times == 1 else f" × {first.times:.7g}"
    form = {
        "value": "",
        "delta": ", since the last sample",
        "percent": ", share of the time since the last sample × 100",
    }
    return f"| `{called}` | {first.kind} | {first.help} | {what}{factor}{form[first.form]} | {', '.join(own) or '–'} |"


def _own_labels(scope: str, name: names.MetricName) -> list[str]:
    ours = catalogue()[scope, name.metric].labels
    return [*(name.rename.get(label, label) for label in ours if label not in name.drop), *name.add]


def _row(row: MetricDefinition) -> str:
    peers = "; ".join(f"{peer}: `{name}`" for peer, name in row.peers.items()) or "–"
    labels = ", ".join(row.labels) or "–"
    unit = "–" if row.unit == "1" else row.unit
    called = f"`{row.full_name}`" if row.own else f"({row.name}, only under names elsewhere)"
    return f"| {called} | {labels} | {row.kind} | {unit} | {row.help} | {row.files} | {peers} |"
