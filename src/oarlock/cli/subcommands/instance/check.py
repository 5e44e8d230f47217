"""oarlock check: whether what the database says can be true."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oarlock.cli.output import show_text
from oarlock.client import Client

if TYPE_CHECKING:
    import argparse

    from oarlock.job.check.finding import CheckFinding

_ABOUT = (
    "Check what must be true of a database, whatever happened: no resource was given to two jobs at a time, every move "
    "of a job is a legal one, accounting is what jobs used, and more; the administrator's guide has the list. It only "
    "reads, also while the server runs. Ends with 0 if all holds, 1 with warnings, 2 if something is broken."
)


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to those of `oarlock`."""
    parser = commands.add_parser("check", help="check what must be true of the database", description=_ABOUT)
    parser.add_argument(
        "--state", metavar="DIR", type=Path, help="the state directory (default: that of OARLOCK_SERVER)"
    )
    parser.add_argument("--config", metavar="FILE", type=Path, help="the settings file")
    also = parser.add_mutually_exclusive_group()
    also.add_argument(
        "--repair", action="store_true", help="compute a wrong accounting again; refused while a server runs"
    )
    also.add_argument(
        "--live", action="store_true", help="also ask the running server's nodes what they run (administrators)"
    )
    parser.add_argument("-J", "--json", action="store_true", help="as JSON, for programs")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Check, show what was found, and return the exit code."""
    from oarlock.config import load
    from oarlock.job.check.finding import exit_code
    from oarlock.server import check
    from oarlock.server.instance import state_of_commands

    work = check.repair if arguments.repair else check.check
    place = arguments.state or state_of_commands()
    done = work(place, load(arguments.config).config, progress=_progress)
    _end_progress()
    findings = [*done.findings, *(_ask_nodes(place) if arguments.live else [])]
    code = exit_code(findings)
    if arguments.json:
        shown = {"jobs": done.jobs, "exit": code}
        print(json.dumps({**shown, "findings": _plain(findings), "repaired": _plain(done.repaired)}, indent=2))
        return code
    for finding in done.repaired:
        show_text(f"repaired  {finding.invariant:>2}  {finding.sentence}")
    for finding in findings:
        show_text(f"{finding.severity.name.lower():<8}  {finding.invariant:>2}  {finding.sentence}")
    word = {0: "all holds", 1: "there are warnings", 2: "something is broken"}[code]
    show_text(f"{done.jobs} jobs checked: {word}.")
    return code


class _LiveServer(Client):
    """The client, with the verb of the live check."""

    def check(self) -> list[dict[str, Any]]:
        """Return what nodes and database do not agree about."""
        findings: list[dict[str, Any]] = self._get("/check/live")["findings"]
        return findings


def _ask_nodes(state: Path) -> list[CheckFinding]:
    from oarlock.job.check.finding import CheckFinding, CheckSeverity

    return [
        CheckFinding(row["invariant"], row["sentence"], CheckSeverity[row["severity"].upper()], row["job"] or 0)
        for row in _LiveServer(str(state / "server.sock")).check()
    ]


def _plain(findings: list[CheckFinding]) -> list[dict[str, object]]:
    from oarlock.job.check.finding import INVARIANTS

    return [
        {
            "invariant": finding.invariant,
            "rule": INVARIANTS[finding.invariant],
            "severity": finding.severity.name.lower(),
            "job": finding.job or None,
            "sentence": finding.sentence,
        }
        for finding in findings
    ]


_WIDTH = 30


def _progress(done: int, total: int) -> None:
    """Draw a bar where somebody looks at it."""
    if sys.stderr.isatty():
        full = _WIDTH * done // max(total, 1)
        print(f"\r[{'#' * full}{'.' * (_WIDTH - full)}] {done} of {total} jobs", end="", file=sys.stderr, flush=True)


def _end_progress() -> None:
    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)
