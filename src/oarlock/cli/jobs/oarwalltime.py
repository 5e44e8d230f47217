"""oarwalltime: show or change the walltime of a running job."""

from __future__ import annotations

from oarlock.cli import output
from oarlock.cli.options import CommandOptions, job_number
from oarlock.client import RequestRefused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from oarlock.cli.options import ParsedOptions
    from oarlock.cli.output import CommandOutput
    from oarlock.client import Client

OPTIONS = CommandOptions(
    "oarwalltime",
    "Show the walltime of a running job, or request another one.",
    usage=("JOB", "[OPTION]... JOB [+-]H:M:S"),
    negative_words=True,
    about=(
        "With a sign the time is added to the walltime or taken from it; without one it is the new walltime. An "
        "increase is granted as far as nobody is delayed who was told when a job would start; the rest stays pending "
        "and is looked at again. Whether walltimes may change, and by how much, is up to the site (WALLTIME_*)."
    ),
)
OPTIONS.flag("--force", "apply the change at once and whole (where the site allows it)")
OPTIONS.flag("--delay-next-jobs", "allow planned jobs, also those of others, to start later (where the site allows it)")
OPTIONS.json()
OPTIONS.end()
OPTIONS.example("oarwalltime 42", "show the walltime of job 42")
OPTIONS.example("oarwalltime 42 +1:30", "request an hour and a half more")


def main() -> int:
    """Run the command."""
    return output.main(OPTIONS, run)


def run(client: Client, parsed: ParsedOptions, out: CommandOutput) -> None:
    """Show the walltime, or request another one."""
    if not 1 <= len(parsed.words) <= 2:
        raise RequestRefused(
            "oarwalltime takes a job and, at most, a walltime.", kind="BadOption", hint="oarwalltime JOB [[+-]H:M:S]"
        )
    number = job_number(parsed.words[0])
    try:
        if len(parsed.words) == 1:
            _show(client.walltime(number), out)
        else:
            _change(client, number, parsed, out)
    except RequestRefused as refused:
        if refused.kind not in {"UnknownJob", "WalltimeRefused"} or out.form:
            raise
        # OAR prints these two where it prints results; the way out is ours.
        out.line("UNKNOWN JOB" if refused.kind == "UnknownJob" else f"Forbidden: {refused}")
        out.refuse(refused)


def _change(client: Client, number: int, parsed: ParsedOptions, out: CommandOutput) -> None:
    change = {
        "walltime": parsed.words[1],
        "force": parsed.given("force"),
        "delay_next_jobs": parsed.given("delay_next_jobs"),
    }
    stored = client.change_walltime(number, change)
    if out.form:
        out.data(stored)
        return
    out.line(f"Accepted: walltime change request updated for job {number}, it will be handled shortly.")


def _show(status: Any, out: CommandOutput) -> None:
    if out.form:
        out.data(status)
        return
    number = status["job_id"]
    if status["walltime"] is None:
        when = "anymore" if status["begun"] else "yet"
        out.line(f"Walltime change status for job {number} (job is not running {when}):")
        out.line("  N/A")
        return
    out.line(f"Walltime change status for job {number} (job is running):")
    for label, value in (
        ("Current walltime:", _signed(status["walltime"], plus="")),
        ("Possible increase:", _possible(status["most"])),
        ("Already granted:", _signed(status["granted"])),
        ("Pending/unsatisfied:", _signed(status["pending"]) + _how(status)),
    ):
        out.line(f"  {label:23}{value}")


def _possible(most: int | None) -> str:
    if most is None:
        return " UNLIMITED"
    return _signed(most) if most else " UNAUTHORIZED"


def _how(status: Any) -> str:
    words = [
        word for word, given in (("force", status["force"]), ("delay next jobs", status["delay_next_jobs"])) if given
    ]
    return f" ({', '.join(words)})" if words and status["pending"] else ""


def _signed(seconds: int, plus: str = "+") -> str:
    """Write a time as OAR does, with one character for its sign: `+0:5:0`, ` 0:2:0`."""
    sign = plus if seconds > 0 else "-" if seconds < 0 else ""
    seconds = abs(seconds)
    return f"{sign or ' '}{seconds // 3600}:{seconds // 60 % 60}:{seconds % 60}"
