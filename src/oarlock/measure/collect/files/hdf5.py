"""One HDF5 file a job: `/job_<id>/<backend>` is a table that h5py and `pandas.read_hdf` read.

A row is an instant (milliseconds), a host as its place in the attribute `hosts`, and a column a series; what was not
measured is NaN. Columns have names that programs accept; the attribute `series` has the real ones, `units` and `kinds`
what each is. A backend with very many columns is cut into `<backend>`, `<backend>_2`, and so on. Of a file that was
thinned, `<backend>` has the means, and `<backend>_least` and `<backend>_most` the ends of each stretch.

A file is written under another name, synced and renamed: it is there whole or not at all.

h5py and numpy come with the extra `archive` and are loaded when they are needed.
"""

import contextlib
import errno
import json
import os
import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from oarlock.measure.collect.files.rowlog import LogContent, Names, RowGroup
from oarlock.measure.collect.files.steps import Steps, finish
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
_BATCH_VALUES = 1 << 20  # that are in memory while a file is made
_ROWS_A_STEP = 1 << 18  # whose instants are looked at
_GAP_PERIODS = 3
_FOREVER = 1 << 62
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
    """Write a log as the file of a job; it appears under its name once it is on disk.

    Of a log that was surveyed only some thousand rows are in memory at a time.
    """
    finish(write_in_steps(target, temporary, job, content, scope=scope))


def write_in_steps(
    target: Path, temporary: Path, job: ArchivedJob, content: LogContent, *, scope: str = "job"
) -> Steps[None]:
    """Write a log as `write_job` does, some thousand rows at a time."""
    with created(target, temporary) as file, _reading_values(content) as read:
        group = file.create_group(f"job_{job.label or job.job}" if scope == "job" else "node")
        missing = yield from _find_gaps(content)
        write_about(group, job, missing, wrong_clocks(content), involved_jobs(content))
        yield from _write_tables(group, _tables(content, scope), content, read)


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
    return finish(_find_gaps(content))


def _find_gaps(content: LogContent) -> Steps[list[Gap]]:
    noted = [
        Gap(note.node, note.about["since"], note.about["until"], str(note.about.get("why", "")))
        for note in content.notes
        if note.about.keys() >= {"since", "until"}
    ]
    times = [array("q") for _ in content.nodes]
    for group in content.groups.values():
        for row, (at, host) in enumerate(zip(group.times, group.nodes, strict=True), 1):
            times[host].append(at)
            if row % _ROWS_A_STEP == 0:
                yield
    silent: list[Gap] = []
    for node, instants in zip(content.nodes, times, strict=True):
        silent += _silences(node, sorted(instants))
        yield
    return sorted([*noted, *silent], key=lambda gap: (gap.since, gap.node))


def _silences(node: str, times: Sequence[int]) -> Iterator[Gap]:
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


ReadValues = Callable[[RowGroup, "np.ndarray[Any, Any]"], "np.ndarray[Any, Any]"]
"""Returns the values of some rows of a group, a row of the answer each."""


@contextlib.contextmanager
def _reading_values(content: LogContent) -> Iterator[ReadValues]:
    """Yield what reads values: out of memory, or where a survey says that they are in the file."""
    _, np = load()

    def in_memory(rows: RowGroup, wanted: Any) -> Any:
        return np.frombuffer(rows.packed, "<f8").reshape(-1, len(rows.names))[wanted]

    if content.path is None:
        yield in_memory
        return
    fd = os.open(content.path, os.O_RDONLY | os.O_CLOEXEC)

    def in_file(rows: RowGroup, wanted: Any) -> Any:
        size = len(rows.names) * 8
        data = b"".join([os.pread(fd, size, rows.places[row]) for row in wanted.tolist()])
        if len(data) != size * len(wanted):
            raise OSError(errno.EIO, f"{content.path} became shorter while it was read")
        return np.frombuffer(data, "<f8").reshape(len(wanted), len(rows.names))

    try:
        yield in_file
    finally:
        os.close(fd)


def _write_tables(
    group: "h5py.Group", tables: Sequence[_Table], content: LogContent, read: ReadValues
) -> Iterator[None]:
    """Write all rows, by time and host, so many at once that they take some megabytes."""
    _, np = load()
    groups = [rows for rows in content.groups.values() if rows.times and rows.names]
    writers = [writer for table in tables if (writer := _TableWriter(group, table, groups)).size]
    order = _row_order(np, groups)
    many = min(max(_BATCH_VALUES // max((len(rows.names) for rows in groups), default=1), _CHUNK // 8), 8 * _CHUNK)
    for begin in range(0, len(order), many):
        part = order[begin : begin + many]
        blocks = []
        for which in np.unique(part["group"]).tolist():
            here = np.flatnonzero(part["group"] == which)
            blocks.append((which, here, read(groups[which], part["row"][here])))
        for writer in writers:
            writer.add(part, blocks)
        yield
    for writer in writers:
        writer.finish(content.nodes)
        yield


def _row_order(np: Any, groups: Sequence[RowGroup]) -> Any:
    """Return all rows by time and host: their group, and their place in it."""
    order = np.empty(
        sum(len(rows.times) for rows in groups), [("time", "<i8"), ("host", "<u4"), ("group", "<u4"), ("row", "<i8")]
    )
    begin = 0
    for which, rows in enumerate(groups):
        part = order[begin : begin + len(rows.times)]
        part["time"], part["host"] = np.frombuffer(rows.times, "<i8"), np.frombuffer(rows.nodes, "<u4")
        part["group"], part["row"] = which, np.arange(len(rows.times))
        begin += len(rows.times)
    return order[np.lexsort((order["host"], order["time"]))]


class _TableWriter:
    """Writes one table, whole chunks of it: HDF5 compresses each again that is written a second time."""

    def __init__(self, group: "h5py.Group", table: _Table, groups: Sequence[RowGroup]) -> None:
        _, self._np = load()
        self._table, self._group = table, group
        self._columns = [self._pairs(rows.names) for rows in groups]  # of each group: to which cells, from which
        self.size = sum(len(rows.times) for rows, pairs in zip(groups, self._columns, strict=True) if pairs)
        self._pending: list[Any] = []
        self._waiting = self._written = 0
        self._kind = _kind_of_rows(column.name for column in table.columns)
        if self.size:
            self._dataset = _new_table(group, table.name, self.size, self._kind)

    def _pairs(self, names: Names) -> "tuple[list[int], list[int]] | None":
        places = {name: place for place, name in enumerate(names)}
        pairs = [
            (cell, places[column.series])
            for cell, column in enumerate(self._table.columns, 2)
            if column.series in places
        ]
        return ([cell for cell, _ in pairs], [place for _, place in pairs]) if pairs else None

    def add(self, part: Any, blocks: "Sequence[tuple[int, Any, Any]]") -> None:
        """Add rows: in which order, and for each group which of them are its own, with their values."""
        np = self._np
        raw = np.full((len(part), len(self._table.columns) + 2), np.nan, "<f8")
        cells, is_mine = raw.view("<i8"), np.zeros(len(part), bool)
        cells[:, 0], cells[:, 1] = part["time"], part["host"]
        for which, here, values in blocks:
            pairs = self._columns[which]
            if pairs is not None:
                is_mine[here] = True
                raw[np.ix_(here, pairs[0])] = values[:, pairs[1]]
        self._pending.append(raw if is_mine.all() else raw[is_mine])
        self._waiting += len(self._pending[-1])
        if self._waiting >= _CHUNK:
            self._write(self._waiting // _CHUNK * _CHUNK)

    def _write(self, count: int) -> None:
        if not self._pending:
            return
        raw = self._pending[0] if len(self._pending) == 1 else self._np.concatenate(self._pending)
        records = self._np.ascontiguousarray(raw[:count]).view(self._kind).reshape(count)
        self._dataset[self._written : self._written + count] = records
        self._written += count
        self._pending, self._waiting = [raw[count:]], len(raw) - count

    def finish(self, nodes: Sequence[str]) -> None:
        """Write what is left, and what the table is about."""
        self._write(self._waiting)
        about, columns = self._dataset.attrs, self._table.columns
        about["hosts"] = json.dumps(list(nodes))
        about["series"] = json.dumps({column.name: column.series for column in columns})
        about["units"] = json.dumps({column.name: column.unit for column in columns})
        about["kinds"] = json.dumps({column.name: column.kind for column in columns})


def _kind_of_rows(columns: Iterable[str]) -> Any:
    _, np = load()
    return np.dtype([("time", "<i8"), ("host", "<i8"), *((column, "<f8") for column in columns)])


def _new_table(group: "h5py.Group", name: str, size: int, kind: Any) -> "h5py.Dataset":
    return group.create_dataset(
        name, shape=(size,), dtype=kind, chunks=(min(_CHUNK, size),), compression="gzip", compression_opts=_GZIP,
        shuffle=True,
    )  # fmt: skip


def write_rows(group: "h5py.Group", name: str, raw: "np.ndarray[Any, Any]", columns: Iterable[str]) -> Iterator[None]:
    """Write 8-byte cells (instant, host, values) as a compound table; yield after some thousand rows."""
    kind = _kind_of_rows(columns)
    table, rows = _new_table(group, name, len(raw), kind), raw.view(kind).reshape(len(raw))
    for begin in range(0, len(raw), 8 * _CHUNK):
        table[begin : begin + 8 * _CHUNK] = rows[begin : begin + 8 * _CHUNK]
        yield


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


def read_tracks(
    path: Path, wanted: Callable[[str], bool], since: int, until: int, *, check: Callable[[int], None] = lambda _: None
) -> list[Track]:
    """Read the series of a file that are wanted, between two instants (milliseconds).

    `check` is called with how many values that are, before they are read.
    """
    with opened(path) as group:
        names = [name for name in group if not name.endswith((LEAST, MOST))]
        try:
            check(sum(_count_values(group, name, wanted) for name in names))
        except OarlockError:  # of all instants; those that are wanted may be few
            check(sum(_count_values(group, name, wanted, since, until) for name in names))
        return [track for name in names for track in _read_table(group, name, wanted, since, until)]


class TableRows(NamedTuple):
    """Some rows of a table: which series they have, the hosts, and arrays: instants, places of hosts, and values."""

    table: str
    series: list[str]
    hosts: list[str]
    times: Any
    nodes: Any
    least: Any
    mean: Any
    most: Any


def count_tracks(path: Path, wanted: Callable[[str], bool]) -> int:
    """Return how many series of how many hosts a file has, of those that are wanted."""
    with opened(path) as group:
        tables = [table for name, table in group.items() if not name.endswith((LEAST, MOST))]
        return sum(
            sum(map(wanted, json.loads(table.attrs["series"]).values())) * len(json.loads(table.attrs["hosts"]))
            for table in tables
        )


def read_rows(path: Path, wanted: Callable[[str], bool], since: int, until: int) -> Iterator[TableRows]:
    """Yield the rows of a file between two instants (milliseconds), some thousand at a time, with what is wanted."""
    _, np = load()
    with opened(path) as group:
        for name, table in group.items():
            series = json.loads(table.attrs["series"]) if not name.endswith((LEAST, MOST)) else {}
            columns = [column for column, written in series.items() if wanted(written)]
            many = max(_BATCH_VALUES // (len(series) + 2), _CHUNK)
            for begin in range(0, len(table) if columns else 0, many):
                piece = slice(begin, begin + many)
                rows = table.fields(["time", "host", *columns])[piece]
                inside = (rows["time"] >= since) & (rows["time"] <= until)
                mean, least, most = (
                    np.column_stack([part[column] for column in columns])[inside]
                    for part in (rows, *(_end_of(group, name, end, columns, piece, rows) for end in (LEAST, MOST)))
                )
                names = [series[column] for column in columns]
                hosts = json.loads(table.attrs["hosts"])
                yield TableRows(name, names, hosts, rows["time"][inside], rows["host"][inside], least, mean, most)


def _end_of(group: "h5py.Group", name: str, end: str, columns: Sequence[str], piece: slice, rows: Any) -> Any:
    """Return the least or the most of each stretch; of a file that is not thinned, the values themselves."""
    return group[f"{name}{end}"].fields(list(columns))[piece] if f"{name}{end}" in group else rows


def read_through(path: Path) -> None:
    """Read all of a file, a piece at a time; raises as `opened_file` does."""
    with opened(path) as group:
        for name, table in group.items():
            if not name.endswith((LEAST, MOST)):
                json.loads(table.attrs["series"]), json.loads(table.attrs["hosts"])
            for begin in range(0, len(table), 8 * _CHUNK):
                table[begin : begin + 8 * _CHUNK]


def _count_values(
    group: "h5py.Group", name: str, wanted: Callable[[str], bool], since: int = 0, until: int = _FOREVER
) -> int:
    """Count the values of a table that are wanted; only for some instants these have to be read."""
    _, np = load()
    table = group[name]
    columns = sum(wanted(series) for series in json.loads(table.attrs["series"]).values())
    if not columns or (since, until) == (0, _FOREVER):
        return columns * len(table)
    times = table.fields("time")[...]
    return columns * int(np.count_nonzero((times >= since) & (times <= until)))


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
