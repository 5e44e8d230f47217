"""oarlock archive: what is kept of measurements, whether it can be read, thinning by hand, files that come back."""

from __future__ import annotations

import json
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oarlock.cli.layout.progress import ProgressBar
from oarlock.cli.layout.usage import size
from oarlock.cli.output import show_text
from oarlock.client import Client, RequestRefused
from oarlock.minimal_http import quoted

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from oarlock.config import Config
    from oarlock.measure.collect.files.places import SamplePlaces
    from oarlock.store.engine.database import Database
    from oarlock.store.engine.tx import Tx

_ABOUT = (
    "Look after the measurements of an instance: the files below `samples` in its state directory. These commands read "
    "and write the files themselves, on the server's machine, while the server runs or not."
)
_PIN = (
    "Keep the file of a job of yours as it is: it is neither thinned nor deleted until you unpin it. All that you pin "
    "may have ARCHIVE_PIN_QUOTA together."
)
_IMPORT = (
    "Take the HDF5 file of a job back into the archive. Every value is read and checked, and what it holds is written "
    "to a new file; what is said about the job comes from the database. A file that is damaged, of another job, or of "
    "a job that has its measurements here already is refused."
)
_EXPORT = (
    "Write what is kept of jobs, live ones included, in forms of other programs. What is kept stays as it is. With "
    "--colmet: one file `colmet.<epoch>.hdf5` with the tables of Colmet's collector, and its mapping files beside. -1 "
    "is what was not measured, 0 a counter that the processor lacks. Colmet has five columns for events, six for "
    "temperatures and 24 for energy: what does not fit is named. With --parquet: a file of summaries, a row a job that "
    "ended in that month (UTC), and two of series, of jobs and of nodes, with the least, the mean and the most of 5 "
    "minutes."
)


class _Pins(Client):
    """The client, with the verbs about pinned files."""

    def pin(self, job: int, cluster: str | None) -> dict[str, Any]:
        """Pin the file of a job."""
        wanted = {"id": job} if cluster is None else {"id": job, "cluster": cluster}
        response: dict[str, Any] = self._change("POST", "/jobs/pin", wanted)
        return response

    def unpin(self, job: int, cluster: str | None) -> None:
        """Remove the pin of a job."""
        self._change("DELETE", f"/jobs/{job}/pin" + ("" if cluster is None else f"?cluster={quoted(cluster)}"))

    def pins(self) -> dict[str, Any]:
        """Return the pinned files."""
        response: dict[str, Any] = self._get("/pins")
        return response


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to those of `oarlock`."""
    parser = commands.add_parser("archive", help="what is kept of measurements, and its health", description=_ABOUT)
    verbs = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    showing = verbs.add_parser("status", help="count files and bytes")
    showing.set_defaults(run=_status)
    checking = verbs.add_parser("check", help="read every file to its end; ends with 2 if one is damaged")
    checking.set_defaults(run=_check)
    thinning = verbs.add_parser("thin", help="thin and delete what is due by the settings, now")
    thinning.add_argument(
        "--keep-days", metavar="N", type=int, help="thin what is older than so many days (0: nothing)"
    )
    thinning.set_defaults(run=_thin)
    importing = verbs.add_parser("import", help="take a file of a job back", description=_IMPORT)
    importing.add_argument("file", metavar="FILE", type=Path, help="the HDF5 file")
    importing.set_defaults(run=_import)
    exporting = verbs.add_parser("export", help="write copies in forms of other programs", description=_EXPORT)
    forms = exporting.add_mutually_exclusive_group(required=True)
    forms.add_argument("--colmet", metavar="JOB", type=int, nargs="+",
                       help="these jobs, and their nodes meanwhile, as Colmet's tables and mapping files")  # fmt: skip
    exporting.add_argument("--cluster", metavar="NAME",
                           help="jobs of that cluster, whose nodes send here, by their numbers there")  # fmt: skip
    forms.add_argument("--parquet", metavar="MONTH",
                       help="the jobs that ended in a month (2026-10), for DuckDB, Polars and the like")  # fmt: skip
    exporting.add_argument("-o", "--output", metavar="DIR", type=Path, required=True, help="the folder to write into")
    exporting.set_defaults(run=_export)
    for verb in (showing, checking, thinning, importing, exporting):
        add_place(verb)
    _add_pins(verbs)


def _add_pins(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the commands that ask the server, for every user."""
    pinning = verbs.add_parser("pin", help="keep the file of a job of yours whole", description=_PIN)
    pinning.set_defaults(run=_pin)
    unpinning = verbs.add_parser("unpin", help="let it be thinned and deleted in its time")
    unpinning.set_defaults(run=_unpin)
    listing = verbs.add_parser("pins", help="list the files that you have pinned; for administrators, all")
    listing.set_defaults(run=_pins)
    for verb in (pinning, unpinning):
        verb.add_argument("job", metavar="JOB", type=int, help="the number of the job")
        verb.add_argument("--cluster", metavar="NAME", help="a job of that cluster, whose nodes send here")
    for verb in (pinning, listing):
        verb.add_argument("-J", "--json", action="store_true", help="as JSON, for programs")
    for verb in (pinning, unpinning, listing):
        verb.add_argument("--server", metavar="ADDRESS", help="the server's socket, or http://NAME:PORT")


def add_place(parser: argparse.ArgumentParser) -> None:
    """Add the options of every command that reads the files itself."""
    parser.add_argument("--state", metavar="DIR", type=Path, help="the state directory")
    parser.add_argument("--config", metavar="FILE", type=Path, help="the settings file")
    parser.add_argument("-J", "--json", action="store_true", help="as JSON, for programs")


def find_place(arguments: argparse.Namespace) -> tuple[SamplePlaces, Config]:
    """Return where the files are, and the settings."""
    from oarlock.config import load
    from oarlock.measure.collect.files.places import SamplePlaces
    from oarlock.server.instance import state_of_commands

    root = (arguments.state or state_of_commands()) / "samples"
    if not root.is_dir():
        raise RequestRefused(
            f"There are no measurements at {root}.", kind="NoSamples", hint="Name the state directory with --state."
        )
    return SamplePlaces(root), load(arguments.config).config


@contextmanager
def opened_database(places: SamplePlaces, config: Config) -> Iterator[Database]:
    """Open the database beside the measurements, to read it."""
    from oarlock.server.instance import database_address
    from oarlock.store.engine.database import Database
    from oarlock.store.engine.opening import parse_address

    address = parse_address(database_address(places.root.parent, config))
    if isinstance(address, Path) and not address.exists():
        raise RequestRefused(
            f"There is no database at {address}.", kind="NoDatabase", hint="Name the state directory with --state."
        )
    with Database(address) as database:
        yield database


def _status(arguments: argparse.Namespace) -> None:
    from oarlock.measure.collect import retention

    kinds = retention.status(find_place(arguments)[0])
    if arguments.json:
        print(json.dumps([{"kind": kept.kind, "files": kept.files, "bytes": kept.bytes} for kept in kinds], indent=2))
        return
    for kept in kinds:
        show_text(f"{kept.kind:<14} {kept.files:>8} files  {size(kept.bytes):>10}")


def _check(arguments: argparse.Namespace) -> None:
    from oarlock.measure.collect import retention

    damaged: list[str] = []
    places, _ = find_place(arguments)
    with ProgressBar(retention.count_files(places), wanted=not arguments.json) as bar:
        count = retention.check(places, damaged.append, lambda done: bar.show("checked", done))
    if arguments.json:
        print(json.dumps({"files": count, "damaged": damaged}, indent=2))
    for line in [] if arguments.json else damaged:
        show_text(line)
    if damaged:
        raise RequestRefused(
            f"{len(damaged)} of {count} files cannot be read whole.",
            kind="DamagedArchive",
            hint="Rows at the end of a log are cut off at the next start of the server; take others from a backup.",
        )
    if not arguments.json:
        show_text(f"All {count} files are whole.")


def _thin(arguments: argparse.Namespace) -> None:
    import time

    from msgspec.structs import replace

    from oarlock.measure.collect.files.hdf5 import ArchiveUnavailable, is_available
    from oarlock.measure.collect.retention import Retention, count_files
    from oarlock.server.collecting.bookkeeping import retention_policy

    places, config = find_place(arguments)
    if not is_available():
        raise ArchiveUnavailable
    policy = retention_policy(config)
    if arguments.keep_days is not None:
        policy = replace(policy, full_days=arguments.keep_days)
    pinned = partial(_pinned_jobs, places, config)
    changes: list[str] = []
    with ProgressBar(total := count_files(places), wanted=not arguments.json) as bar:
        for done, change in enumerate(Retention(places, policy, pinned=pinned).run(now=time.time())):
            bar.show("thinned", min(done, total))
            changes += [change] if change else []
    if arguments.json:
        print(json.dumps({"changes": changes}, indent=2))
        return
    for change in changes:
        show_text(change)
    show_text(f"{len(changes)} files changed.")


def _pinned_jobs(places: SamplePlaces, config: Config) -> frozenset[int]:
    from oarlock.store.queries.usage import pins

    with opened_database(places, config) as database, database.read() as tx:
        return pins.jobs(tx)


def _import(arguments: argparse.Namespace) -> None:
    from msgspec.structs import asdict

    from oarlock.measure.collect import jobs
    from oarlock.measure.collect.archive_import import import_file

    places, config = find_place(arguments)
    with opened_database(places, config) as database, database.read() as tx:
        imported = import_file(places, arguments.file, lambda job: jobs.describe_jobs(tx, [job]).get(job))
    if arguments.json:
        print(json.dumps(asdict(imported), indent=2))
    else:
        show_text(f"{imported.path}: job {imported.job}, {imported.rows} rows.")


def _number_here(tx: Tx, cluster: str, job: int) -> int:
    """Return our number of a job of another cluster."""
    from oarlock.store.queries.job import agent_jobs

    stored = agent_jobs.find(tx, cluster, str(job))
    if stored is None:
        raise RequestRefused(
            f"No node reported a job {job} of the cluster {cluster}.", kind="NotFound", hint="Check the cluster's name."
        )
    return stored.number


def _export(arguments: argparse.Namespace) -> None:
    if arguments.parquet is not None:
        _export_parquet(arguments)
    else:
        _export_colmet(arguments)


def _export_parquet(arguments: argparse.Namespace) -> None:
    from msgspec.structs import asdict

    from oarlock.measure.collect import retention
    from oarlock.measure.collect.files import parquet
    from oarlock.store.queries.usage import export

    places, config = find_place(arguments)
    month = parquet.parse_month(arguments.parquet)
    with (
        opened_database(places, config) as database,
        database.read() as tx,
        ProgressBar(retention.count_files(places), wanted=not arguments.json) as bar,
    ):
        parts = export.ended_jobs(tx, since=month.since, until=month.until)
        others = export.ended_agent_jobs(tx, since=month.since, until=month.until)
        jobs = parquet.MonthlyJobs(export.summary_columns(), parts, others)
        made = parquet.export_month(places, month, jobs, arguments.output, lambda done: bar.show("read", done))
    if arguments.json:
        print(json.dumps({"files": [asdict(file) for file in made.files], "damaged": made.damaged}, indent=2))
    for file in [] if arguments.json else made.files:
        show_text(f"{file.path}: {file.rows} rows.")
    if made.damaged:
        raise RequestRefused(
            f"{len(made.damaged)} files could not be read, and are left out: {made.damaged[0]}",
            kind="DamagedArchive",
            hint="`oarlock archive check` names them all.",
        )


def _export_colmet(arguments: argparse.Namespace) -> None:
    from oarlock.measure.colmet.export import export_jobs

    places, config = find_place(arguments)
    jobs = list(dict.fromkeys(arguments.colmet))
    if arguments.cluster is None:
        files = export_jobs(places, jobs, arguments.output)
    else:
        from oarlock.store.queries.job import agent_jobs

        with opened_database(places, config) as database, database.read() as tx:
            numbers = [_number_here(tx, arguments.cluster, job) for job in jobs]
            files = export_jobs(places, numbers, arguments.output, lambda some: agent_jobs.numbers_there(tx, some))
    if arguments.json:
        print(json.dumps({"file": str(files.hdf5), "mappings": [str(path) for path in files.mappings],
                          "rows": files.rows, "left_out": files.left_out}, indent=2))  # fmt: skip
        return
    show_text(f"{files.hdf5}: {sum(files.rows.values())} rows in {len(files.rows)} tables.")
    for path in files.mappings:
        show_text(str(path))
    for table, names in files.left_out.items():
        show_text(f"Left out, since {table} has no more columns: {', '.join(names)}.")


def _pin(arguments: argparse.Namespace) -> None:
    pinned = _Pins(arguments.server).pin(arguments.job, arguments.cluster)
    if arguments.json:
        print(json.dumps(pinned, indent=2))
    else:
        show_text(f"Job {arguments.job} is pinned: {size(pinned['bytes'])}.")


def _unpin(arguments: argparse.Namespace) -> None:
    _Pins(arguments.server).unpin(arguments.job, arguments.cluster)
    show_text(f"Job {arguments.job} is not pinned any more.")


def _pins(arguments: argparse.Namespace) -> None:
    from oarlock.cli.layout.readable import date

    listed = _Pins(arguments.server).pins()
    if arguments.json:
        print(json.dumps(listed, indent=2))
        return
    for pin in listed["pins"]:
        show_text(f"{pin['job_id']:>10}  {size(pin['bytes']):>10}  {pin['user']:<12} {date(pin['date'])}")
    total = sum(pin["bytes"] for pin in listed["pins"])
    show_text(f"{len(listed['pins'])} files, {size(total)}; a user may pin {size(listed['quota_bytes'])}.")
