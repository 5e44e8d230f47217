"""sacct: what jobs did, as Slurm shows it."""

from __future__ import annotations

import time

from oarlock.cli import output
from oarlock.cli.options import CommandOptions
from oarlock.cli.slurm import job_table as table
from oarlock.client import RequestRefused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from oarlock.cli.options import ParsedOptions
    from oarlock.cli.output import CommandOutput
    from oarlock.client import Client

OPTIONS = CommandOptions("sacct", "Show what jobs did, as Slurm does.", usage=("[OPTION]...",))
OPTIONS.text("-j --jobs=NUMBERS", "these jobs and arrays")
OPTIONS.text("-u --user=NAME", "jobs of this user")
OPTIONS.flag("-a --allusers", "jobs of everybody")
OPTIONS.text("-S --starttime=DATE", "since then, instead of today: 2027-03-01, 2027-03-01T08:00, now-2days")
OPTIONS.text("-E --endtime=DATE", "until then")
OPTIONS.text("-s --state=STATES", "jobs in these states")
OPTIONS.text("-o --format=FIELDS", "columns: JobID,JobName,State,… with %WIDTH behind a name")
OPTIONS.flag("-n --noheader", "no line with the names of columns")
OPTIONS.flag("-P --parsable2", "columns with | between")
OPTIONS.flag("-p --parsable", "columns with | behind each")
OPTIONS.flag("-X --allocations", "a line a job; there are no steps here")
OPTIONS.end()

_USUAL = "JobID,JobName,Partition,Account,AllocCPUS,State,ExitCode"
_FIELDS: dict[str, tuple[str, int, Callable[[dict[str, Any]], str]]] = {
    "jobid": ("JobID", 12, table.number),
    "jobidraw": ("JobIDRaw", 12, lambda job: str(job["Job_Id"])),
    "jobname": ("JobName", 10, lambda job: job["name"] or ""),
    "user": ("User", 9, lambda job: job["owner"]),
    "partition": ("Partition", 10, lambda job: job["queue"]),
    "account": ("Account", 10, lambda job: job["project"]),
    "alloccpus": ("AllocCPUS", 10, lambda job: str(len(job["assigned_resources"]))),
    "ncpus": ("NCPUS", 10, lambda job: str(len(job["assigned_resources"]))),
    "nnodes": ("NNodes", 8, lambda job: str(table.node_count(job))),
    "nodelist": ("NodeList", 15, table.nodes),
    "state": ("State", 10, table.state),
    "exitcode": ("ExitCode", 8, table.exit_code),
    "elapsed": ("Elapsed", 10, lambda job: table.full_clock(table.elapsed(job))),
    "elapsedraw": ("ElapsedRaw", 10, lambda job: str(table.elapsed(job))),
    "timelimit": ("Timelimit", 10, lambda job: table.full_clock(job["walltime"] or 0)),
    "submit": ("Submit", 19, lambda job: table.date(job["submissionTime"])),
    "start": (
        "Start",
        19,
        lambda job: table.date(job["startTime"]) if job["startTime"] or not table.is_over(job) else "None",
    ),
    "end": ("End", 19, lambda job: table.date(job["stopTime"])),
    "workdir": ("WorkDir", 20, lambda job: job["launchingDirectory"]),
    "maxrss": ("MaxRSS", 10, lambda job: _kilobytes(job["usage"].get("memory_peak_bytes"))),
    "totalcpu": ("TotalCPU", 10, lambda job: table.full_clock(int(job["usage"].get("cpu_seconds") or 0))),
    "consumedenergy": ("ConsumedEnergy", 14, lambda job: str(int(job["usage"].get("energy_joules") or 0))),
}
_MEASURED = {"maxrss", "totalcpu", "consumedenergy"}


def _kilobytes(size: float | None) -> str:
    return f"{int(size) // 1024}K" if size else ""


def main() -> int:
    """Run the command."""
    return output.main(OPTIONS, run)


def run(client: Client, parsed: ParsedOptions, out: CommandOutput) -> None:
    """Ask for the jobs and lay them out."""
    columns = [_column(word) for word in (parsed.text("format") or _USUAL).split(",") if word]
    jobs = _jobs(client, parsed)
    if (states := parsed.text("state")) is not None:
        from oarlock.cli.slurm.squeue import parse_states

        wanted = parse_states(states)
        jobs = [job for job in jobs if {table.state(job), table.STATES[table.state(job)]} & wanted]
    if any(name in _MEASURED for name, _ in columns):
        usage = {job["id"]: job for job in client.usage([job["Job_Id"] for job in jobs])}
        for job in jobs:
            job["usage"] = usage.get(job["Job_Id"], {})
    head = [[_FIELDS[name][0] for name, _ in columns]]
    rows = [[_FIELDS[name][2](job) for name, _ in columns] for job in jobs]
    _show(head, rows, [width for _, width in columns], parsed, out)


def _column(word: str) -> tuple[str, int]:
    name, _, width = word.strip().partition("%")
    key = name.lower()
    if key not in _FIELDS:
        hint = f"Known are {', '.join(field[0] for field in _FIELDS.values())}."
        raise RequestRefused(f"`{name}` is not a field here.", kind="BadOption", hint=hint)
    return key, int(width.lstrip("-")) if width.lstrip("-").isdecimal() else _FIELDS[key][1]


def _jobs(client: Client, parsed: ParsedOptions) -> list[dict[str, Any]]:
    numbers = parsed.text("jobs")
    if numbers is not None:
        ids = [job for word in numbers.split(",") for job in table.find(client, word)]
        return table.list_jobs(client, ids=",".join(map(str, ids)))
    user = None if parsed.given("allusers") else parsed.text("user") or table.own_name()
    now = time.localtime()
    midnight = int(time.mktime((now.tm_year, now.tm_mon, now.tm_mday, 0, 0, 0, 0, 0, -1)))
    since = _instant(text) if (text := parsed.text("starttime")) is not None else midnight
    until = _instant(text) if (text := parsed.text("endtime")) is not None else int(time.time()) + 1
    return table.list_jobs(client, user=user, since=since, until=until)


def _instant(text: str) -> int:
    from oarlock.cli.slurm.request import SPANS

    if text == "now":
        return int(time.time())
    if text.startswith("now-"):
        digits = text[4:].rstrip("abcdefghijklmnopqrstuvwxyz")
        unit = text[4 + len(digits) :].rstrip("s") or "second"
        if digits.isdecimal() and unit in SPANS:
            return int(time.time()) - int(digits) * SPANS[unit]
    for form in ("%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M", "%Y-%m-%d"):
        try:
            return int(time.mktime(time.strptime(text, form)))
        except ValueError:
            continue
    raise RequestRefused(f"`{text}` is not a date.", kind="BadDate", hint="2027-03-01, 2027-03-01T08:00 or now-2days")


def _show(
    head: list[list[str]], rows: list[list[str]], widths: list[int], parsed: ParsedOptions, out: CommandOutput
) -> None:
    lines = ([] if parsed.given("noheader") else head) + rows
    if parsed.given("parsable") or parsed.given("parsable2"):
        for line in lines:
            out.line("|".join(line) + ("|" if parsed.given("parsable") else ""))
        return
    if not parsed.given("noheader"):
        lines.insert(1, ["-" * width for width in widths])
    for line in lines:
        out.line(" ".join(cell[:width].rjust(width) for cell, width in zip(line, widths, strict=True)))
