"""What an engine has of a site's file systems and virtual machines: Lustre's exporter (through our proxy), libvirtd's.

Each question is one query: its parts have a label of ours, which no series has.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from oarlock.measure.remote.engine import PrometheusTarget, ask_instant, ask_range, literal, quoted, span, with_label

SPANS = (180, 3600, 86_400)
"""Over how many seconds rates of file systems are told: now, an hour, a day."""

_PART = "oarlock_part"
_RATE_SECONDS = 180  # as recording rules of Lustre usually have it
_MACHINE_SECONDS = 300
_KIB = 1024
_NANO = 1e9
_POINTS = 240
_MOST_ROWS = 5000
_STATES = ("unknown", "running", "blocked", "paused", "shutting down", "off", "crashed", "asleep")
"""virDomainState of libvirt, by its number."""


class FileSystemView(Struct, frozen=True, kw_only=True):
    """A file system: bytes and metadata operations a second, and its size; null is "not known"."""

    name: str
    read: float = 0.0
    written: float = 0.0
    operations: float = 0.0
    capacity_bytes: float | None = None
    available_bytes: float | None = None


class JobIo(Struct, frozen=True, kw_only=True):
    """What a job, or what a user did outside of jobs (`job` is 0), read and wrote on a file system, a second."""

    job: int
    user: str
    project: str
    file_system: str
    read: float = 0.0
    written: float = 0.0
    operations: float = 0.0


class StorageActivity(Struct, frozen=True):
    """File systems, and who reads and writes on them, those with most first."""

    file_systems: list[FileSystemView]
    jobs: list[JobIo]


class VirtualMachine(Struct, frozen=True, kw_only=True):
    """A virtual machine: its virtual CPUs and how many of them work, its memory, and its traffic in bytes a second."""

    uuid: str
    name: str
    project: str
    state: str
    cpus: int = 0
    cpus_working: float | None = None
    memory_bytes: float | None = None
    memory_used_bytes: float | None = None
    disk_read: float | None = None
    disk_written: float | None = None
    received: float | None = None
    sent: float | None = None


class NamedCurve(Struct, frozen=True):
    """A curve of a metric, of what is named: instants (epoch seconds) and values."""

    metric: str
    name: str
    points: list[tuple[float, float]]


def read_storage(target: PrometheusTarget, *, now: float, seconds: int) -> StorageActivity:
    """Return what file systems do, on average over some seconds. `EngineAway` if the engine fails."""
    own = _cluster(target)
    total = "sum by (fs) ({})"
    by_job = "sum by (jobid, user, account, fs) ({})"
    size = 'sum by (fs) (label_replace({}, "fs", "$1", "target", "(.*)-OST.*")) * 1024'
    parts = {
        **{name: total.format(_rate(series, own, seconds)) for name, series in _TOTALS.items()},
        **{f"job_{name}": by_job.format(_rate(series, own, seconds)) for name, series in _BY_JOB.items()},
        "capacity_bytes": size.format(f'lustre_capacity_kilobytes{{component="ost",{own}}}'),
        "available_bytes": size.format(f'lustre_available_kilobytes{{component="ost",{own}}}'),
    }
    file_systems: defaultdict[str, dict[str, float]] = defaultdict(dict)
    jobs: defaultdict[tuple[str, str, str, str], dict[str, float]] = defaultdict(dict)
    for labels, value in ask_instant(target, _union(parts), at=now):
        part, name = labels[_PART], labels.get("fs", "")
        if part.startswith("job_"):
            key = labels.get("jobid", ""), labels.get("user", ""), labels.get("account", ""), name
            jobs[key][part.removeprefix("job_")] = value
        else:
            file_systems[name][part] = value
    return StorageActivity(
        [FileSystemView(name=name, **values) for name, values in sorted(file_systems.items()) if name],
        _by_activity(jobs),
    )


def read_storage_curves(target: PrometheusTarget, *, since: float, until: float) -> list[NamedCurve]:
    """Return what each file system did over time. `EngineAway` if the engine fails."""
    own, step = _cluster(target), max((until - since) / _POINTS, 60.0)
    seconds = max(int(step), _RATE_SECONDS)
    parts = {name: f"sum by (fs) ({_rate(series, own, seconds)})" for name, series in _TOTALS.items()}
    return _curves(target, parts, "fs", since=since, until=until, step=step)


def read_machines(target: PrometheusTarget, *, now: float) -> list[VirtualMachine]:
    """Return the virtual machines of all projects, by project and name. `EngineAway` if the engine fails."""
    parts = _machine_parts(_cluster(target), "project_name, instance_name, uuid", _MACHINE_SECONDS)
    machines: defaultdict[tuple[str, str, str], dict[str, float]] = defaultdict(dict)
    for labels, value in ask_instant(target, _union(parts), at=now):
        key = labels.get("project_name", ""), labels.get("instance_name", ""), labels.get("uuid", "")
        machines[key][labels[_PART]] = value
    return [_machine(*key, values) for key, values in sorted(machines.items())]


def read_machine_curves(
    target: PrometheusTarget, projects: Sequence[str], uuid: str, *, since: float, until: float
) -> list[NamedCurve]:
    """Return what machines of these projects did over time, added up by project; of one, if it is named."""
    step = max((until - since) / _POINTS, 60.0)
    chosen = f"project_name=~{quoted('|'.join(map(literal, projects)))},{_cluster(target)}"
    if uuid:
        chosen += f",uuid={quoted(uuid)}"
    parts = _machine_parts(chosen, "project_name", max(int(step), _MACHINE_SECONDS))
    del parts["state"]
    return _curves(target, parts, "project_name", since=since, until=until, step=step)


_TOTALS = {
    "read": ("lustre_read_bytes_total", "ost"),
    "written": ("lustre_write_bytes_total", "ost"),
    "operations": ("lustre_stats_total", "mdt"),
}
_BY_JOB = {
    "read": ("lustre_job_read_bytes_total", "ost"),
    "written": ("lustre_job_write_bytes_total", "ost"),
    "operations": ("lustre_job_stats_total", "mdt"),
}


def _rate(series: tuple[str, str], own: str, seconds: int) -> str:
    """Write the rate of a counter of Lustre, with the file system that is in the name of its target."""
    name, component = series
    rate = f'rate({name}{{component="{component}",{own}}}[{span(seconds)}])'
    return f'label_replace({rate}, "fs", "$1", "target", "(.*)-(?:OST|MDT).*")'


def _machine_parts(chosen: str, by: str, seconds: int) -> dict[str, str]:
    def rate(name: str) -> str:
        return f"sum by ({by}) (rate(libvirtd_domain_{name}{{{chosen}}}[{span(seconds)}]))"

    current, usable = (f"libvirtd_domain_balloon_{name}{{{chosen}}}" for name in ("current", "usable"))
    return {
        "state": f"max by ({by}) (libvirtd_domain_domain_state{{{chosen}}})",
        "cpus": f"count by ({by}) (libvirtd_domain_vcpu_time{{{chosen}}})",
        "cpus_working": f"{rate('vcpu_time')} / {_NANO!r}",
        "memory_bytes": f"sum by ({by}) ({current}) * {_KIB}",
        "memory_used_bytes": f"sum by ({by}) ({current} - {usable}) * {_KIB}",
        "disk_read": rate("block_read_bytes"),
        "disk_written": rate("block_write_bytes"),
        "received": rate("net_rx_bytes"),
        "sent": rate("net_tx_bytes"),
    }


def _machine(project: str, name: str, uuid: str, values: dict[str, float]) -> VirtualMachine:
    state = int(values.pop("state", 0))
    return VirtualMachine(
        uuid=uuid, name=name, project=project, state=_STATES[state] if 0 <= state < len(_STATES) else _STATES[0],
        cpus=int(values.pop("cpus", 0)), **values,
    )  # fmt: skip


def _by_activity(jobs: Mapping[tuple[str, str, str, str], dict[str, float]]) -> list[JobIo]:
    """Return the rows that did something; programs outside of jobs are added up by user."""
    rows: defaultdict[tuple[int, str, str, str], dict[str, float]] = defaultdict(dict)
    for (number, user, project, name), values in jobs.items():
        row = rows[int(number) if number.isdecimal() else 0, user, project, name]
        for part, value in values.items():
            row[part] = row.get(part, 0.0) + value
    made = [
        JobIo(job=job, user=user, project=project, file_system=name, **values)
        for (job, user, project, name), values in rows.items()
        if any(values.values())
    ]
    return sorted(made, key=lambda row: (-row.read - row.written, -row.operations, row.job))[:_MOST_ROWS]


def _cluster(target: PrometheusTarget) -> str:
    return f"cluster=~{quoted(f'{target.cluster}|')}" if target.cluster else ""


def _union(parts: Mapping[str, str]) -> str:
    return " or ".join(with_label(expression, _PART, name) for name, expression in parts.items())


def _curves(
    target: PrometheusTarget, parts: Mapping[str, str], label: str, *, since: float, until: float, step: float
) -> list[NamedCurve]:
    rows: Iterable[NamedCurve] = (
        NamedCurve(
            row.labels[_PART], row.labels.get(label, ""), [(at / 1000, row.values[at]) for at in sorted(row.values)]
        )
        for row in ask_range(target, _union(parts), since=since, until=until, step=step)
    )
    return sorted((row for row in rows if row.points), key=lambda row: (row.metric, row.name))
