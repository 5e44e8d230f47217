"""Colmet's own files of what we keep: one HDF5 file as its collector writes it, with the mappings of its nodes beside.

`/job_<id>/<backend>_default` is a table of a job, `/job_0/<backend>_default` of the nodes it ran on, for as long as it
was measured. Two of Colmet's mistakes are not repeated: the table of temperatures says when, where and of which job,
and that of RAPL has all 24 columns.
"""

import json
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from oarlock.measure.collect import series
from oarlock.measure.collect.files import hdf5
from oarlock.measure.collect.files.hdf5 import Track
from oarlock.measure.collect.files.places import SamplePlaces, day_of
from oarlock.measure.collect.files.rowlog import read_log
from oarlock.measure.colmet import records
from oarlock.measure.colmet.tables import JOB_TABLES, NODE_TABLES, TablePlan, counted_events, plan_table, rows_of
from oarlock.model.errors import ConfigRefused

if TYPE_CHECKING:
    import h5py

BACKEND_VERSION = 2
_CHUNK, _GZIP = 256, 4
_EVERYTHING: Callable[[str], bool] = lambda _series: True  # noqa: E731
_MAPPINGS = {"perfhwstats": "perfhw_mapping", "RAPLstats": "RAPL_mapping", "temperaturestats": "temperature_mapping"}
_FOREVER = 1 << 62


class JobsThere(NamedTuple):
    """From which instants on (milliseconds, in order) which jobs were on a node."""

    since: list[int]
    jobs: list[list[int]]

    def at(self, instant: int) -> list[int]:
        """Return the jobs at an instant."""
        place = bisect_right(self.since, instant) - 1
        return self.jobs[max(place, 0)] if self.jobs else []


@dataclass(slots=True)
class ExportedFiles:
    """What was written, and what Colmet's tables have no room for."""

    hdf5: Path
    mappings: list[Path] = field(default_factory=list)
    rows: dict[str, int] = field(default_factory=dict)
    left_out: dict[str, list[str]] = field(default_factory=dict)


class _Host(NamedTuple):
    """What is known of a subject on one host."""

    name: str
    tracks: list[Track]
    jobs: JobsThere | None = None

    @property
    def names(self) -> set[str]:
        return {track.series for track in self.tracks}


ShownNumbers = Callable[[Collection[int]], Mapping[int, int]]
"""Looks up the numbers that jobs of another cluster have there; those of our own are what they are."""


def _own_numbers(jobs: Collection[int]) -> Mapping[int, int]:
    return {job: job for job in jobs}


def export_jobs(
    places: SamplePlaces, jobs: Sequence[int], folder: Path, shown: ShownNumbers = _own_numbers
) -> ExportedFiles:
    """Write the files of these jobs into a folder; raise `NoSamples` before anything is written if one has nothing."""
    hdf5.load()
    names = shown(jobs)
    measured = {names.get(job, job): read_job_tracks(places, job) for job in jobs}
    spans = _spans(track for tracks in measured.values() for track in tracks)
    first = min(since for since, _ in spans.values())
    target = folder / f"colmet.{first // 1000}.hdf5"
    if target.exists():
        raise ConfigRefused(f"{target} is there already.", hint="Name another folder with -o.")
    _prepare(folder)
    nodes = [_read_host(places, node, *span, shown) for node, span in spans.items()]
    files = ExportedFiles(target)
    writer = _Writer(files, folder, first / 1000)
    with hdf5.replacing(target, folder) as path:
        writer.write(path, measured, nodes)
    return files


def _prepare(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigRefused(
            f"The folder {folder} cannot be made: {error.strerror}.", hint="Name another folder with -o."
        ) from None


def read_job_tracks(places: SamplePlaces, job: int) -> list[Track]:
    """Read all that is kept of a job, from its log or its file; raise `NoSamples` if there is nothing."""
    try:
        tracks = series.tracks_of(read_log(places.log(job).read_bytes()))
    except FileNotFoundError:
        kept = places.kept(job)
        tracks = hdf5.read_tracks(kept, _EVERYTHING, 0, _FOREVER) if kept else []
    if not tracks:
        raise series.no_curves(job)
    return tracks


def _spans(tracks: Iterable[Track]) -> dict[str, tuple[int, int]]:
    """Return from when to when (milliseconds) each node was measured."""
    spans: dict[str, tuple[int, int]] = {}
    for track in tracks:
        since, until = spans.get(track.node, (_FOREVER, 0))
        spans[track.node] = min(since, track.times[0]), max(until, track.times[-1])
    return dict(sorted(spans.items()))


def _read_host(places: SamplePlaces, node: str, since: int, until: int, shown: ShownNumbers) -> _Host:
    tracks: list[Track] = []
    changes: dict[int, list[int]] = {}
    for path in series.node_days(places, node, since, until):
        if path.suffix == ".h5":
            tracks += hdf5.read_tracks(path, _EVERYTHING, since, until)
            changes[int(day_of(path) * 1000)] = list(hdf5.read_about(path).get("involved_jobs", ()))
        else:
            content = read_log(path.read_bytes())
            tracks += series.tracks_of(content, since, until)
            changes |= {note.at: note.about["jobs"] for note in content.notes if "jobs" in note.about}
    names = shown({job for jobs in changes.values() for job in jobs})
    there = [sorted(names.get(job, job) for job in changes[at]) for at in sorted(changes)]
    return _Host(node, tracks, JobsThere(sorted(changes), there))


class _Writer:
    """Writes the tables of one export, and the mappings that they need."""

    def __init__(self, files: ExportedFiles, folder: Path, epoch: float) -> None:
        self._files, self._folder, self._epoch = files, folder, epoch

    def write(self, path: Path, jobs: Mapping[int, Sequence[Track]], nodes: Sequence[_Host]) -> None:
        h5py, _ = hdf5.load()
        events = counted_events({track.series for tracks in jobs.values() for track in tracks})
        with h5py.File(path, "w", libver=("earliest", "v110")) as file:
            for job, tracks in jobs.items():
                self._write_tables(file, job, JOB_TABLES, list(_hosts(tracks)), events)
            self._write_tables(file, 0, NODE_TABLES, nodes, ())

    def _write_tables(
        self, file: "h5py.File", job: int, backends: Iterable[str], hosts: Sequence[_Host], events: Sequence[str]
    ) -> None:
        for backend in backends:
            planned = [(host, plan_table(backend, host.names, events)) for host in hosts]
            plans = [(host, plan) for host, plan in planned if plan is not None]
            if plans:
                self._write_table(file.require_group(f"job_{job}"), job, backend, plans)
                self._write_mappings(backend, plans)

    def _write_table(
        self, group: "h5py.Group", job: int, backend: str, plans: Sequence[tuple[_Host, TablePlan]]
    ) -> None:
        _, np = hdf5.load()
        involved = records.LAYOUTS[backend][0].fields[-1] == records.INVOLVED_JOBS
        kind = np.dtype(_fields(plans[0][1].columns, involved=involved))
        name = f"{backend}{records.SUFFIX}"
        rows = [row for host, plan in plans for row in _records(host, plan, job, name, involved=involved)]
        if not rows:
            return
        rows.sort(key=lambda row: row[:2])
        table = group.create_dataset(
            name, data=np.array(rows, kind), chunks=(min(_CHUNK, len(rows)),), compression="gzip",
            compression_opts=_GZIP, shuffle=True,
        )  # fmt: skip
        table.attrs["TITLE"] = np.bytes_(f"Metrics for the Job {job}")
        table.attrs["metric_backend"] = name
        table.attrs["backend_version"] = BACKEND_VERSION
        self._files.rows[f"/job_{job}/{name}"] = len(rows)
        left_out = {what for _, plan in plans for what in plan.left_out}
        if left_out:
            self._files.left_out[name] = sorted({*self._files.left_out.get(name, ()), *left_out})

    def _write_mappings(self, backend: str, plans: Sequence[tuple[_Host, TablePlan]]) -> None:
        """Write a mapping beside the tables; where nodes differ, one in a folder of each node, as Colmet has them."""
        if backend not in _MAPPINGS:
            return
        name = f"{_MAPPINGS[backend]}.{self._epoch}.csv"
        same = len({plan.mapping for _, plan in plans}) == 1
        for host, plan in plans[:1] if same else plans:
            path = self._folder / name if same else self._folder / host.name / name
            path.parent.mkdir(exist_ok=True)
            path.write_text("".join(f"{line}\n" for line in plan.mapping))
            if path not in self._files.mappings:
                self._files.mappings.append(path)


def _hosts(tracks: Iterable[Track]) -> Iterator[_Host]:
    nodes: dict[str, list[Track]] = {}
    for track in tracks:
        nodes.setdefault(track.node, []).append(track)
    return (_Host(node, nodes[node]) for node in sorted(nodes))


def _fields(columns: Collection[str], *, involved: bool) -> list[tuple[str, str]]:
    name = f"S{records.NAME_BYTES}"
    counters = [(column, "<f4" if column in records.LOADS else "<i8") for column in columns]
    jobs = [(records.INVOLVED_JOBS, f"S{records.INVOLVED_BYTES}")] if involved else []
    return [("timestamp", "<i8"), ("hostname", name), ("job_id", "<i8"), ("metric_backend", name), *counters, *jobs]


def _records(host: _Host, plan: TablePlan, job: int, name: str, *, involved: bool) -> Iterator[tuple[Any, ...]]:
    floats = [column in records.LOADS for column in plan.columns]
    for row in rows_of(plan, host.tracks):
        values = [value if is_float else round(value) for value, is_float in zip(row.values, floats, strict=True)]
        jobs = [_jobs_text(host.jobs.at(row.at) if host.jobs else [])] if involved else []
        yield (row.at // 1000, host.name.encode(), job, name.encode(), *values, *jobs)


def _jobs_text(jobs: Sequence[int]) -> bytes:
    """Return jobs as JSON, as many as there is room for."""
    while len(text := json.dumps(jobs).encode()) > records.INVOLVED_BYTES:
        jobs = jobs[: len(jobs) * 9 // 10]
    return text
