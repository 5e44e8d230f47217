"""The reference page of all metrics."""

from itertools import groupby

from oarlock.measure.metrics import Measured, catalogue

HEAD = """\
# Metrics reference

<!-- Made from src/oarlock/measure/metrics.toml by `make docs`; change it there. -->

Every metric that is measured of a job and of a node. Units are base units and stand in the name. What could not be
read is absent, never zero. Each source can be switched on and off by its name. v1 and v2 are the versions of cgroups;
where both offer a file, version 1 is read. A job that got no CPU time since the last sample is not read again, except
every 30 seconds: its values are those of the last reading. Limits and lists of CPUs are read again every 5 minutes.

| source | measures | needs |
| --- | --- | --- |
| cpu, memory, blockio, pids | the job's cgroups | nothing |
| pressure | version 2 cgroups, a kernel with PSI | nothing |
| processes | /proc of the job's processes | for I/O and open files of other users: root or CAP_SYS_PTRACE |
| perf | events for each cgroup | root or CAP_PERFMON, or `perf_event_paranoid` at most 0 |
| gpu | NVIDIA GPUs, through `libnvidia-ml.so.1` | the driver |
| machine, network, infiniband, temperature | /proc and /sys | nothing |
| lustre | /proc/fs/lustre or debugfs | root where it is in debugfs |
| rapl | energy of the processors | root or CAP_PERFMON (perf), root or CAP_DAC_READ_SEARCH (powercap) |
| ipmi, redfish | power, asked in a thread of its own | root and an IPMI program; an account on the controller |

Names of other programs: alumet is Alumet's OAR plugin (seen in OAR clusters), jobs_exporter comes with petricore,
jobstats stands for its cgroup_exporter. A unit in brackets is theirs, where it is not ours.
"""


def metrics() -> str:
    """Make the page."""
    rows = sorted(catalogue().values(), key=lambda metric: metric.scope)
    sections = [_section(*key, list(group)) for key, group in groupby(rows, key=lambda row: (row.scope, row.source))]
    return "\n".join([HEAD, *sections])


def _section(scope: str, source: str, rows: list[Measured]) -> str:
    whose = "Of a job" if scope == "job" else "Of a node"
    table = "\n".join(_row(row) for row in rows)
    columns = "| metric | labels | kind | unit | meaning | read from | elsewhere |"
    return f"## {whose}: {source}\n\n{columns}\n| --- | --- | --- | --- | --- | --- | --- |\n{table}\n"


def _row(row: Measured) -> str:
    peers = "; ".join(f"{peer}: `{name}`" for peer, name in row.peers.items()) or "–"
    labels = ", ".join(row.labels) or "–"
    unit = "–" if row.unit == "1" else row.unit
    return f"| `{row.full_name}` | {labels} | {row.kind} | {unit} | {row.help} | {row.files} | {peers} |"
