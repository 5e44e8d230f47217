"""oarlock report: what a job, a user or a project asked for, what was used, and what was found; text, JSON or PDF."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import TYPE_CHECKING, Any

from oarlock.cli.output import show_text
from oarlock.cli.subcommands.measurements.meter import since
from oarlock.client import Client, RequestRefused

if TYPE_CHECKING:
    import argparse

_ABOUT = (
    "Show the report of a job of yours, while it runs or when it is over: bars of what was used of what was asked for, "
    "its nodes, and what was found, with advice. Without a job: of all your jobs of some days, of another user or of a "
    "project, with the jobs that wasted most, findings counted, and the trend against the days before."
)
_PAUSE = 10


class _Reports(Client):
    """The client, with the verbs of reports."""

    def report(self, job: int, cluster: str | None) -> dict[str, Any]:
        """Return the report of a job."""
        response: dict[str, Any] = self._get(f"/jobs/{job}/report", cluster=cluster)
        return response

    def report_pdf(self, job: int, cluster: str | None) -> bytes:
        """Return the report of a job as PDF."""
        return self._download(f"/jobs/{job}/report.pdf", cluster=cluster)

    def period_report(self, **query: object) -> dict[str, Any]:
        """Return the report of a user or a project."""
        response: dict[str, Any] = self._get("/reports/period", **query)
        return response

    def period_report_pdf(self, **query: object) -> bytes:
        """Return the report of a user or a project as PDF."""
        return self._download("/reports/period.pdf", **query)


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to those of `oarlock`."""
    parser = commands.add_parser(
        "report", help="show what a job, a user or a project used of what was asked for", description=_ABOUT
    )
    parser.add_argument("job", metavar="JOB", type=int, nargs="?", help="the number of the job")
    parser.add_argument("-u", "--user", metavar="NAME", help="of all jobs of this user (administrators)")
    parser.add_argument("--project", metavar="NAME", help="of all jobs of this project; with -u, of that user in it")
    days = parser.add_mutually_exclusive_group()
    days.add_argument("--since", metavar="WHEN",
                      help="from then on: 12h, 7d, 4w, or YYYY-MM-DD [hh:mm:ss]; the default is 7d")  # fmt: skip
    days.add_argument("--month", metavar="YYYY-MM", help="the days of this month")
    parser.add_argument("--cluster", metavar="NAME",
                        help="a job of that cluster, whose agents send here, by the number it has there")  # fmt: skip
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--pdf", metavar="FILE", help="write a PDF to this new file")
    form.add_argument(
        "-w", "--watch", action="store_true", help=f"show it again every {_PAUSE} s until the job is over"
    )
    form.add_argument("-J", "--json", action="store_true", help="as JSON, for programs")
    parser.add_argument("--server", metavar="ADDRESS", help="the server's socket, or http://NAME:PORT")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Print the report, or write it to a file."""
    _check(arguments)
    client = _Reports(arguments.server)
    if arguments.pdf is not None:
        _save(client, arguments)
        return
    view = _ask(client, arguments)
    if arguments.json:
        print(json.dumps(view["report"]))
        return
    _show(view)
    while arguments.watch and not view["report"]["stop"]:
        time.sleep(_PAUSE)
        view = _ask(client, arguments)
        # Home and clear: a pipe gets one report after the other instead.
        sys.stdout.write("\033[H\033[2J" if sys.stdout.isatty() else "\n")
        _show(view)


def _check(arguments: argparse.Namespace) -> None:
    """Refuse options that belong to the report of a job beside those of many, and the other way round."""
    of_many = [("--user", arguments.user), ("--project", arguments.project), ("--since", arguments.since),
               ("--month", arguments.month)]  # fmt: skip
    of_job = [("--cluster", arguments.cluster), ("--watch", arguments.watch or None)]
    is_job = arguments.job is not None
    for option, value in of_many if is_job else of_job:
        if value is not None:
            wrong = "is not an option of the report of one job" if is_job else "needs the number of a job"
            way = "Leave out the number or the option." if is_job else "Write it before the option."
            raise RequestRefused(f"{option} {wrong}.", kind="BadRequest", hint=way)


def _query(arguments: argparse.Namespace) -> dict[str, object]:
    begin = None if arguments.since is None else since(arguments.since, now=time.time())
    return {"user": arguments.user, "project": arguments.project, "month": arguments.month, "since": begin}


def _ask(client: _Reports, arguments: argparse.Namespace) -> dict[str, Any]:
    if arguments.job is None:
        return client.period_report(**_query(arguments))
    return client.report(arguments.job, arguments.cluster)


def _show(view: dict[str, Any]) -> None:
    for line in view["text"]:
        show_text(line)


def _save(client: _Reports, arguments: argparse.Namespace) -> None:
    name = arguments.pdf
    if arguments.job is None:
        content = client.period_report_pdf(**_query(arguments))
    else:
        content = client.report_pdf(arguments.job, arguments.cluster)
    try:
        fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    except OSError as problem:
        raise RequestRefused(
            f"{name} cannot be made: {problem.strerror}.", kind="BadFile", hint="Name another file."
        ) from None
    with os.fdopen(fd, "wb") as file:
        file.write(content)
    show_text(f"{name}: {len(content)} bytes.")
