"""What jobs used, as a table."""

from __future__ import annotations

from oarlock.cli.times import duration

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_STEP = 1024
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_HEAD = ("Job id", "Measured", "CPU time", "Memory", "Memory peak", "Read", "Written")


def table(found: list[Any]) -> list[str]:
    """Give the lines; what is not known is a dash."""
    rows = [_HEAD, *(_row(used) for used in found)]
    widths = [max(len(row[n]) for row in rows) for n in range(len(_HEAD))]
    rule = tuple("-" * width for width in widths)
    return [" ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in (rows[0], rule, *rows[1:])]  # fmt: skip


def _row(used: Any) -> tuple[str, ...]:
    cpu = used["cpu_seconds"]
    measured = "at its end" if used["final"] else "so far" if used["at"] else "not yet"
    sizes = (used[name] for name in ("memory_bytes", "memory_peak_bytes", "read_bytes", "written_bytes"))
    return (str(used["job_id"]), measured, "-" if cpu is None else duration(round(cpu)), *map(size, sizes))


def size(count: int | None) -> str:
    """Write a number of bytes with a unit that makes it short."""
    if count is None:
        return "-"
    value, unit = float(count), 0
    while value >= _STEP and unit < len(_UNITS) - 1:
        value, unit = value / _STEP, unit + 1
    return f"{value:.1f} {_UNITS[unit]}" if unit else f"{count} B"
