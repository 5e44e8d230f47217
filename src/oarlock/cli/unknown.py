"""oarlock unknown: jobs that nodes run and that the database does not know."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from oarlock.cli import time_format
from oarlock.client import Client

if TYPE_CHECKING:
    import argparse

_ABOUT = (
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


def options(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to those of `oarlock`."""
    parser = commands.add_parser("unknown", help="jobs on nodes that the database does not know", description=_ABOUT)
    verbs = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    listing = verbs.add_parser("list", help="list them")
    listing.add_argument("-J", "--json", action="store_true", help="as JSON, for programs")
    listing.set_defaults(run=_list)
    ending = verbs.add_parser("end", help="end one; what it holds is free once its node says that it ended")
    ending.add_argument("number", metavar="NUMBER", type=int, help="its number, as `list` shows it")
    ending.set_defaults(run=_end)
    for verb in (listing, ending):
        verb.add_argument("--server", metavar="ADDRESS", help="the server's socket, or http://NAME:PORT")


def _list(arguments: argparse.Namespace) -> None:
    unknown_jobs = UnknownJobsClient(arguments.server).unknown()
    if arguments.json:
        print(json.dumps(unknown_jobs, indent=2))
        return
    for job in unknown_jobs:
        signed = f"generation {job['generation']}" if job["tag"] else "not signed by this server"
        whose = job["user"] or "an unknown user"
        since = time_format.date(job["since"])
        print(f"{job['id']:>4}  {job['node']}  job {job['job']} of {whose}, since {since} ({signed})")


def _end(arguments: argparse.Namespace) -> None:
    UnknownJobsClient(arguments.server).end_unknown(arguments.number)
    print(f"Unknown job {arguments.number} is told to end.")
