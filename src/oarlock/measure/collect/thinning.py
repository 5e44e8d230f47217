"""Thinning: a file of which each stretch of time keeps the least, the mean and the most of every series."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from oarlock.measure.collect.hdf5 import LEAST, MOST, created, load, opened, write_rows

if TYPE_CHECKING:
    import h5py

STRETCH_SECONDS = 300
HOUR_SECONDS = 3600


def thin(path: Path, target: Path, temporary: Path, seconds: int = STRETCH_SECONDS) -> None:
    """Write a thinned copy of a file under another name, and delete the file when the copy is on disk.

    The instant of a stretch is that of its last row. The most of a counter is its last value, so both together give the
    rate between stretches. A file that was thinned before is thinned further.
    """
    with opened(path) as group:
        name, attributes = group.name, dict(group.attrs)
        tables = [_read(group, table) for table in group if not table.endswith((LEAST, MOST))]
    # Only now: what goes wrong from here on is no fault of the file.
    with created(target, temporary) as file:
        thinned = file.create_group(name)
        for attribute, value in attributes.items():
            thinned.attrs[attribute] = value
        thinned.attrs["thinned"] = seconds
        for table in tables:
            _write(thinned, table, seconds)
    if target != path:
        path.unlink()


class _Rows(NamedTuple):
    """A table as rows of 8-byte cells (instant, host, values): the means and the ends."""

    name: str
    attributes: dict[str, Any]
    mean: Any
    least: Any
    most: Any


def _read(group: "h5py.Group", name: str) -> _Rows:
    _, np = load()
    return _Rows(name, dict(group[name].attrs), *(_cells(np, group, name, end) for end in ("", LEAST, MOST)))


def _write(group: "h5py.Group", table: _Rows, seconds: int) -> None:
    _, np = load()
    thinned = _thinned(table, seconds)
    columns = list(json.loads(table.attributes["series"]))
    for end, part in (("", thinned.mean), (LEAST, thinned.least), (MOST, thinned.most)):
        raw = np.empty((len(part), part.shape[1] + 2), "<f8")
        raw[:, 2:] = part
        raw.view("<i8")[:, 0], raw.view("<i8")[:, 1] = thinned.times, thinned.host
        write_rows(group, f"{table.name}{end}", raw, columns)
    for attribute, value in table.attributes.items():
        group[table.name].attrs[attribute] = value


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
        tables = [_read(group, table) for table in group if not table.endswith((LEAST, MOST))]
        return [_thinned(table, seconds) for table in tables if len(table.mean)]


def _thinned(table: _Rows, seconds: int) -> ThinnedTable:
    """Join the rows of each stretch and host."""
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
    names, hosts = json.loads(table.attributes["series"]), json.loads(table.attributes["hosts"])
    parts = (part[by_time] for part in (times, host[begins], means, least, most))
    return ThinnedTable(list(names.values()), hosts, *parts)


def _cells(np: Any, group: "h5py.Group", name: str, end: str) -> Any:
    """Return a table as rows of 8-byte cells; of a file that is not thinned, the values themselves are the ends."""
    table = group[f"{name}{end}"] if f"{name}{end}" in group else group[name]
    rows = table[...]
    return np.ascontiguousarray(rows).view("<f8").reshape(len(rows), -1)
