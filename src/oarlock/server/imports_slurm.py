"""Imports from Slurm: what slurm.conf declares, and the history of sacct's output or of slurmdbd."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

from msgspec import structs

from oarlock.config import Config
from oarlock.job.cluster_copy import SeatTable
from oarlock.lang.sacct import is_set, read_rows
from oarlock.lang.slurm_conf import parse_conf
from oarlock.model.errors import DatabaseRefused
from oarlock.model.source import SourceJob
from oarlock.server.imports import open_instance
from oarlock.server.sources.slurm_commands import accounted_job
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.cluster import cluster_copy
from oarlock.store.queries.site import slurm_import
from oarlock.store.queries.site.oar_import import ImportCounts
from oarlock.store.sources.connections import ForeignDatabase, parse_address
from oarlock.store.sources.slurm import SlurmDatabase

ReportProgress = Callable[[str], None]
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
