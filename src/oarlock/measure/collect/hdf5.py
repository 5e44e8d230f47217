"""One HDF5 file a job: `/job_<id>/<backend>` is a table that h5py and `pandas.read_hdf` read.

A row is an instant (milliseconds), a host as its place in the attribute `hosts`, and a column a series; what was not
measured is NaN. Columns have names that programs accept; the attribute `series` has the real ones, `units` and `kinds`
what each is. A backend with very many columns is cut into `<backend>`, `<backend>_2`, and so on. Of a file that was
thinned, `<backend>` has the means, and `<backend>_least` and `<backend>_most` the ends of each stretch.

A file is written under another name, synced and renamed: it is there whole or not at all.

h5py and numpy come with the extra `archive` and are loaded when they are needed.
"""

import contextlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from oarlock.measure.collect.rowlog import LogContent, RowGroup
from oarlock.measure.metrics import MetricDefinition, catalogue
from oarlock.model.errors import OarlockError
from oarlock.node.sources.probe import split

if TYPE_CHECKING:
    import h5py
    import numpy as np

VERSION = 1
OTHER = "other"
"""The backend of names that are not in the catalogue."""

LEAST, MOST = "_least", "_most"
_COLUMNS, _ATTRIBUTE = 250, 40_000  # the header of a table holds 64 KiB
_CHUNK, _GZIP = 1024, 4
_GAP_PERIODS = 3
_MOST_GAPS, _MOST_JOBS = 500, 4000  # an attribute holds 64 KiB


class ArchiveUnavailable(OarlockError):
    """HDF5 is asked for where h5py is not installed."""

    http_status = 501

    def __init__(self) -> None:
        super().__init__(
            "HDF5 files cannot be written or read here: h5py is not installed.",
            hint="Install `oarlock[archive]` on the server, or ask for CSV.",
        )


class DamagedArchive(OarlockError):
    """A file of a job that cannot be read."""

    http_status = 500

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(
            f"The file {path.name} is damaged: {why}.",
            hint="`oarlock archive check` lists such files; take it back from a backup.",
        )


@dataclass(frozen=True, slots=True)
class ArchivedJob:
    """What a file says about its job. A job of another cluster has the number that its manager gave it as `label`."""

    job: int
    owner: str = ""
    project: str = ""
    name: str = ""
    request: str = ""
    nodes: tuple[str, ...] = ()
    attempts: int = 0
    state: str = ""
    start: int = 0
    stop: int = 0
    cluster: str = ""
    manager: str = ""
    label: str = ""


class Gap(NamedTuple):
    """A stretch without values, in milliseconds."""

    node: str
    since: int
    until: int
    why: str


class Track(NamedTuple):
    """One series of one node. `least` and `most` differ from `mean` in thinned files only. Instants in milliseconds."""

    series: str
    node: str
    times: Sequence[int]
    mean: Sequence[float]
    least: Sequence[float]
    most: Sequence[float]


@dataclass(slots=True)
class _Column:
    name: str
    series: str
    unit: str
    kind: str


@dataclass(slots=True)
class _Table:
    name: str
    columns: list[_Column] = field(default_factory=list)
    size: int = 0


def is_available() -> bool:
    """Return whether HDF5 can be written and read here."""
    return find_spec("h5py") is not None


def load() -> "tuple[Any, Any]":
    """Return the modules h5py and numpy; `ArchiveUnavailable` if they are not installed."""
    try:
        import h5py
        import numpy as np
    except ImportError:
        raise ArchiveUnavailable from None
    return h5py, np


def write_job(target: Path, temporary: Path, job: ArchivedJob, content: LogContent, *, scope: str = "job") -> None:
    """Write a log as the file of a job; it appears under its name once it is on disk."""
    with created(target, temporary) as file:
        group = file.create_group(f"job_{job.label or job.job}" if scope == "job" else "node")
        write_about(group, job, gaps(content), wrong_clocks(content), involved_jobs(content))
        for table in _tables(content, scope):
            _write_table(group, table, content)


@contextlib.contextmanager
def created(target: Path, temporary: Path) -> "Iterator[h5py.File]":
    """Yield a new file; afterwards it appears under its name, on disk, unless something was raised."""
    h5py, _ = load()
    with replacing(target, temporary) as path, h5py.File(path, "w", libver=("earliest", "v110")) as file:
        yield file


def write_about(
    group: "h5py.Group",
    job: ArchivedJob,
    missing: Sequence[Sequence[object]] = (),
    clocks: Mapping[str, float] | None = None,
    jobs: Sequence[int] = (),
) -> None:
    """Write the attributes of a file, with its gaps; an attribute holds 64 KiB, so that long lists are cut."""
    for name, value in asdict(job).items():
        group.attrs[name] = json.dumps(value) if isinstance(value, tuple) else value
    group.attrs["version"] = VERSION
    group.attrs["gaps"] = json.dumps([list(gap) for gap in missing[:_MOST_GAPS]])
    group.attrs["clocks"] = json.dumps(clocks or {})
    group.attrs["involved_jobs"] = json.dumps(jobs[:_MOST_JOBS])


@contextlib.contextmanager
def replacing(target: Path, temporary: Path) -> Iterator[Path]:
    """Yield a path to write; afterwards it is synced and renamed to `target`, or deleted if something was raised."""
    path = temporary / f"{target.name}.{os.getpid()}"
    try:
        yield path
        path.chmod(0o600)
        sync(path)
        target.parent.mkdir(0o700, parents=True, exist_ok=True)
        path.replace(target)
        sync(target.parent)
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def sync(path: Path) -> None:
    """Write a file, or the entries of a folder, to the disk."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def gaps(content: LogContent) -> list[Gap]:
    """Return the stretches without values: those that were noted, and those longer than three periods of a node."""
    noted = [
        Gap(note.node, note.about["since"], note.about["until"], str(note.about.get("why", "")))
        for note in content.notes
        if note.about.keys() >= {"since", "until"}
    ]
    times: list[list[int]] = [[] for _ in content.nodes]
    for group in content.groups.values():
        for at, host in zip(group.times, group.nodes, strict=True):
            times[host].append(at)
    silent = [gap for node, instants in zip(content.nodes, times, strict=True) for gap in _silences(node, instants)]
    return sorted([*noted, *silent], key=lambda gap: (gap.since, gap.node))


def _silences(node: str, times: list[int]) -> Iterator[Gap]:
    times.sort()
    limit = _GAP_PERIODS * typical_period(times)
    for before, after in pairwise(times):
        if after - before > limit:
            yield Gap(node, before, after, "nothing came")


def typical_period(times: Sequence[int]) -> float:
    """Return the median distance of instants; infinite if there are fewer than three."""
    if len(times) < 3:
        return float("inf")
    distances = sorted(after - before for before, after in pairwise(times))
    return max(distances[len(distances) // 2], 1)


def involved_jobs(content: LogContent, since: int = 0, until: int = 1 << 62) -> list[int]:
    """Return the jobs that were on a node between two instants (milliseconds), where its log names them."""
    return sorted({job for note in content.notes if since <= note.at <= until for job in note.about.get("jobs", ())})


def wrong_clocks(content: LogContent) -> dict[str, float]:
    """Return the nodes whose clock was not believed, with the seconds by which it was ahead."""
    return {note.node: note.about["ahead"] for note in content.notes if "ahead" in note.about}


def definition_of(series: str, scope: str = "job") -> MetricDefinition | None:
    """Return what the catalogue knows of a series."""
    return catalogue().get((scope, split(series)[0]))


def _tables(content: LogContent, scope: str) -> list[_Table]:
    """Sort the series of a log into tables, by backend."""
    names = dict.fromkeys(name for group in content.groups.values() for name in group.names)
    tables: dict[str, list[_Table]] = {}
    used: set[str] = set()
    for series in names:
        metric = definition_of(series, scope)
        backend = metric.source if metric else OTHER
        parts = tables.setdefault(backend, [_Table(backend)])
        column = _Column(_identifier(series, used), series, *((metric.unit, str(metric.kind)) if metric else ("", "")))
        size = len(json.dumps({column.name: series})) + len(column.name)
        if len(parts[-1].columns) >= _COLUMNS or parts[-1].size + size > _ATTRIBUTE:
            parts.append(_Table(f"{backend}_{len(parts) + 1}"))
        parts[-1].columns.append(column)
        parts[-1].size += size
    return [table for parts in tables.values() for table in parts]


def _identifier(series: str, used: set[str]) -> str:
    """Return a name for a column that programs accept: labels are joined by underscores."""
    name, labels = split(series)
    words = re.sub(r'\w+="', "_", labels)
    text = re.sub(r"[\W_]+", "_", f"{name}_{words}" if labels else name, flags=re.ASCII).strip("_")[:120]
    wanted, number = text, 2
    while wanted in used:
        wanted, number = f"{text}_{number}", number + 1
    used.add(wanted)
    return wanted


def _write_table(group: "h5py.Group", table: _Table, content: LogContent) -> None:
    _, np = load()
    blocks = [_block(np, table, rows) for rows in content.groups.values()]
    raw = np.concatenate([block for block in blocks if block is not None])
    whole = raw.view("<i8")
    raw = np.ascontiguousarray(raw[np.lexsort((whole[:, 1], whole[:, 0]))])
    write_rows(group, table.name, raw, [column.name for column in table.columns])
    about = group[table.name].attrs
    about["hosts"] = json.dumps(content.nodes)
    about["series"] = json.dumps({column.name: column.series for column in table.columns})
    about["units"] = json.dumps({column.name: column.unit for column in table.columns})
    about["kinds"] = json.dumps({column.name: column.kind for column in table.columns})


def _block(np: Any, table: _Table, rows: RowGroup) -> Any:
    """Return rows as an array of 8-byte cells: instant, host, then the columns of the table; None if it has none."""
    places = {name: place for place, name in enumerate(rows.names)}
    pairs = [(at, places[column.series]) for at, column in enumerate(table.columns, 2) if column.series in places]
    if not pairs or not len(rows.times):
        return None
    raw = np.full((len(rows.times), len(table.columns) + 2), np.nan, "<f8")
    cells = raw.view("<i8")
    cells[:, 0], cells[:, 1] = np.frombuffer(rows.times, "<i8"), np.frombuffer(rows.nodes, "<u4")
    values = np.frombuffer(bytes(rows.packed), "<f8").reshape(len(rows.times), len(rows.names))
    raw[:, [at for at, _ in pairs]] = values[:, [place for _, place in pairs]]
    return raw


def write_rows(group: "h5py.Group", name: str, raw: "np.ndarray[Any, Any]", columns: Iterable[str]) -> None:
    """Write 8-byte cells (instant, host, values) as a compound table."""
    _, np = load()
    kind = np.dtype([("time", "<i8"), ("host", "<i8"), *((column, "<f8") for column in columns)])
    records = raw.view(kind).reshape(len(raw))
    group.create_dataset(
        name, data=records, chunks=(min(_CHUNK, len(raw)),), compression="gzip", compression_opts=_GZIP, shuffle=True
    )


@contextlib.contextmanager
def opened_file(path: Path) -> "Iterator[h5py.File]":
    """Open a file; `DamagedArchive` if it cannot be read, `FileNotFoundError` if it is not there."""
    h5py, _ = load()
    if not path.exists():
        raise FileNotFoundError(path)
    try:
        with h5py.File(path, "r", locking=False) as file:
            yield file
    except (OSError, KeyError, ValueError, TypeError, StopIteration, RuntimeError) as error:
        raise DamagedArchive(path, str(error) or type(error).__name__) from error


@contextlib.contextmanager
def opened(path: Path) -> "Iterator[h5py.Group]":
    """Open the group of a file; raises as `opened_file` does."""
    with opened_file(path) as file:
        yield file[next(iter(file), "")]


def read_about(path: Path) -> dict[str, Any]:
    """Read the attributes of a job's file."""
    with opened(path) as group:
        return {name: plain(value) for name, value in group.attrs.items()}


def plain(value: Any) -> Any:
    """Return an attribute as Python has it; lists were written as JSON."""
    value = value.item() if hasattr(value, "item") else value
    with contextlib.suppress(ValueError):
        return json.loads(value) if isinstance(value, str) and value[:1] in {"[", "{"} else value
    return value


def read_tracks(path: Path, wanted: Callable[[str], bool], since: int, until: int) -> list[Track]:
    """Read the series of a file that are wanted, between two instants (milliseconds)."""
    with opened(path) as group:
        names = [name for name in group if not name.endswith((LEAST, MOST))]
        return [track for name in names for track in _read_table(group, name, wanted, since, until)]


def _read_table(
    group: "h5py.Group", name: str, wanted: Callable[[str], bool], since: int, until: int
) -> Iterator[Track]:
    _, np = load()
    table = group[name]
    series: Mapping[str, str] = json.loads(table.attrs["series"])
    hosts = json.loads(table.attrs["hosts"])
    columns = [column for column, written in series.items() if wanted(written)]
    if not columns:
        return
    rows = table.fields(["time", "host", *columns])[...]
    inside = (rows["time"] >= since) & (rows["time"] <= until)
    parts = [group[f"{name}{end}"][...][inside] if f"{name}{end}" in group else None for end in (LEAST, MOST)]
    rows = rows[inside]
    for column in columns:
        for place, host in enumerate(hosts):
            here = np.isfinite(rows[column]) & (rows["host"] == place)
            if here.any():
                mean = rows[column][here].tolist()
                least, most = (mean if part is None else part[column][here].tolist() for part in parts)
                yield Track(series[column], host, rows["time"][here].tolist(), mean, least, most)
