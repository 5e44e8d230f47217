"""oaraccounting: account for jobs that are over."""

from __future__ import annotations

from oarlock.cli import command
from oarlock.cli.options import Options
from oarlock.client import Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from oarlock.cli.options import Asked
    from oarlock.cli.output import Output
    from oarlock.client import Client

OPTIONS = Options(
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
    return command.main(OPTIONS, run)


def run(client: Client, asked: Asked, out: Output) -> None:
    """Account, or forget."""
    seconds = asked.number("delete_before")
    if asked.words or (seconds is not None and asked.given("reinitialize")):
        raise Refused(
            "Only one of --reinitialize and --delete-before can be given, and nothing else.",
            kind="BadOption",
            hint="`oaraccounting` alone accounts for new jobs.",
        )
    if seconds is not None:
        out.line(f"Deleting records older than {seconds} seconds ago...")
        client.account({"delete_before": seconds})
        return
    done = client.account({"reinitialize": True} if asked.given("reinitialize") else {})
    out.line(f"[ACCOUNTING] {done['jobs']} job(s) accounted for")
