"""What jobs held and used, as people read it: every number beside what it is a part of."""

from __future__ import annotations

from oarlock.cli.layout.readable import duration, energy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_STEP = 1024
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_UNKNOWN = "-"


def usage_blocks(usages: list[Any]) -> list[str]:
    """Return the lines of all jobs; what is not known is a dash."""
    lines: list[str] = []
    for used in usages:
        rows = _rows(used) if used["at"] else []
        width = max((len(name) for name, _ in rows), default=0)
        lines += [_head(used), *(f"    {name.ljust(width)}  {value}" for name, value in rows), ""]
    return lines[:-1]


def _head(used: Any) -> str:
    if not used["at"]:
        return f"Job {used['job_id']}: not measured yet"
    when = "at its end" if used["final"] else "so far"
    ran = "" if used["seconds"] is None else f", {duration(round(used['seconds']))}"
    nodes = len(used["nodes"])
    return f"Job {used['job_id']}: {when}{ran} on {nodes} node{'s' if nodes != 1 else ''}"


def _rows(used: Any) -> list[tuple[str, str]]:
    limit, seconds = used["memory_limit_bytes"], used["seconds"]
    # At its end a job holds no memory any more, only its means and highest marks are left.
    word, of = (", mean", "_mean") if used["final"] else ("", "")
    memory = [
        (f"Own memory{word}", f"memory_own{of}_bytes"),
        ("Own memory, highest", "memory_own_peak_bytes"),
        (f"Page cache{word}", f"memory_cache{of}_bytes"),
        ("With cache, highest", "memory_peak_bytes"),
    ]
    return [
        ("CPU", _cores(used)),
        *((name, _part(used[field], limit)) for name, field in memory),
        *([("GPUs", _gpus(used))] if used["gpus"] else []),
        ("Time", _time(used)),
        ("Read", _rate(used["read_bytes"], seconds)),
        ("Written", _rate(used["written_bytes"], seconds)),
        *([] if used["energy_joules"] is None else [("Energy", _energy(used))]),
        ("Samples", _samples(used)),
    ]


def _gpus(used: Any) -> str:
    busy, held = used["gpu_busy_seconds"], used["gpu_seconds"]
    share = f", {_percent(busy, held)} busy" if held and busy is not None else ""
    return f"{used['gpus']} GPU{'s' if used['gpus'] != 1 else ''}{share}"


def _time(used: Any) -> str:
    if used["seconds"] is None:
        return _UNKNOWN
    ran, walltime = duration(round(used["seconds"])), used["walltime"]
    return f"{ran} of {duration(walltime)}, {_percent(used['seconds'], walltime)}" if walltime else ran


def _energy(used: Any) -> str:
    methods, coverage = ", ".join(used["energy_methods"]), used["energy_coverage"]
    measured = "" if coverage is None else f", {_percent(coverage, 1)} of the time"
    return f"{energy(used['energy_joules'])} ({methods}{measured})" if methods else energy(used["energy_joules"])


def _samples(used: Any) -> str:
    if not used["samples"]:
        return "none"
    covered = "" if used["coverage"] is None else f", {_percent(used['coverage'], 1)} of the time"
    return f"{used['samples']}{covered}"


def _cores(used: Any) -> str:
    spent, offered, seconds = used["cpu_seconds"], used["cpu_seconds_offered"], used["seconds"]
    if spent is None:
        return _UNKNOWN
    if seconds and seconds < 1:  # the CPU time of starting and ending it is more than that of its cores
        return f"{spent:.3f} s of CPU time"
    if not offered or not seconds:
        return f"{duration(round(spent))} of CPU time"
    cpus = offered / seconds  # on average, where attempts had different numbers of them
    cores = f"{spent / seconds:.1f} of {cpus:.3g} core{'s' if cpus != 1 else ''}"
    return f"{cores}, {_percent(spent, offered)} ({duration(round(spent))} of {duration(round(offered))})"


def _part(count: int | None, limit: int | None) -> str:
    if count is None:
        return _UNKNOWN
    return f"{size(count)} of {size(limit)}, {_percent(count, limit)}" if limit else f"{size(count)}, not limited"


def _rate(count: int | None, seconds: float | None) -> str:
    if count is None:
        return _UNKNOWN
    return f"{size(count)}, {size(round(count / seconds))}/s" if seconds else size(count)


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.0f} %"


def size(count: int | None) -> str:
    """Write a number of bytes with a unit that makes it short."""
    if count is None:
        return _UNKNOWN
    value, unit = float(count), 0
    while value >= _STEP and unit < len(_UNITS) - 1:
        value, unit = value / _STEP, unit + 1
    return f"{value:.1f} {_UNITS[unit]}" if unit else f"{count} B"
