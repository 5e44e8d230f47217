"""oarlock backup, restore, migrate and unknown: copies of a database, its older forms, and jobs it does not know."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oarlock.cli.layout import readable
from oarlock.client import Client

if TYPE_CHECKING:
    import argparse

    from oarlock.config import Loaded


_BACKUP = (
    "Copy the database of an instance to FILE, whole and checked, while its server runs or not. FILE is replaced when "
    "the copy is on disk. FILE.site.tar beside it has settings, the secrets and rules that they name, and keys. With "
    "PostgreSQL this calls pg_dump."
)
_RESTORE = (
    "Put a backup in the place of the database of an instance. Stop the server first: while one runs this is refused. "
    "The database that was there is kept beside. What was done since the backup is lost, and the next server begins a "
    "new generation: jobs that nodes still run and that the backup does not know are named and held (see `oarlock "
    "unknown`). Settings and keys of FILE.site.tar come back where they are missing; one that differs is written "
    "beside. With PostgreSQL this calls pg_restore, and the old tables stay in a schema of their own."
)


_MIGRATE = (
    "Bring the tables of an instance back to those of an older release, so that this release runs again on the same "
    "jobs: after an upgrade that has to be taken back. Stop the server first: while one runs this is refused. Running "
    "jobs go on. What only the newer tables hold is lost. The way forward needs no command: a newer server brings "
    "the tables up to date when it starts. With SQLite a copy of the database is kept beside it; with PostgreSQL "
    "make a backup first."
)


def options(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the commands to those of `oarlock`."""
    _unknown_options(commands)
    copying = commands.add_parser("backup", help="copy the database, also while the server runs", description=_BACKUP)
    copying.set_defaults(run=_backup)
    restoring = commands.add_parser("restore", help="put a backup in the place of the database", description=_RESTORE)
    restoring.set_defaults(run=_restore)
    copying.add_argument("--samples", action="store_true", help="also samples, reports and archives of purged jobs")
    migrating = commands.add_parser("migrate", help="bring the tables back to an older release", description=_MIGRATE)
    migrating.set_defaults(run=_migrate)
    migrating.add_argument("--down-to", metavar="VERSION", required=True, help="the release, as 0.1.0")
    for command in (copying, restoring):
        command.add_argument("file", metavar="FILE", type=Path, help="the copy")
    for command in (copying, restoring, migrating):
        command.add_argument(
            "--state", metavar="DIR", type=Path, help="the state directory (default: that of OARLOCK_SERVER)"
        )
        command.add_argument("--config", metavar="FILE", type=Path, help="the settings file")
        command.add_argument("-J", "--json", action="store_true", help="as JSON, for programs")


def _place(arguments: argparse.Namespace) -> tuple[Path, Loaded]:
    from oarlock.config import load
    from oarlock.server.instance import state_of_commands

    return arguments.state or state_of_commands(), load(arguments.config)


def _say(line: str) -> None:
    print(f"oarlock: {line}", file=sys.stderr, flush=True)


def _backup(arguments: argparse.Namespace) -> None:
    from dataclasses import asdict

    from oarlock.server import backups

    state, loaded = _place(arguments)
    made = backups.backup(state, loaded.config, arguments.file, _say)
    count = backups.save_site_files(arguments.file, loaded, state, samples=arguments.samples)
    if arguments.json:
        print(json.dumps({**asdict(made), "site_files": count}, indent=2))
        return
    print(f"{made.file}: {made.jobs} jobs, {made.bytes} bytes.")
    what = "settings, keys and samples" if arguments.samples else "settings and keys"
    print(f"{backups.site_archive_of(arguments.file)}: {count} files of {what}.")


def _restore(arguments: argparse.Namespace) -> None:
    from dataclasses import asdict

    from oarlock.server import backups

    state, loaded = _place(arguments)
    done = backups.restore(state, loaded.config, arguments.file, _say)
    site = backups.restore_site_files(arguments.file, state)
    if arguments.json:
        print(json.dumps({**asdict(done), **site._asdict()}, indent=2))
        return
    print(f"{done.file} is in place; the server may be started.")
    if done.kept:
        print(f"What was there is kept as {done.kept}.")
    if site.restored:
        print(f"{len(site.restored)} files of settings, keys and samples were missing and are back.")
    for path in site.aside:
        print(f"{path}: differs from what is there, which was left as it is.")


def _migrate(arguments: argparse.Namespace) -> None:
    from dataclasses import asdict

    from oarlock.server import backups

    state, loaded = _place(arguments)
    done = backups.step_back(state, loaded.config, arguments.down_to)
    if arguments.json:
        print(json.dumps(asdict(done), indent=2))
        return
    if done.before == done.form:
        print(f"The tables are those of Oarlock {done.release} already (form {done.form}).")
        return
    print(f"The tables are those of Oarlock {done.release} again (form {done.form}, they had {done.before}).")
    if done.copy:
        print(f"The database as it was is kept as {done.copy}.")
    print(f"Install Oarlock {done.release} now, and start its server.")


_UNKNOWN = (
    "After a restore, or where a new instance uses the nodes of an old one, nodes may still run jobs that the database "
    "does not know. Their resources are held until they end. Administrators only."
)


class UnknownJobsClient(Client):
    """The client, with the verbs about unknown jobs."""

    def unknown(self) -> list[dict[str, Any]]:
        """List them."""
        unknown_jobs: list[dict[str, Any]] = self._get("/unknown")["unknown"]
        return unknown_jobs

    def end_unknown(self, number: int) -> None:
        """End one."""
        self._change("DELETE", f"/unknown/{number}")


def _unknown_options(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser("unknown", help="jobs on nodes that the database does not know", description=_UNKNOWN)
    verbs = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    listing = verbs.add_parser("list", help="list them")
    listing.add_argument("-J", "--json", action="store_true", help="as JSON, for programs")
    listing.set_defaults(run=_list_unknown)
    ending = verbs.add_parser("end", help="end one; what it holds is free once its node says that it ended")
    ending.add_argument("number", metavar="NUMBER", type=int, help="its number, as `list` shows it")
    ending.set_defaults(run=_end_unknown)
    for verb in (listing, ending):
        verb.add_argument("--server", metavar="ADDRESS", help="the server's socket, or http://NAME:PORT")


def _list_unknown(arguments: argparse.Namespace) -> None:
    unknown_jobs = UnknownJobsClient(arguments.server).unknown()
    if arguments.json:
        print(json.dumps(unknown_jobs, indent=2))
        return
    for job in unknown_jobs:
        signed = f"generation {job['generation']}" if job["tag"] else "not signed by this server"
        whose = job["user"] or "an unknown user"
        since = readable.date(job["since"])
        print(f"{job['id']:>4}  {job['node']}  job {job['job']} of {whose}, since {since} ({signed})")


def _end_unknown(arguments: argparse.Namespace) -> None:
    UnknownJobsClient(arguments.server).end_unknown(arguments.number)
    print(f"Unknown job {arguments.number} is told to end.")
