"""oarresume: let jobs start that were held, and go on that were suspended."""

from __future__ import annotations

from oarlock.cli import output
from oarlock.cli.options import CommandOptions, add_selection, chosen_jobs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from oarlock.cli.options import ParsedOptions
    from oarlock.cli.output import CommandOutput
    from oarlock.client import Client

OPTIONS = CommandOptions(
    "oarresume",
    "Release jobs that were held, and resume jobs that were suspended (administrators).",
    usage=("JOB...", "--array ARRAY...", '--sql "CONDITION"'),
)
add_selection(OPTIONS)
OPTIONS.end()


def main() -> int:
    """Run the command."""
    return output.main(OPTIONS, run)


def run(client: Client, parsed: ParsedOptions, out: CommandOutput) -> None:
    """Send the request and print the result of each job."""
    for choice in chosen_jobs(parsed, "oarresume"):
        for job in client.resume(choice):
            if job["done"]:
                out.line(f"[{job['job_id']}] Resume request was sent to the OAR server.")
            else:
                out.refuse_job(job)
