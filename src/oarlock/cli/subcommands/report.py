"""oarlock report: what a job asked for, what it used, and what was found; as text, JSON or PDF."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import TYPE_CHECKING, Any

from oarlock.cli.output import show_text
from oarlock.client import Client, RequestRefused

if TYPE_CHECKING:
    import argparse

_ABOUT = (
    "Show the report of a job of yours, while it runs or when it is over: bars of what was used of what was asked for, "
    "its nodes, and what was found, with advice."
)
_PAUSE = 10


class _Reports(Client):
    """The client, with the verbs of reports."""

    def report(self, job: int) -> dict[str, Any]:
        """Return the report of a job."""
        response: dict[str, Any] = self._get(f"/jobs/{job}/report")
        return response

    def report_pdf(self, job: int) -> bytes:
        """Return the report of a job as PDF."""
        return self._download(f"/jobs/{job}/report.pdf")


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to those of `oarlock`."""
    parser = commands.add_parser("report", help="show what a job used of what it asked for", description=_ABOUT)
    parser.add_argument("job", metavar="JOB", type=int, help="the number of the job")
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
    client = _Reports(arguments.server)
    if arguments.pdf is not None:
        _save(client, arguments.job, arguments.pdf)
        return
    view = client.report(arguments.job)
    if arguments.json:
        print(json.dumps(view["report"]))
        return
    _show(view)
    while arguments.watch and not view["report"]["stop"]:
        time.sleep(_PAUSE)
        view = client.report(arguments.job)
        # Home and clear: a pipe gets one report after the other instead.
        sys.stdout.write("\033[H\033[2J" if sys.stdout.isatty() else "\n")
        _show(view)


def _show(view: dict[str, Any]) -> None:
    for line in view["text"]:
        show_text(line)


def _save(client: _Reports, job: int, name: str) -> None:
    content = client.report_pdf(job)
    try:
        fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    except OSError as problem:
        raise RequestRefused(
            f"{name} cannot be made: {problem.strerror}.", kind="BadFile", hint="Name another file."
        ) from None
    with os.fdopen(fd, "wb") as file:
        file.write(content)
    show_text(f"{name}: {len(content)} bytes.")
