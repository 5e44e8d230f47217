"""Files of jobs, and of the days of nodes, that come back: from a backup, from elsewhere, from a user.

Nothing in such a file is believed. Its tables are read to their last value, checked, and written to a new file; what is
said about the job comes from the database. Links, external and virtual data are refused, since they could name any
other file of this machine.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Struct

from oarlock.measure.collect.files import hdf5
from oarlock.measure.collect.files.hdf5 import LEAST, MOST, VERSION, ArchivedJob, DamagedArchive, definition_of
from oarlock.measure.collect.files.places import SamplePlaces, day_of, is_node_name
from oarlock.measure.collect.files.thinning import HOUR_SECONDS, STRETCH_SECONDS
from oarlock.model.errors import OarlockError
from oarlock.node.measure.wire import is_series

if TYPE_CHECKING:
    import h5py

_MOST_CELLS = 1 << 28  # 2 GiB of one table in memory
_MOST_COLUMNS, _MOST_TABLES, _MOST_HOSTS = 1000, 1000, 100_000
_LATEST = 1 << 48  # milliseconds: no job ran then
_GROUP = re.compile(r"job_([1-9][0-9]{0,17})")
_NODE_GROUP = re.compile(r"node")
_DAY = 86_400_000  # milliseconds
_LAST_JOB = 10**18
_TABLE = re.compile(r"[A-Za-z0-9_]{1,100}")
_COLUMN = re.compile(r"[A-Za-z0-9_]{1,130}")
_LONGEST_WHY = 200


class ImportRefused(OarlockError):
    """A file that is not taken as the file of a job."""

    http_status = 400


class ImportedFile(Struct, frozen=True):
    """A file that was taken: its job, where it lies, and how many rows it has."""

    job: int
    path: str
    rows: int
    thinned: int | None = None


class ImportedDay(Struct, frozen=True):
    """A file of a node's day that was taken: where it lies, and how many rows it has."""

    node: str
    path: str
    rows: int
    thinned: int | None = None


class _Table(NamedTuple):
    """A checked table: its rows as 8-byte cells, its nodes, and its columns with the series that each holds."""

    name: str
    cells: Any
    hosts: list[str]
    series: dict[str, str]


class _Content(NamedTuple):
    """What was read and checked of a file."""

    job: int
    owner: str
    start: int
    thinned: int | None
    gaps: list[Any]
    clocks: dict[str, float]
    tables: list[_Table]
    jobs: list[int]
    """Jobs that were on the node, in the file of a node's day."""


Describe = Callable[[int], ArchivedJob | None]
"""Looks a job up in the database."""


def import_file(places: SamplePlaces, path: Path, describe: Describe, *, expected: int | None = None) -> ImportedFile:
    """Check a file and keep a copy of what it holds; `ImportRefused` or `DamagedArchive` say why it is not taken."""
    hdf5.load()
    if not path.is_file():
        raise ImportRefused(f"There is no file {path}.", hint="Name the HDF5 file of a job.")
    with hdf5.opened_file(path) as file:
        content = _read(file, path)
    about = describe(content.job if expected is None else expected)
    if expected is not None:
        content = _expected(content, expected, about)
    _check_job(places, content, about)
    target = places.archived(content.job)
    if content.thinned:
        target = target.with_name(f"{content.job}.thin.h5")
    _write(places, target, content, about or ArchivedJob(content.job))
    return ImportedFile(content.job, str(target), _rows(content), content.thinned)


def import_day(places: SamplePlaces, path: Path, node: str, day: float) -> ImportedDay:
    """Check the file of a day (epoch seconds at midnight, UTC) of a node and keep a copy; raises as `import_file`."""
    hdf5.load()
    log = places.node_log(node, day)
    if not path.is_file():
        raise ImportRefused(f"There is no file {path}.", hint="Name the HDF5 file of a node's day.")
    with hdf5.opened_file(path) as file:
        group = _only_group(file, path, _NODE_GROUP)
        content = _read_content(group, path, 0)
        name = group.attrs.get("name")
    hosts = {host for table in content.tables for host in table.hosts}
    if name != node or hosts != {node}:
        raise ImportRefused(f"The file is not of node {node}.", hint="Bring another one.")
    if not all(_is_within(table, int(day * 1000)) for table in content.tables):
        raise ImportRefused(f"The file is not of {log.stem}.", hint="Bring another one.")
    if any(day_of(kept) == day for kept in places.node_files(node)):
        raise ImportRefused(
            f"Node {node} has its measurements of {log.stem} here already.", hint="Nothing is replaced."
        )
    target = log.with_suffix(".thin.h5" if content.thinned else ".h5")
    _write(places, target, content, ArchivedJob(0, name=node), scope="node")
    return ImportedDay(node, str(target), _rows(content), content.thinned)


def _is_within(table: _Table, begin: int) -> bool:
    times = table.cells.view("<i8")[:, 0]
    return not len(times) or (begin <= times[0] and times[-1] < begin + _DAY)


def _rows(content: _Content) -> int:
    return sum(len(table.cells) for table in content.tables if table.hosts)


def _expected(content: _Content, expected: int, about: ArchivedJob | None) -> _Content:
    """Return the content under the number of the job that it is expected to be of; refuse that of another job.

    In the file of a job of another cluster stands the number that the job has there.
    """
    label = "" if about is None else about.label
    if str(content.job) != (label or str(expected)):
        raise ImportRefused(f"The file is of job {content.job}, not of job {expected}.", hint="Bring another one.")
    return content._replace(job=expected)


def _check_job(places: SamplePlaces, content: _Content, about: ArchivedJob | None) -> None:
    job = content.job
    if about is None:
        raise ImportRefused(f"There is no job {job} in this database.", hint="Is it a file of another cluster?")
    if (content.owner and content.owner != about.owner) or (content.start and content.start != about.start):
        raise ImportRefused(
            f"The file is of another job {job}: of {content.owner or 'nobody'}, begun at {content.start}; here job "
            f"{job} is of {about.owner}, begun at {about.start}.",
            hint="Is it a file of another cluster?",
        )
    if places.kept(job) is not None or places.log(job).exists():
        raise ImportRefused(f"Job {job} has its measurements here already.", hint="Nothing is replaced.")


def _read(file: "h5py.File", path: Path) -> _Content:
    group = _only_group(file, path, _GROUP)
    return _read_content(group, path, int(group.name.rpartition("_")[2]))


def _only_group(file: "h5py.File", path: Path, pattern: re.Pattern[str]) -> "h5py.Group":
    """Return the one group of a file, if its name is as it should be."""
    names = list(file)
    if len(names) != 1 or not pattern.fullmatch(names[0]) or not _is_plain(file, names[0], "Group"):
        what, group = ("a node", "node") if pattern is _NODE_GROUP else ("one job", "job_NUMBER")
        raise ImportRefused(f"{path.name} is not the file of {what}.", hint=f"It has one group, called `{group}`.")
    return file[names[0]]


def _read_content(group: "h5py.Group", path: Path, job: int) -> _Content:
    about = {name: hdf5.plain(value) for name, value in group.attrs.items()}
    thinned = about.get("thinned")
    if about.get("version") != VERSION or thinned not in {None, STRETCH_SECONDS, HOUR_SECONDS}:
        raise DamagedArchive(path, f"its version is {about.get('version')!r}, its stretches are {thinned!r}")
    tables = list(_tables(group, path, is_thinned=thinned is not None))
    owner, start = about.get("owner", ""), about.get("start", 0)
    return _Content(
        job,
        owner if isinstance(owner, str) else "",
        start if isinstance(start, int) else 0,
        thinned,
        _checked_gaps(about.get("gaps", [])),
        _checked_clocks(about.get("clocks", {})),
        tables,
        [job for job in _list(about.get("involved_jobs")) if type(job) is int and 0 < job <= _LAST_JOB],
    )


def _is_plain(group: "h5py.Group", name: str, kind: str) -> bool:
    """Return whether a name is an object of this file itself, not a link."""
    h5py, _ = hdf5.load()
    return isinstance(group.get(name, getlink=True), h5py.HardLink) and isinstance(group[name], getattr(h5py, kind))


def _tables(group: "h5py.Group", path: Path, *, is_thinned: bool) -> Iterator[_Table]:
    names = list(group)
    if not 0 < len(names) <= _MOST_TABLES:
        raise DamagedArchive(path, f"it has {len(names)} tables")
    for name in names:
        if not _TABLE.fullmatch(name) or not _is_plain(group, name, "Dataset"):
            raise DamagedArchive(path, f"{name[:80]!r} is not a table")
    for name in names:
        if is_thinned and name.endswith((LEAST, MOST)):
            if name.removesuffix(LEAST).removesuffix(MOST) not in names:
                raise DamagedArchive(path, f"{name} has no means")
            continue
        table = _table(group, name, path)
        yield table
        for end in (LEAST, MOST) if is_thinned else ():
            yield _matching(group, table, f"{name}{end}", path)


def _matching(group: "h5py.Group", table: _Table, name: str, path: Path) -> _Table:
    """Read the least or the most that belong to a table of means."""
    _, np = hdf5.load()
    if name not in group:
        raise DamagedArchive(path, f"{name} is missing")
    cells = _cells(group[name], list(table.series), path)
    if cells.shape != table.cells.shape or not np.array_equal(cells[:, :2].view("<i8"), table.cells[:, :2].view("<i8")):
        raise DamagedArchive(path, f"{name} has other rows than {table.name}")
    return _Table(name, cells, [], table.series)


def _table(group: "h5py.Group", name: str, path: Path) -> _Table:
    dataset = group[name]
    try:
        hosts, series = (json.loads(dataset.attrs[attribute]) for attribute in ("hosts", "series"))
    except (KeyError, ValueError, TypeError):
        raise DamagedArchive(path, f"{name} does not name its nodes and series") from None
    if not isinstance(hosts, list) or len(hosts) > _MOST_HOSTS or not all(map(is_node_name, hosts)):
        raise DamagedArchive(path, f"the nodes of {name} have no proper names")
    if not isinstance(series, dict) or not all(_is_column(*item) for item in series.items()):
        raise DamagedArchive(path, f"the series of {name} have no proper names")
    cells = _cells(dataset, list(series), path)
    whole = cells.view("<i8")
    times, places = whole[:, 0], whole[:, 1]
    if len(times) and (times.min() < 0 or times.max() > _LATEST or places.min() < 0 or places.max() >= len(hosts)):
        raise DamagedArchive(path, f"{name} has rows of no instant or no node")
    if (times[1:] < times[:-1]).any():
        raise DamagedArchive(path, f"the rows of {name} are not in their order")
    return _Table(name, cells, hosts, series)


def _is_column(column: str, series: object) -> bool:
    return bool(_COLUMN.fullmatch(column)) and isinstance(series, str) and is_series(series)


def _cells(dataset: "h5py.Dataset", columns: list[str], path: Path) -> Any:
    """Read all rows of a table that has exactly these columns, as 8-byte cells."""
    _, np = hdf5.load()
    name = dataset.name.rpartition("/")[2]
    wanted = np.dtype([("time", "<i8"), ("host", "<i8"), *((column, "<f8") for column in columns)])
    if dataset.external or dataset.is_virtual:
        raise DamagedArchive(path, f"the rows of {name} are in another file")
    if dataset.ndim != 1 or dataset.dtype != wanted or len(columns) > _MOST_COLUMNS:
        raise DamagedArchive(path, f"{name} does not have the columns that it names")
    if len(dataset) * len(wanted) > _MOST_CELLS:
        raise ImportRefused(f"{path.name} is too large: {name} has {len(dataset)} rows.", hint="Thin it first.")
    rows = dataset[...]
    return np.ascontiguousarray(rows).view("<f8").reshape(len(rows), len(wanted))


def _checked_gaps(gaps: object) -> list[Any]:
    """Return what is a gap; what is not is left out."""
    kinds = (str, int, int, str)
    return [
        [node, since, until, why[:_LONGEST_WHY]]
        for gap in _list(gaps)
        if isinstance(gap, list) and [type(part) for part in gap] == list(kinds)
        for node, since, until, why in [gap]
        if is_node_name(node)
    ]


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _checked_clocks(clocks: object) -> dict[str, float]:
    entries: Mapping[str, Any] = clocks if isinstance(clocks, dict) else {}
    return {node: float(ahead) for node, ahead in entries.items() if is_node_name(node) and type(ahead) in {int, float}}


def _write(places: SamplePlaces, target: Path, content: _Content, about: ArchivedJob, *, scope: str = "job") -> None:
    places.temporary.mkdir(0o700, exist_ok=True)
    with hdf5.created(target, places.temporary) as file:
        group = file.create_group(f"job_{about.label or content.job}" if scope == "job" else "node")
        hdf5.write_about(group, about, content.gaps, content.clocks, content.jobs)
        if content.thinned:
            group.attrs["thinned"] = content.thinned
        for table in content.tables:
            for _ in hdf5.write_rows(group, table.name, table.cells, table.series):
                pass
            if table.hosts:
                _describe_table(group, table, scope)


def _describe_table(group: "h5py.Group", table: _Table, scope: str) -> None:
    metrics = {column: definition_of(series, scope) for column, series in table.series.items()}
    attributes = {
        "hosts": table.hosts,
        "series": table.series,
        "units": {column: metric.unit if metric else "" for column, metric in metrics.items()},
        "kinds": {column: str(metric.kind) if metric else "" for column, metric in metrics.items()},
    }
    for name, value in attributes.items():
        group[table.name].attrs[name] = json.dumps(value)
