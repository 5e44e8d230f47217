"""oardel: end jobs, or send them a signal."""

from __future__ import annotations

from oarlock.cli import output
from oarlock.cli.options import CommandOptions, add_selection, chosen_jobs, signal_number
from oarlock.client import RequestRefused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from oarlock.cli.options import ParsedOptions
    from oarlock.cli.output import CommandOutput
    from oarlock.client import Client

OPTIONS = CommandOptions(
    "oardel",
    "End jobs, running or not; or send them a signal.",
    usage=("[OPTION]... JOB...", "[OPTION]... --array ARRAY...", '[OPTION]... --sql "CONDITION"'),
)
OPTIONS.flag("-c --checkpoint", "do not end the jobs: send the signal that they asked for as checkpoint signal")
OPTIONS.text("-s --signal=SIGNAL", "do not end the jobs: send this signal, a number or a name such as SIGUSR1")
OPTIONS.flag(
    "-b --besteffort",
    "do not end the jobs: those that run become best-effort jobs, and those that are, ordinary ones (administrators)",
)
add_selection(OPTIONS)
OPTIONS.flag(
    "--force-terminate-finishing-job", "give up a job that does not come to its end (administrators; a last resort)"
)
OPTIONS.end()
OPTIONS.example("oardel 14 42", "end two jobs")
OPTIONS.example("oardel -c 42", "have job 42 write a checkpoint")


_ADMINS_ONLY = frozenset({"besteffort", "exterminate"})


def main() -> int:
    """Run the command."""
    return output.main(OPTIONS, run)


def run(client: Client, parsed: ParsedOptions, out: CommandOutput) -> None:
    """Send the request and print the result of each job."""
    how = _how(parsed)
    gone = []
    try:
        for choice in chosen_jobs(parsed, "oardel"):
            for job in client.delete(choice | how):
                _tell(job, parsed, out)
                gone += [str(job["job_id"])] if job["done"] else []
    except RequestRefused as refused:
        # OAR has a code of its own for what only administrators may do.
        refused.kind = "AdminsOnly" if how.keys() & _ADMINS_ONLY and refused.kind == "Forbidden" else refused.kind
        raise
    finally:
        if gone and not how.keys() - {"exterminate"}:
            out.line(f"The job(s) [ {' '.join(gone)} ] will be deleted in the near future.")


def _how(parsed: ParsedOptions) -> dict[str, Any]:
    how: dict[str, Any] = {}
    if parsed.given("checkpoint"):
        how["checkpoint"] = True
    if (name := parsed.text("signal")) is not None:
        how["signal"] = signal_number(name)
    if parsed.given("besteffort"):
        how["besteffort"] = True
    if parsed.given("force_terminate_finishing_job"):
        how["exterminate"] = True
    if len(how) > 1:
        raise RequestRefused("Only one of -b, -c, -s and --force-… can be given.", kind="BadOption", hint="Choose one.")
    return how


def _deleted(job: Any) -> str:
    """Return OAR's word for what became of a job, and a word of ours for one that needs no end any more."""
    return "REGISTERED" if job["done"] else "ALREADY OVER" if job.get("kind") == "JobOver" else "ERROR"


def _tell(job: Any, parsed: ParsedOptions, out: CommandOutput) -> None:
    number, signal = job["job_id"], parsed.text("signal")
    if signal is not None:
        out.line(f"Signaling the job {number} with {signal} signal.")
        out.line("DONE." if job["done"] else "ERROR.")
    elif parsed.given("checkpoint"):
        out.line(f"Checkpointing the job {number} ...{'DONE' if job['done'] else 'ERROR'}.")
    elif parsed.given("besteffort"):
        if job["done"]:
            out.line(job["says"])
    else:
        out.line(f"Deleting the job = {number} ...{_deleted(job)}.")
    if not job["done"]:
        out.refuse_job(job)
    elif signal is not None and job.get("says"):
        # The server was told a number; who wrote a name reads it again.
        out.line(job["says"].replace(f" with {signal_number(signal)} on ", f" with {signal} on "))
    elif parsed.given("checkpoint") and job.get("says"):
        out.line(job["says"])
