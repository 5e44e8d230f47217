"""`oarsub -I` and `oarsub -C`: the shell of an interactive job, and further shells in a job that runs."""

from __future__ import annotations

import os
import time
from functools import partial

from oarlock.cli.layout.readable import date
from oarlock.cli.sessions.session import SessionClient, SessionOutcome
from oarlock.cli.sessions.terminal import Left
from oarlock.client import RequestRefused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from oarlock.cli.output import CommandOutput
    from oarlock.cli.sessions.x11 import DisplayForwarding
    from oarlock.client import Client

_SLIP_SECONDS = 10
_NOT_BEGUN = "InteractiveEnded"
_ENDS = {"walltime": "its walltime is over", "killed": "it was deleted", "lost": "its node lost it"}


class ShellReport:
    """Prints what OAR's users read before their shell appears."""

    def __init__(self, job_id: int, out: CommandOutput) -> None:
        self._job_id, self._out = job_id, out
        self._start: int | None = None
        self.node = ""

    def take(self, event: dict[str, Any]) -> None:
        """Print what an event means, if it is news."""
        if event["event"] == "session":
            self.node = event["node"]
            self._out.line("Starting...")
            self._out.line(f"Connect to OAR job {self._job_id} via the node {self.node}")
        elif event.get("says"):
            self._out.note(event["says"])
        elif event.get("start") and self._is_another(event["start"]):
            self._start = event["start"]
            now = date(int(time.time()))
            self._out.line(f"[{now}] Start prediction: {date(event['start'])} ({event.get('message', '')})")
        self._out.flush()

    def _is_another(self, start: int) -> bool:
        """Whether a start is news: one that slips, as behind a job that ends late, slips by a second each second."""
        return self._start is None or start < self._start or start > self._start + _SLIP_SECONDS


def enter_new_job(client: Client, job_id: int, out: CommandOutput, display: DisplayForwarding | None = None) -> None:
    """Wait for an interactive job that was just submitted, and be its shell; Ctrl-C before that deletes it."""
    out.line("Interactive mode: waiting...")
    out.flush()
    report = ShellReport(job_id, out)

    def leave() -> None:
        if report.node:
            out.note(f"Job {job_id} was left; its shell is hung up.")
        else:
            _delete(client, job_id, out)

    try:
        outcome = _session(client, {"job": job_id, "main": True}, report, leave, display)
    except (KeyboardInterrupt, Left):
        out.fail("Interrupted")
        return
    _end(client, job_id, outcome, report, out)


def enter_running_job(
    client: Client, job_id: int, out: CommandOutput, display: DisplayForwarding | None = None
) -> None:
    """Open another shell in a job that runs; to leave it does not end the job."""
    report = ShellReport(job_id, out)
    try:
        left = partial(out.note, f"The shell in job {job_id} was left.")
        outcome = _session(client, {"job": job_id}, report, left, display)
    except RequestRefused as refused:
        if refused.kind == "UnknownJob":
            refused.kind = "JobNotRunning"
        raise
    except (KeyboardInterrupt, Left):
        out.fail("Interrupted")
        return
    _end(client, job_id, outcome, report, out)


def _session(
    client: Client,
    request: dict[str, Any],
    report: ShellReport,
    leave: Callable[[], None],
    display: DisplayForwarding | None,
) -> SessionOutcome:
    environment = {"TERM": os.environ["TERM"]} if os.environ.get("TERM") else {}

    def take(event: dict[str, Any]) -> None:
        report.take(event)
        if display is not None and event["event"] == "session":
            display.start(request["job"], report.node)  # who types is slower than that

    if display is not None:
        environment |= display.environment
    return SessionClient(client, {**request, "environment": environment}, take, leave).run()


def _end(client: Client, job_id: int, outcome: SessionOutcome, report: ShellReport, out: CommandOutput) -> None:
    """Print how it ended: the shell by itself, or the job around it."""
    why = outcome.says
    if outcome.status is not None:
        out.line(f"Connection to {report.node} closed.")
        why = _why(client, job_id, outcome.ended) if outcome.ended else ""
    if why:
        out.note(f"Job {job_id} ended: {why}.")
        out.fail(_NOT_BEGUN)
    if report.node:
        out.line()
        out.line(f"Disconnected from OAR job {job_id}.")


def _why(client: Client, job_id: int, ended: str) -> str:
    """Return why a job was ended; who asked for it stands in its events."""
    if ended == "killed":
        try:
            for event in client.events(job_id):
                if event["type"] == "FRAG_JOB_REQUEST":
                    return str(event["description"])
        except (RequestRefused, KeyError, TypeError):
            pass
    return _ENDS.get(ended, ended)


def _delete(client: Client, job_id: int, out: CommandOutput) -> None:
    out.line()
    [result] = client.delete({"ids": [job_id]})
    out.note(f"Interrupted. {result['says']}")
