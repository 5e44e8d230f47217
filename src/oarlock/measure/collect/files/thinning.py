"""Thinning: a file of which each stretch of time keeps the least, the mean and the most of every series."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from oarlock.measure.collect.files.hdf5 import LEAST, MOST, created, load, opened, write_rows

if TYPE_CHECKING:
    import h5py

STRETCH_SECONDS = 300
HOUR_SECONDS = 3600
_BATCH_VALUES = 1 << 20  # of a table that are in memory at once


def thin(path: Path, target: Path, temporary: Path, seconds: int = STRETCH_SECONDS) -> None:
    """Write a thinned copy of a file under another name, and delete the file when the copy is on disk.

    The instant of a stretch is that of its last row. The most of a counter is its last value, so both together give the
    rate between stretches. A file that was thinned before is thinned further.
    """
    for _ in thin_in_steps(path, target, temporary, seconds):
        pass


def thin_in_steps(path: Path, target: Path, temporary: Path, seconds: int = STRETCH_SECONDS) -> Iterator[None]:
    """Thin as `thin` does, some megabytes at a time: a file may be huge, and whoever thins has other things to do.

    If it is not gone on with, the file stays as it was.
    """
    tables: list[tuple[str, dict[str, Any], ThinnedTable]] = []
    with opened(path) as group:
        name, attributes = group.name, dict(group.attrs)
        for table in _tables_of(group):
            parts = []
            for part in _thinned_parts(group, table, seconds):
                parts.append(part)
                yield
            tables.append((table, dict(group[table].attrs), _joined_table(group, table, parts)))
    # Only now: what goes wrong from here on is no fault of the file.
    with created(target, temporary) as file:
        thinned = file.create_group(name)
        for attribute, value in attributes.items():
            thinned.attrs[attribute] = value
        thinned.attrs["thinned"] = seconds
        for table, about, rows in tables:
            for _ in _write(thinned, table, about, rows):
                yield
    if target != path:
        path.unlink()


class _Rows(NamedTuple):
    """Rows of a table as 8-byte cells (instant, host, values): the means and the ends."""

    mean: Any
    least: Any
    most: Any


def _tables_of(group: "h5py.Group") -> list[str]:
    return [table for table in group if not table.endswith((LEAST, MOST)) and len(group[table])]


def _read(group: "h5py.Group", name: str, rows: slice) -> _Rows:
    """Read some rows of a table; of a file that is not thinned, the values themselves are the ends."""
    _, np = load()
    mean = _cells(np, group[name][rows])
    ends = (_cells(np, group[f"{name}{end}"][rows]) if f"{name}{end}" in group else mean for end in (LEAST, MOST))
    return _Rows(mean, *ends)


def _write(group: "h5py.Group", name: str, attributes: dict[str, Any], thinned: "ThinnedTable") -> Iterator[None]:
    """Write a table; yield now and then."""
    _, np = load()
    columns = list(json.loads(attributes["series"]))
    for end, part in (("", thinned.mean), (LEAST, thinned.least), (MOST, thinned.most)):
        raw = np.empty((len(part), part.shape[1] + 2), "<f8")
        raw[:, 2:] = part
        raw.view("<i8")[:, 0], raw.view("<i8")[:, 1] = thinned.times, thinned.host
        yield from write_rows(group, f"{name}{end}", raw, columns)
    for attribute, value in attributes.items():
        group[name].attrs[attribute] = value


class ThinnedTable(NamedTuple):
    """A table of stretches, in the order of time: instants (milliseconds), places in `hosts`, and columns a series."""

    series: list[str]
    hosts: list[str]
    times: Any
    host: Any
    mean: Any
    least: Any
    most: Any


def read_thinned(path: Path, seconds: int = STRETCH_SECONDS) -> list[ThinnedTable]:
    """Read the tables of a file as if it were thinned; those of one that is thinned already are as they are."""
    with opened(path) as group:
        tables = _tables_of(group)
        return [_joined_table(group, table, list(_thinned_parts(group, table, seconds))) for table in tables]


def _thinned_parts(group: "h5py.Group", name: str, seconds: int) -> Iterator[tuple[Any, ...]]:
    """Thin a table, so many of its rows at a time that they take some megabytes."""
    _, np = load()
    table = group[name]
    many = max(_BATCH_VALUES // (len(json.loads(table.attrs["series"])) + 2), 1)
    stretches = table.fields("time")[...] // (seconds * 1000)
    for rows in _whole_stretches(np, stretches, many):
        yield _thinned(_read(group, name, rows), seconds)


def _joined_table(group: "h5py.Group", name: str, parts: list[tuple[Any, ...]]) -> ThinnedTable:
    _, np = load()
    names, hosts = (json.loads(group[name].attrs[about]) for about in ("series", "hosts"))
    return ThinnedTable(list(names.values()), hosts, *(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def _whole_stretches(np: Any, stretches: Any, many: int) -> Iterator[slice]:
    """Yield which rows to read at once: at least so many, and all of a stretch; all if they are not in order."""
    steps = np.diff(stretches)
    if (steps < 0).any():
        yield slice(0, len(stretches))
        return
    begins = np.flatnonzero(np.r_[True, steps > 0])
    begin = 0
    while begin < len(stretches):
        after = np.searchsorted(begins, begin + many)
        end = int(begins[after]) if after < len(begins) else len(stretches)
        yield slice(begin, end)
        begin = end


def _thinned(table: _Rows, seconds: int) -> tuple[Any, ...]:
    """Join the rows of each stretch and host; return instants, hosts, means and both ends, by time."""
    _, np = load()
    cells = table.mean.view("<i8")
    stretch, host = cells[:, 0] // (seconds * 1000), cells[:, 1]
    order = np.lexsort((stretch, host))
    stretch, host = stretch[order], host[order]
    begins = np.flatnonzero(np.r_[True, (stretch[1:] != stretch[:-1]) | (host[1:] != host[:-1])])
    values = table.mean[order][:, 2:]
    is_number = np.isfinite(values)
    counts = np.add.reduceat(is_number, begins, dtype="<i8")
    sums = np.add.reduceat(np.where(is_number, values, 0.0), begins)
    with np.errstate(invalid="ignore", divide="ignore"):
        means = sums / counts
    times = np.maximum.reduceat(cells[order][:, 0], begins)
    least = np.fmin.reduceat(table.least[order][:, 2:], begins)
    most = np.fmax.reduceat(table.most[order][:, 2:], begins)
    by_time = np.lexsort((host[begins], times))
    return tuple(part[by_time] for part in (times, host[begins], means, least, most))


def _cells(np: Any, rows: Any) -> Any:
    """Return rows of a table as 8-byte cells."""
    return np.ascontiguousarray(rows).view("<f8").reshape(len(rows), -1)
