"""What the collector is asked, and its answers: curves, files to download, what is kept.

A question is answered in the collector's process: reading HDF5, or a slow disk, costs the server nothing. An answer is
JSON, as the API passes it on.
"""

import csv
import os
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path

import msgspec
from msgspec import Struct

from oarlock.measure.collect import series
from oarlock.measure.collect.archive_import import ImportRefused, import_day, import_file
from oarlock.measure.collect.collector import Collector
from oarlock.measure.collect.files import hdf5
from oarlock.measure.collect.files.hdf5 import ArchivedJob, ArchiveUnavailable, Track
from oarlock.measure.collect.files.places import SamplePlaces
from oarlock.measure.collect.files.rowlog import read_log_file, survey_in_steps
from oarlock.measure.collect.files.steps import Steps, finish
from oarlock.measure.collect.series import MOST_POINTS, NoSamples, SeriesRange
from oarlock.model.errors import BadRequest, OarlockError

HDF5, CSV = "h5", "csv"
_MOST_IN_CSV = 5_000_000  # values: a table of text is made in memory


class JobCurves(Struct, frozen=True, tag=True):
    """Asks for curves of a job; answered by a `SeriesView`. `began` and `ended` are the job's, 0 if it did not yet.

    A job of another cluster has the number that its manager gave it as `label`.
    """

    job: int
    metrics: list[str] = []
    since: float | None = None
    until: float | None = None
    points: int = MOST_POINTS
    began: float = 0
    ended: float = 0
    cluster: str = ""
    label: str = ""


class NodeCurves(Struct, frozen=True, tag=True):
    """Asks for curves of a node; answered by a `SeriesView`."""

    node: str
    now: float
    metrics: list[str] = []
    since: float | None = None
    until: float | None = None
    points: int = MOST_POINTS


class JobFile(Struct, frozen=True, tag=True):
    """Asks for all samples of a job as a file; answered by a `FileView`. `ended` is when the job did, 0 if not yet."""

    job: int
    form: str = HDF5
    metrics: list[str] = []
    since: float | None = None
    until: float | None = None
    ended: float = 0


class MeasuredSoFar(Struct, frozen=True, tag=True):
    """Asks what samples said so far of jobs that run; answered by a `MeasuredJob` for each that was sampled."""

    jobs: list[int]


class SchedulerFigures(Struct, frozen=True, tag=True):
    """Asks what an exporter reports about a scheduler; answered by a `SchedulerFiguresView`, by portals alone."""

    now: float
    since: float


class UserShare(Struct, frozen=True):
    """The LevelFS of a user, in one of its accounts; `account` is empty where the exporter tells none."""

    user: str
    account: str
    level: float


class SchedulerFiguresView(Struct, frozen=True):
    """What a cluster has of cores and GPUs (`alloc`, `idle`, `other`, `total`), nodes by state, and LevelFS by account.

    A LevelFS above 1 is of an account, or of a user within it (`user_shares`), that got less than its share.
    `allocated` and `total` are cores over `times`.
    """

    cores: dict[str, float] = {}
    gpus: dict[str, float] = {}
    nodes: dict[str, int] = {}
    shares: dict[str, float] = {}
    user_shares: list[UserShare] = []
    times: list[float] = []
    allocated: list[float | None] = []
    total: list[float | None] = []


class FileView(Struct, frozen=True):
    """A file that was made or is kept. A `temporary` one belongs to whoever asked."""

    path: str
    temporary: bool
    form: str


class ImportFetched(Struct, frozen=True, tag=True):
    """Asks to keep a file that was fetched as the file of a job; answered by an `ImportedFile`."""

    job: int
    path: str


class ImportFetchedDay(Struct, frozen=True, tag=True):
    """Asks to keep a file that was fetched as that of a node's day (epoch seconds); answered by an `ImportedDay`."""

    node: str
    day: float
    path: str


class FileSizes(Struct, frozen=True, tag=True):
    """Asks how large the files of jobs are; answered by a size for each job that has measurements."""

    jobs: list[int]


QuickQuestion = NodeCurves | ImportFetched | ImportFetchedDay | FileSizes | MeasuredSoFar | SchedulerFigures
Question = QuickQuestion | JobCurves | JobFile
Describe = Callable[[Collection[int]], Mapping[int, ArchivedJob]]
"""Looks up jobs in the database."""

REFUSALS: Mapping[str, type[OarlockError]] = {
    kind.__name__: kind for kind in (NoSamples, BadRequest, ArchiveUnavailable, hdf5.DamagedArchive, ImportRefused)
}
"""Refusals that travel from the collector to whoever asked."""


def answer(collector: Collector, question: Question, describe: Describe) -> bytes:
    """Answer a question; raise `OarlockError` for what there is not."""
    return finish(answer_in_steps(collector, question, describe))


def answer_in_steps(collector: Collector, question: Question, describe: Describe) -> Steps[bytes]:
    """Answer a question as `answer` does; the file of a job, which may be large, a few megabytes at a time."""
    match question:
        case JobFile():
            file = yield from _file(collector, question, describe)
            return msgspec.json.encode(file)
        case JobCurves():
            view = yield from series.read_in_steps(
                collector.places, question.job, _range(question), live=collector.written,
                read_copy=partial(collector.sums.curves, question.job),
            )  # fmt: skip
            return msgspec.json.encode(view)
        case _:
            return _answer_at_once(collector, question, describe)


def _answer_at_once(collector: Collector, question: QuickQuestion, describe: Describe) -> bytes:
    match question:
        case NodeCurves():
            return msgspec.json.encode(
                series.read_node(collector.places, question.node, _range(question), now=question.now)
            )
        case MeasuredSoFar():
            sums = {job: collector.sums.measured(job) for job in question.jobs}
            return msgspec.json.encode({job: measured for job, measured in sums.items() if measured is not None})
        case ImportFetched():
            imported = import_file(
                collector.places, Path(question.path), lambda job: describe([job]).get(job), expected=question.job
            )
            return msgspec.json.encode(imported)
        case ImportFetchedDay():
            return msgspec.json.encode(import_day(collector.places, Path(question.path), question.node, question.day))
        case FileSizes():
            return msgspec.json.encode(_sizes(collector, question.jobs))
        case SchedulerFigures():
            raise no_figures()


def no_figures() -> NoSamples:
    """Return the refusal where no exporter reports about a scheduler."""
    return NoSamples("No slurm-exporter is read here.", hint="A portal with PROMETHEUS_URL reads one.")


def _range(question: JobCurves | NodeCurves) -> SeriesRange:
    return SeriesRange(question.metrics, question.since, question.until, question.points)


def _file(collector: Collector, question: JobFile, describe: Describe) -> Steps[FileView]:
    """Return the file of a job that is over, or make one of what is logged so far."""
    places, job = collector.places, question.job
    log = places.log(job)
    form = question.form if hdf5.is_available() else CSV
    if form == HDF5 and (kept := _kept(places, job)) is not None:
        return kept
    target = places.temporary / f"{job}.{os.getpid()}.{collector.next_number()}.{form}"
    if form == CSV:
        _write_csv(target, _tracks(collector, question))
        return FileView(str(target), temporary=True, form=form)
    try:
        content = yield from survey_in_steps(log)
        about = describe([job]).get(job, ArchivedJob(job))
        yield from hdf5.write_in_steps(target, places.temporary, about, content)
    except FileNotFoundError:
        if (kept := _kept(places, job)) is not None:  # its file was made meanwhile
            return kept
        raise series.no_curves(job) from None
    return FileView(str(target), temporary=True, form=form)


def _kept(places: SamplePlaces, job: int) -> FileView | None:
    """Return the file of a job that is over; None while it has a log."""
    kept = places.kept(job)
    return None if kept is None or places.log(job).exists() else FileView(str(kept), temporary=False, form=HDF5)


def _sizes(collector: Collector, jobs: Collection[int]) -> dict[int, int]:
    sizes = {}
    for job in jobs:
        for path in (collector.places.kept(job), collector.places.log(job)):
            if path is not None and path.exists():
                sizes[job] = path.stat().st_size
                break
    return sizes


def _tracks(collector: Collector, question: JobFile) -> list[Track]:
    """Read all samples of a job, or those that are wanted, from its log or its file."""
    places, job = collector.places, question.job
    wanted = SeriesRange(question.metrics, question.since, question.until)
    choose = series.chooser(question.metrics, "job", named=True) if question.metrics else lambda _series: True
    since, until = series.span(wanted)
    try:
        content = read_log_file(
            places.log(job), lambda names: tuple(filter(choose, names)), inside=(since, until),
            watch=series.refuse_above(_MOST_IN_CSV),
        )  # fmt: skip
        return series.tracks_of(content, since, until)
    except FileNotFoundError:
        pass
    try:
        check = series.refuse_count_above(_MOST_IN_CSV)
        return hdf5.read_tracks(places.kept(job) or places.archived(job), choose, since, until, check=check)
    except FileNotFoundError:
        raise series.no_curves(job) from None


def _write_csv(target: Path, tracks: Collection[Track]) -> None:
    """Write a line a node and instant, a column a series; what was not measured is empty."""
    columns = list(dict.fromkeys(track.series for track in tracks))
    rows: dict[tuple[int, str], dict[str, float]] = {}
    for track in tracks:
        for at, value in zip(track.times, track.mean, strict=True):
            rows.setdefault((at, track.node), {})[track.series] = value
    with os.fdopen(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(["time", "node", *columns])
        for (at, node), values in sorted(rows.items()):
            lines.writerow([f"{at / 1000:.3f}", node, *(values.get(column, "") for column in columns)])
