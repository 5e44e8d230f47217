"""A month of measurements for DuckDB, Polars or Spark: Parquet files of summaries and of thinned series.

Three files: `summaries` has a row for each job that ended in the month; `series` has, for those that have a file, the
least, the mean and the most of every series and five minutes; `nodes` has the same of nodes. Series are long tables
(a row a value), since jobs differ in what is measured of them; names are dictionary-encoded and cost next to nothing.

pyarrow comes with the extra `parquet` and is loaded when it is needed.
"""

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Struct

from oarlock.measure.collect.files import hdf5, thinning
from oarlock.measure.collect.files.hdf5 import DamagedArchive, definition_of
from oarlock.measure.collect.files.places import SamplePlaces, day_of
from oarlock.measure.collect.files.thinning import ThinnedTable
from oarlock.model.errors import BadRequest, OarlockError
from oarlock.node.sources.probe import split

if TYPE_CHECKING:
    import pyarrow as pa

_ROWS_AT_ONCE = 500_000
_TYPES = {int: "int64", float: "float64", str: "string"}


class ParquetUnavailable(OarlockError):
    """Parquet is asked for where pyarrow is not installed."""

    http_status = 501

    def __init__(self) -> None:
        super().__init__(
            "Parquet files cannot be written here: pyarrow is not installed.", hint="Install `oarlock[parquet]`."
        )


class ExportMonth(NamedTuple):
    """A month (UTC): its name, and its first instant and that of the next (epoch seconds)."""

    name: str
    since: int
    until: int


class ParquetFile(Struct, frozen=True):
    """A file that was written."""

    path: str
    rows: int


class ParquetExport(Struct, frozen=True):
    """What was written, and which files of the archive could not be read."""

    files: list[ParquetFile]
    damaged: list[str]


class MonthlyJobs(NamedTuple):
    """What the database knows: columns of summaries, rows of them in parts, and jobs besides those of the rows."""

    columns: Mapping[str, type]
    parts: Iterable[Sequence[Sequence[Any]]]
    others: Sequence[int] = ()


def parse_month(text: str) -> ExportMonth:
    """Parse `2026-10`."""
    try:
        first = datetime.strptime(text, "%Y-%m").replace(tzinfo=UTC)
    except ValueError:
        raise BadRequest(f"`{text[:80]}` is not a month.", hint="Write it as 2026-10.") from None
    following = first.replace(year=first.year + first.month // 12, month=first.month % 12 + 1)
    return ExportMonth(text, int(first.timestamp()), int(following.timestamp()))


def export_month(
    places: SamplePlaces,
    month: ExportMonth,
    jobs: MonthlyJobs,
    folder: Path,
    progress: Callable[[int], None] = lambda _done: None,
) -> ParquetExport:
    """Write the three files of a month to a folder; `BadRequest` if one of them is there already.

    `progress` is called with how many files of the archive were read. One that is damaged is left out and named.
    """
    if find_spec("pyarrow") is None:
        raise ParquetUnavailable
    targets = {name: folder / f"{name}-{month.name}.parquet" for name in ("summaries", "series", "nodes")}
    for target in targets.values():
        if target.exists():
            raise BadRequest(f"There is a file {target} already.", hint="Name another folder, or move it away.")
    folder.mkdir(parents=True, exist_ok=True)
    numbers = list(jobs.others)
    damaged: list[str] = []
    reader = _ThinnedReader(damaged, progress)
    with contextlib.ExitStack() as stack:  # all three, or none
        summaries, series, nodes = [stack.enter_context(_written(target)) for target in targets.values()]
        counts = [
            _write_summaries(summaries, jobs, numbers),
            _write_series(series, reader.of_jobs(places, numbers), "job_id"),
            _write_series(nodes, reader.of_nodes(places, month), None),
        ]
    made = zip(targets.values(), counts, strict=True)
    return ParquetExport([ParquetFile(str(path), rows) for path, rows in made], damaged)


@contextlib.contextmanager
def _written(target: Path) -> Iterator[Path]:
    """Yield a path beside a file; afterwards it has the file's name, on disk, or is deleted if something was raised."""
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        yield temporary
        hdf5.sync(temporary)
        temporary.replace(target)
        hdf5.sync(target.parent)
    finally:
        temporary.unlink(missing_ok=True)


def _write_summaries(path: Path, jobs: MonthlyJobs, numbers: list[int]) -> int:
    """Write the rows, and add their jobs to `numbers`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema([(name, getattr(pa, _TYPES[kind])()) for name, kind in jobs.columns.items()])
    count = 0
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for rows in jobs.parts:
            numbers += [row[0] for row in rows]
            count += len(rows)
            columns = list(zip(*rows, strict=True))
            arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
            writer.write_table(pa.Table.from_arrays(arrays, schema=schema))
    return count


class _Subject(NamedTuple):
    """A table of a job, or of a node (`job` is None)."""

    job: int | None
    table: ThinnedTable


class _ThinnedReader:
    """Reads files as thinned tables; what is damaged is named."""

    def __init__(self, damaged: list[str], progress: Callable[[int], None]) -> None:
        self._damaged, self._progress, self._done = damaged, progress, 0

    def of_jobs(self, places: SamplePlaces, numbers: Iterable[int]) -> Iterator[_Subject]:
        """Yield the tables of those jobs that have a file."""
        for job in sorted(numbers):
            path = places.kept(job)
            if path is not None:
                yield from (_Subject(job, table) for table in self._tables(path))

    def of_nodes(self, places: SamplePlaces, month: ExportMonth) -> Iterator[_Subject]:
        """Yield the tables of the days of nodes that are files."""
        for path in sorted(places.nodes.glob("*/*.h5")):
            if month.since <= day_of(path) < month.until:
                yield from (_Subject(None, table) for table in self._tables(path))

    def _tables(self, path: Path) -> Iterator[ThinnedTable]:
        self._progress(self._done)
        self._done += 1
        try:
            yield from thinning.read_thinned(path)
        except DamagedArchive as problem:
            self._damaged.append(f"{path}: {problem}")
        except FileNotFoundError:
            pass


def _write_series(path: Path, subjects: Iterable[_Subject], job_column: str | None) -> int:
    import pyarrow as pa
    import pyarrow.parquet as pq

    words = pa.dictionary(pa.int32(), pa.string())
    fields = [(job_column, pa.int64())] if job_column else []
    fields += [(name, words) for name in ("node", "metric", "series", "unit", "kind")]
    fields += [("time", pa.timestamp("ms", "UTC")), *((name, pa.float64()) for name in ("least", "mean", "most"))]
    schema = pa.schema(fields)
    count = waiting = 0
    parts: list[pa.Table] = []
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for subject in subjects:
            for part in _long_tables(subject, schema):
                parts.append(part)
                count, waiting = count + len(part), waiting + len(part)
            if waiting > _ROWS_AT_ONCE:
                writer.write_table(pa.concat_tables(parts).unify_dictionaries())
                parts, waiting = [], 0
        if parts:
            writer.write_table(pa.concat_tables(parts).unify_dictionaries())
    return count


def _long_tables(subject: _Subject, schema: "pa.Schema") -> Iterator["pa.Table"]:
    """Yield a table a series: a row a stretch and node that has a value."""
    import pyarrow as pa

    _, np = hdf5.load()
    table = subject.table
    scope = "node" if subject.job is None else "job"
    for place, series in enumerate(table.series):
        here = np.isfinite(table.mean[:, place])
        rows = int(here.sum())
        if not rows:
            continue
        definition = definition_of(series, scope)
        metric = (split(series)[0], series, definition.unit if definition else "", str(definition.kind) if definition
                  else "")  # fmt: skip
        arrays = [] if subject.job is None else [pa.array(np.full(rows, subject.job))]
        arrays.append(pa.DictionaryArray.from_arrays(pa.array(table.host[here], pa.int32()), pa.array(table.hosts)))
        arrays += [_repeated(text, rows) for text in metric]
        arrays.append(pa.array(table.times[here], pa.timestamp("ms", "UTC")))
        arrays += [pa.array(part[here, place]) for part in (table.least, table.mean, table.most)]
        yield pa.Table.from_arrays(arrays, schema=schema)


def _repeated(text: str, rows: int) -> "pa.DictionaryArray":
    import pyarrow as pa

    _, np = hdf5.load()
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, "int32")), pa.array([text]))
