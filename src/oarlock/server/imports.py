"""Imports from other resource managers into the database of an instance whose server is stopped."""

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec import structs

from oarlock.config import Config
from oarlock.job.cluster_copy import SeatTable
from oarlock.lang.oar_quotas import OarQuotas, parse_quotas
from oarlock.lang.sacct import is_set, read_rows
from oarlock.lang.slurm_conf import parse_conf
from oarlock.model.errors import DatabaseRefused
from oarlock.model.source import SourceJob
from oarlock.server.backups import unpack_dump
from oarlock.server.instance import database_address, prepare_state_dir
from oarlock.server.sources.slurm_commands import accounted_job
from oarlock.store.engine.database import Database
from oarlock.store.engine.opening import open_database
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.cluster import cluster_copy
from oarlock.store.queries.site import administration, oar_import, slurm_import
from oarlock.store.queries.site.imported_rows import ImportCounts
from oarlock.store.queries.site.oar_reader import OAR_TABLES, OarReader, index_copy
from oarlock.store.sources.connections import ForeignDatabase, open_file, parse_address
from oarlock.store.sources.slurm import SlurmDatabase
from oarlock.store.sources.sql_dump import is_packed, load_dump

ReportProgress = Callable[[str], None]
_NO_OAR = "Name a dump of OAR's database, or postgresql://USER@HOST/DATABASE or mysql://USER@HOST/DATABASE."


@contextmanager
def open_instance(state_dir: Path, config: Config) -> Iterator[Database]:
    """Yield the database of an instance, made if there is none; refused while a server works on it."""
    prepare_state_dir(state_dir)
    marker = state_dir / "oarlock.db.created"
    with open_database(database_address(state_dir, config), create=True, marker=marker) as database:
        database.lock(now=int(time.time()))
        yield database


def import_oar(
    state_dir: Path,
    config: Config,
    source: str,
    *,
    password: str = "",
    quotas: Path | None = None,
    say: ReportProgress = lambda _line: None,
) -> ImportCounts:
    """Bring an OAR's database, live or dumped, into an instance. All of it or nothing; OAR's side is only read."""
    limits = None if quotas is None else _read_quotas(quotas)
    with _opened(source, password, say) as oar, oar.read() as read:
        reader, report = OarReader(read), ImportCounts()
        if reader.missing:
            raise DatabaseRefused(f"{source} has no table `{reader.missing[0]}`, so it is not OAR's.", hint=_NO_OAR)
        with open_instance(state_dir, config) as database:
            database.write(lambda tx: oar_import.import_all(tx, reader, report, say))
            if limits is not None:
                _take_quotas(database, limits, report)
    return report


@contextmanager
def _opened(source: str, password: str, say: ReportProgress) -> Iterator[ForeignDatabase]:
    if "://" in source:
        address = parse_address(source, password)
        oar = ForeignDatabase(address, "OAR's database")
        try:
            yield oar
        finally:
            oar.close()
        return
    file = Path(source)
    if not file.is_file():
        raise DatabaseRefused(f"There is no file {source}.", hint=_NO_OAR)
    with tempfile.TemporaryDirectory(prefix="oarlock-import-") as folder:
        copy = Path(folder) / "dump.db"
        say(f"reading {file}")
        if is_packed(file):
            unpack_dump(file, file := Path(folder) / file.name)
        load_dump(file, copy, OAR_TABLES)
        oar = open_file(copy, str(file))
        try:
            with oar.read() as tx:
                index_copy(tx)
            yield oar
        finally:
            oar.close()


def _read_quotas(file: Path) -> OarQuotas:
    try:
        return parse_quotas(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise DatabaseRefused(
            f"{file} cannot be read: {getattr(error, 'strerror', None) or error}.",
            hint="--quotas takes OAR 2's scheduler_quotas.conf.",
        ) from error


def _take_quotas(database: Database, limits: OarQuotas, report: ImportCounts) -> None:
    """Put OAR's quotas behind those that are here; one that is here already is not doubled."""
    with database.read() as tx:
        here = administration.numbered_quotas(tx)
    new = [rule for rule in limits.rules if rule not in here.values()]
    first = max(here, default=0) + 1
    database.write(lambda tx: administration.put_quotas(tx, here | dict(enumerate(new, first))))
    report.copied["quotas"] += len(new)
    report.present["quotas"] += len(limits.rules) - len(new)
    report.no_place += [f"quotas: `{line}` is no limit that can be read." for line in limits.strange]


_JOBS_AT_ONCE = 1000


def partition_rules(conf: Path) -> str:
    """Return admission rules in TOML that keep jobs of a queue on the nodes of its partition."""
    return slurm_import.restrict_to_partitions(parse_conf(_text(conf)))


def import_slurm(
    state_dir: Path,
    config: Config,
    *,
    conf: Path | None = None,
    sacct: Path | None = None,
    database: str | None = None,
    password: str = "",
    say: ReportProgress = lambda _line: None,
) -> ImportCounts:
    """Bring a slurm.conf, and the history of sacct's output or of slurmdbd, into an instance. All of it or nothing."""
    report = ImportCounts()
    declared = None if conf is None else parse_conf(_text(conf))
    past: list[SourceJob] = []
    if sacct is not None:
        past = list(_of_sacct(sacct, report))
    elif database is not None:
        past = _of_slurmdbd(database, password, report)
    past.sort(key=lambda job: (job.start, job.id))
    with open_instance(state_dir, config) as instance:

        def write(tx: Tx) -> None:
            if declared is not None:
                slurm_import.write_conf(tx, declared, report, at=int(time.time()))
            seats = SeatTable()
            seats.take_cores(cluster_copy.numbered(tx))
            for at in range(0, len(past), _JOBS_AT_ONCE):
                part = past[at : at + _JOBS_AT_ONCE]
                slurm_import.write_past(tx, [_seated(seats, job) for job in part], report)
                say(f"{at + len(part)} of {len(past)} jobs written")

        instance.write(write)
    return report


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DatabaseRefused(f"{file} cannot be read: {getattr(error, 'strerror', None) or error}.") from error


def _of_sacct(file: Path, report: ImportCounts) -> Iterator[SourceJob]:
    """Yield the jobs of sacct's output that are over; of a number that was used again, the last."""
    last: dict[int, SourceJob] = {}
    for row in read_rows(_text(file).splitlines(keepends=True)):
        if not is_set(row["End"]):
            report.no_place.append(f"job {row['JobIDRaw']} is {row['State']}; import again when it is over.")
            continue
        job = accounted_job(row)
        if job.id in last:
            report.no_place.append(f"job {job.id} of {last[job.id].user}: Slurm used its number again.")
        last[job.id] = job
    yield from last.values()


def _of_slurmdbd(address: str, password: str, report: ImportCounts) -> list[SourceJob]:
    """Read the jobs that are over through the views that `oarlock sources slurm --grant` makes."""
    source = SlurmDatabase(ForeignDatabase(parse_address(address, password), "slurmdbd"))
    try:
        past: list[SourceJob] = []
        cursor, complete = (0, 0), False
        while not complete:
            answer = source.ended(cursor, _JOBS_AT_ONCE)
            past += answer.jobs
            cursor, complete = answer.cursor, answer.complete
        if live := source.live():
            report.no_place.append(f"{len(live)} jobs are not over; import again when they are.")
    finally:
        source.close()
    return list({job.id: job for job in past}.values())


def _seated(seats: SeatTable, job: SourceJob) -> SourceJob:
    """Return a job with resources of ours, as far as its nodes are here; without any it keeps its dates alone."""
    seated = seats.seat(job)
    return seated if seated.resources else structs.replace(seated, assigned=0)
