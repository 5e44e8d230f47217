"""oarlock purge: move jobs that ended long ago to an archive file."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from oarlock.cli.layout.readable import instant
from oarlock.cli.output import show_text
from oarlock.client import Client

if TYPE_CHECKING:
    import argparse

_ABOUT = (
    "Move jobs that ended before a date from the database to an archive file in `past/` of the state directory, while "
    "the server runs. The commands still find them by number (`oarstat -j`, with `-f` and `-e`); `oarlock simulate` "
    "reads the file. Accounting, sums of days and energy stay. Left out are pinned jobs, jobs that others wait for, "
    "and arrays that are not over. Stopped half-way, it loses nothing; run it again. Administrators only."
)


class _PurgeClient(Client):
    """The client, with the verb of purges."""

    def purge(self, **fields: object) -> dict[str, Any]:
        """Move some jobs, or count them."""
        moved: dict[str, Any] = self._change("POST", "/jobs/purge", fields)
        return moved


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to those of `oarlock`."""
    parser = commands.add_parser("purge", help="move old jobs to an archive file", description=_ABOUT)
    parser.add_argument("--before", metavar="DATE", required=True, help="jobs that ended before YYYY-MM-DD [hh:mm:ss]")
    parser.add_argument("--name", metavar="NAME", help="what the archive is called (default: before-YYYY-MM-DD)")
    parser.add_argument("--dry-run", action="store_true", help="only say how many jobs that are")
    parser.add_argument("-J", "--json", action="store_true", help="as JSON, for programs")
    parser.add_argument("--server", metavar="ADDRESS", help="the server's socket, or http://NAME:PORT")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Move slice after slice."""
    client = _PurgeClient(arguments.server)
    before = instant(arguments.before, what="--before")
    request = {"before": before} | ({"name": arguments.name} if arguments.name else {})
    answer = client.purge(**request, count_only=True)
    moved = 0
    while answer["left"] and not arguments.dry_run:
        answer = client.purge(**request)
        moved += answer["moved"]
        if answer["left"]:
            print(f"oarlock: {moved} jobs moved, {answer['left']} left", file=sys.stderr, flush=True)
    if arguments.json:
        print(json.dumps({"moved": moved, "left": answer["left"], "archive": answer["archive"]}))
    elif arguments.dry_run:
        show_text(f"{answer['left']} jobs would be moved to {answer['archive']}.")
    else:
        show_text(f"{moved} jobs moved to {answer['archive']}." if moved else "No job ended before that date.")
