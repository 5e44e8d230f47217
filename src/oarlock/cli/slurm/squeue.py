"""squeue: list the jobs that are not over, as Slurm does."""

from __future__ import annotations

from oarlock.cli import output
from oarlock.cli.options import CommandOptions
from oarlock.cli.slurm import job_table as table
from oarlock.client import RequestRefused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from oarlock.cli.options import ParsedOptions
    from oarlock.cli.output import CommandOutput
    from oarlock.client import Client

OPTIONS = CommandOptions("squeue", "List the jobs that are not over, as Slurm does.", usage=("[OPTION]...",))
OPTIONS.text("-u --user=NAMES", "jobs of these users")
OPTIONS.flag("--me", "your own jobs")
OPTIONS.text("-j --jobs=NUMBERS", "these jobs and arrays")
OPTIONS.text("-n --name=NAMES", "jobs of these names")
OPTIONS.text("-p --partition=QUEUES", "jobs in these queues")
OPTIONS.text("-A --account=PROJECTS", "jobs of these projects")
OPTIONS.text("-t --states=STATES", "jobs in these states: PD, R, PENDING, …")
OPTIONS.text("-o --format=FORMAT", "columns: %i %j %u %P %t %T %M %l %L %D %C %R %N %r %a %S %e %V %Z %A %F %K %Q")
OPTIONS.flag("-l --long", "more columns")
OPTIONS.flag("-h --noheader", "no line with the names of columns")
OPTIONS.text("-S --sort=KEY", "i: by their numbers, as is usual here; -i: the last one first")
OPTIONS.flag("--start", "when waiting jobs are expected to start")
OPTIONS.end()

_USUAL = "%.18i %.9P %.8j %.8u %.2t %.10M %.6D %R"
_LONG = "%.18i %.9P %.8j %.8u %.8T %.10M %.9l %.6D %R"
_START = "%.18i %.9P %.8j %.8u %.2t %.19S %.6D %R"


def _start(job: dict[str, Any]) -> str:
    at = job["startTime"] if table.state(job) != "PENDING" else job["scheduledStart"]
    return table.date(at) if at else "N/A"


COLUMNS: dict[str, tuple[str, Any]] = {
    "i": ("JOBID", table.number),
    "A": ("JOBID", lambda job: str(job["Job_Id"])),
    "F": ("ARRAY_JOB_ID", lambda job: str(job["array_id"])),
    "K": ("ARRAY_TASK_ID", lambda job: table.task(job) or "N/A"),
    "j": ("NAME", lambda job: job["name"] or ""),
    "u": ("USER", lambda job: job["owner"]),
    "P": ("PARTITION", lambda job: job["queue"]),
    "a": ("ACCOUNT", lambda job: job["project"]),
    "t": ("ST", lambda job: table.STATES[table.state(job)]),
    "T": ("STATE", table.state),
    "M": ("TIME", lambda job: table.clock(table.elapsed(job))),
    "l": ("TIME_LIMIT", lambda job: table.clock(job["walltime"] or 0)),
    "L": ("TIME_LEFT", lambda job: table.clock((job["walltime"] or 0) - table.elapsed(job))),
    "D": ("NODES", lambda job: str(table.node_count(job))),
    "C": ("CPUS", lambda job: str(table.core_count(job))),
    "N": ("NODELIST", table.nodes),
    "r": ("REASON", table.reason),
    "R": (
        "NODELIST(REASON)",
        lambda job: table.nodes(job) if table.state(job) != "PENDING" else f"({table.reason(job)})",
    ),
    "S": ("START_TIME", _start),
    "e": ("END_TIME", lambda job: table.date((job["startTime"] or 0) and job["startTime"] + (job["walltime"] or 0))),
    "V": ("SUBMIT_TIME", lambda job: table.date(job["submissionTime"])),
    "Z": ("WORK_DIR", lambda job: job["launchingDirectory"]),
}


def main() -> int:
    """Run the command."""
    return output.main(OPTIONS, run)


def run(client: Client, parsed: ParsedOptions, out: CommandOutput) -> None:
    """Ask for the jobs and lay them out."""
    form = parsed.text("format") or (_LONG if parsed.given("long") else _START if parsed.given("start") else _USUAL)
    jobs = [job for job in _jobs(client, parsed) if _wanted(job, parsed)]
    if (key := parsed.text("sort") or "i") not in {"i", "+i", "-i"}:
        raise RequestRefused(f"--sort={key} cannot be translated.", kind="BadOption", hint="--sort=i or --sort=-i")
    jobs.sort(key=lambda job: int(job["Job_Id"]), reverse=key == "-i")
    if parsed.given("start"):
        jobs = [job for job in jobs if table.state(job) == "PENDING"]
    for line in table.rows(form, COLUMNS, jobs, header=not parsed.given("noheader")):
        out.line(line)


def _jobs(client: Client, parsed: ParsedOptions) -> list[dict[str, Any]]:
    numbers = parsed.text("jobs")
    if numbers is None:
        return table.list_jobs(client)
    ids = [job for word in numbers.split(",") for job in table.find(client, word)]
    jobs = table.list_jobs(client, ids=",".join(map(str, ids)))
    live = [job for job in jobs if not table.is_over(job)]
    if not jobs:
        raise RequestRefused(
            f"There is no job {numbers}.", kind="UnknownJob", hint="`sacct` lists those that are over."
        )
    return live


def _wanted(job: dict[str, Any], parsed: ParsedOptions) -> bool:
    fields = {"user": "owner", "name": "name", "partition": "queue", "account": "project"}
    users = [table.own_name()] if parsed.given("me") else []
    if users and job["owner"] not in users:
        return False
    for option, field in fields.items():
        text = parsed.text(option)
        if text is not None and job[field] not in text.split(","):
            return False
    states = parsed.text("states")
    return states is None or states.lower() == "all" or not _words(table.state(job)).isdisjoint(parse_states(states))


def _words(state: str) -> set[str]:
    return {state, table.STATES[state]}


def parse_states(states: str) -> set[str]:
    """Parse a list of states, long or short."""
    words = {word.strip().upper() for word in states.split(",")}
    unknown = words - set(table.STATES) - set(table.STATES.values())
    if unknown:
        hint = f"Known are {', '.join(table.STATES)}."
        raise RequestRefused(f"There is no state {min(unknown)}.", kind="BadOption", hint=hint)
    return words
