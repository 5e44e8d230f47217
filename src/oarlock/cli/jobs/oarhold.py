"""oarhold: keep waiting jobs from starting."""

from __future__ import annotations

from oarlock.cli import output
from oarlock.cli.options import CommandOptions, add_selection, chosen_jobs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from oarlock.cli.options import ParsedOptions
    from oarlock.cli.output import CommandOutput
    from oarlock.client import Client

OPTIONS = CommandOptions(
    "oarhold",
    "Keep waiting jobs from starting, until `oarresume`.",
    usage=("[-r] JOB...", "[-r] --array ARRAY...", '[-r] --sql "CONDITION"'),
)
OPTIONS.flag("-r --running", "also suspend jobs that run; others may use their resources meanwhile (administrators)")
add_selection(OPTIONS)
OPTIONS.end()


def main() -> int:
    """Run the command."""
    return output.main(OPTIONS, run)


def run(client: Client, parsed: ParsedOptions, out: CommandOutput) -> None:
    """Send the request and print the result of each job."""
    for choice in chosen_jobs(parsed, "oarhold"):
        for job in client.hold(choice | {"running": parsed.given("running")}):
            if job["done"]:
                out.line(f"[{job['job_id']}] Hold request was sent to the OAR server.")
            else:
                out.refuse_job(job)
