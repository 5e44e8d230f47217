"""oaraccounting: account for jobs that are over."""

from __future__ import annotations

from oarlock.cli import output
from oarlock.cli.options import CommandOptions
from oarlock.client import RequestRefused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from oarlock.cli.options import ParsedOptions
    from oarlock.cli.output import CommandOutput
    from oarlock.client import Client

OPTIONS = CommandOptions(
    "oaraccounting",
    "Account for the jobs that ended since the last time (administrators).",
    usage=("", "--reinitialize", "--delete-before SECONDS"),
    about="`oarstat --accounting` shows what was accounted for.",
)
OPTIONS.flag("--reinitialize", "forget everything that was accounted for, and take all jobs again")
OPTIONS.number("--delete-before=SECONDS", "drop what is older than so many seconds")
OPTIONS.end()
OPTIONS.example("oaraccounting --delete-before 2678400", "keep 31 days")


def main() -> int:
    """Run the command."""
    return output.main(OPTIONS, run)


def run(client: Client, parsed: ParsedOptions, out: CommandOutput) -> None:
    """Account, or forget."""
    seconds = parsed.number("delete_before")
    if parsed.words or (seconds is not None and parsed.given("reinitialize")):
        raise RequestRefused(
            "Only one of --reinitialize and --delete-before can be given, and nothing else.",
            kind="BadOption",
            hint="`oaraccounting` alone accounts for new jobs.",
        )
    if seconds is not None:
        out.line(f"Deleting records older than {seconds} seconds ago...")
        client.account({"delete_before": seconds})
        return
    done = client.account({"reinitialize": True} if parsed.given("reinitialize") else {})
    for line in _bookings(done["bookings"]):
        out.line(line)


def _bookings(bookings: list[Any]) -> Iterator[str]:
    """Yield what was done, in OAR's words: each job, and the windows that it added to."""
    job_id = None
    for booking in bookings:
        if booking["job_id"] != job_id:
            job_id = booking["job_id"]
            yield f"[ACCOUNTING] Treate job {job_id}"
        what = "Create new" if booking["created"] else "Update the existing"
        who = f"project {booking['project']}, user {booking['user']}, queue {booking['queue']}"
        yield (
            f"[ACCOUNTING] {what} window {booking['window_start']} --> {booking['window_stop']} , {who}, "
            f"type {booking['type']} with conso = {booking['consumption']} s"
        )
