"""scancel: end jobs, or send them a signal, as Slurm does."""

from __future__ import annotations

from oarlock.cli import output
from oarlock.cli.options import CommandOptions, signal_number
from oarlock.cli.slurm import job_table as table
from oarlock.client import RequestRefused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from oarlock.cli.options import ParsedOptions
    from oarlock.cli.output import CommandOutput
    from oarlock.client import Client

OPTIONS = CommandOptions(
    "scancel",
    "End jobs, or send them a signal, as Slurm does.",
    usage=("[OPTION]... JOB[_TASK]...", "[OPTION]... --me"),
)
OPTIONS.flag("--me", "all your own jobs")
OPTIONS.text("-u --user=NAME", "all jobs of this user")
OPTIONS.text("-n --name=NAME", "of those, the ones of this name")
OPTIONS.text("-p --partition=QUEUE", "of those, the ones in this queue")
OPTIONS.text("-t --state=STATE", "of those, the ones in this state: PENDING, RUNNING or SUSPENDED")
OPTIONS.text("-s --signal=SIGNAL", "send this signal instead")
OPTIONS.flag("-b --batch", "signal the script alone, as is usual here")
OPTIONS.flag("-Q --quiet", "do not report jobs that are over")
OPTIONS.end()


def main() -> int:
    """Run the command."""
    return output.main(OPTIONS, run)


def run(client: Client, parsed: ParsedOptions, out: CommandOutput) -> None:
    """End the jobs that are named or chosen."""
    ids = [job for word in parsed.words for job in table.find(client, word)]
    chosen = any(parsed.given(key) for key in ("me", "user", "name", "partition", "state"))
    if not ids and not chosen:
        raise RequestRefused("No job is named.", kind="BadOption", hint="scancel JOB..., or scancel --me")
    if chosen:
        ids = [job["Job_Id"] for job in _chosen(client, parsed) if not ids or job["Job_Id"] in ids]
    if not ids:
        return
    body: dict[str, Any] = {"ids": ids}
    if (signal := parsed.text("signal")) is not None:
        body["signal"] = signal_number(signal)
    for result in client.delete(body):
        if not result["done"] and not parsed.given("quiet"):
            out.refuse_job(result)


def _chosen(client: Client, parsed: ParsedOptions) -> list[dict[str, Any]]:
    wanted = {"name": parsed.text("name"), "queue": parsed.text("partition")}
    # Without a user only one's own: nobody means everybody's jobs.
    user = parsed.text("user") or table.own_name()
    state = (parsed.text("state") or "").upper()
    if state and state not in {"PENDING", "RUNNING", "SUSPENDED"}:
        raise RequestRefused(f"--state: `{state}` is not one of them.", kind="BadOption", hint=OPTIONS.all[4].says)
    return [
        job
        for job in client.jobs(user=user)
        if all(value is None or job[key] == value for key, value in wanted.items())
        and (not state or table.state(job) == state)
    ]
