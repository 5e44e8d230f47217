"""oarstat: show jobs."""

from __future__ import annotations

import os
import time

from oarlock.cli import output
from oarlock.cli.options import LONGEST_NUMBER, CommandOptions
from oarlock.client import RequestRefused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from typing import Any

    from oarlock.cli.options import ParsedOptions
    from oarlock.cli.output import CommandOutput
    from oarlock.client import Client

OPTIONS = CommandOptions(
    "oarstat",
    "Show jobs: those that are not over, or those that are named.",
    usage=(
        "[-f|-s|-c] [-j [JOB]]... [-u [USER]] [--array [ARRAY]] [--sql CONDITION] [-D|-X|-Y|-J]",
        "-e|-p|--usage [-j [JOB]]... [-u [USER]] [--array [ARRAY]]",
        "--why JOB",
        '-g "YYYY-MM-DD hh:mm:ss, YYYY-MM-DD hh:mm:ss"',
        '--accounting "YYYY-MM-DD, YYYY-MM-DD" [-u [USER]]',
    ),
)
OPTIONS.maybe("-j --job=JOB", "this job, also when it is over; without a number: $OAR_JOB_ID", many=True)
OPTIONS.maybe("-u --user=USER", "jobs of this user; without a name: yours")
OPTIONS.maybe("--array=ARRAY", "the jobs of this array; without a number: all, with their places in arrays")
OPTIONS.text("--sql=CONDITION", "jobs for which this holds: \"project = 'p1' AND state = 'Running'\"")
OPTIONS.flag("-f --full", "everything about each job")
OPTIONS.flag("-s --state", "only the state of each job")
OPTIONS.flag("-c --compact", "one line for each array")
OPTIONS.number("--format=NUMBER", "2: the usual table; 1: the older one, with name, date of submission and queue")
OPTIONS.flag("-e --events", "what happened to the jobs")
OPTIONS.flag("-p --properties", "the properties of the resources of the jobs")
OPTIONS.flag("--usage", "what the jobs used so far, and of how much: cores, memory, GPUs, time, I/O, energy")
OPTIONS.number("--why=JOB", "why this job waits, when it will start, and what would start sooner")
OPTIONS.text('-g --gantt="DATE, DATE"', "the jobs and the states of resources between two dates")
OPTIONS.text(
    '--accounting="DATE, DATE"',
    "what each user asked for and used between two days, both included; with -u also by project, with its karma",
)
OPTIONS.formats()
OPTIONS.end()
OPTIONS.example("oarstat", "the jobs that are not over")
OPTIONS.example("oarstat -fj 42", "everything about job 42")
OPTIONS.example("oarstat --sql \"project = 'p1'\"", "the jobs of a project")
OPTIONS.example("oarstat --why 42", "why job 42 waits")
OPTIONS.example("oarstat -j 42 --usage", "what job 42 used so far")
OPTIONS.example("oarstat -u --usage", "what each of your jobs used so far")


def main() -> int:
    """Run the command."""
    return output.main(OPTIONS, run)


def run(client: Client, parsed: ParsedOptions, out: CommandOutput) -> None:
    """Print what the options select; one of these, in this order."""
    if parsed.words:
        raise RequestRefused(
            f"`{parsed.words[0]}` is not an option.", kind="BadOption", hint=f"oarstat -j {parsed.words[0]}"
        )
    ways = {
        "why": _why, "gantt": _gantt, "accounting": _accounting, "events": _events, "properties": _properties,
        "usage": _usage, "state": _states,
    }  # fmt: skip
    next((way for key, way in ways.items() if parsed.given(key)), _jobs)(client, parsed, out)


def _jobs(client: Client, parsed: ParsedOptions, out: CommandOutput) -> None:
    _refuse_format(parsed.number("format"))
    full = parsed.given("full") or bool(out.form)
    jobs = _chosen(client, parsed, out, full=full)
    if out.form:
        from oarlock.cli.layout.jobs import BRIEF

        whole = parsed.given("full")
        out.data({str(job["Job_Id"]): job if whole else _only(job, BRIEF) for job in jobs})
    elif full:
        from oarlock.cli.layout.jobs import job_details

        for line in (line for job in jobs for line in job_details(job)):
            out.line(line)
    else:
        for line in _table(jobs, parsed):
            out.line(line)


def _refuse_format(number: int | None) -> None:
    if number not in {None, 1, 2, 3}:
        raise RequestRefused(f"There is no format {number}.", kind="BadOption", hint="Write --format=1 or --format=2.")


def _table(jobs: list[Any], parsed: ParsedOptions) -> list[str]:
    from oarlock.cli.layout import jobs as layout

    now = int(time.time())
    if parsed.given("array"):
        return layout.array_table(jobs, now)
    if parsed.given("compact"):
        return layout.compact_table(jobs, now)
    if parsed.number("format") in {1, 3}:  # OAR prints the older table for both
        return layout.dated_table(jobs)
    return layout.job_table(jobs, now)


def _only(job: Any, fields: frozenset[str]) -> dict[str, Any]:
    return {name: value for name, value in job.items() if name in fields}


def _chosen(client: Client, parsed: ParsedOptions, out: CommandOutput, *, full: bool = False) -> list[Any]:
    """Ask for the jobs that the options choose, by increasing number."""
    query: dict[str, object] = {"where": parsed.text("sql"), "array": _number(parsed.text("array"))}
    if parsed.given("job"):
        query["ids"] = ",".join(str(job_id) for job_id in _ids(parsed))
    if parsed.given("user"):
        query["user"] = parsed.text("user") or _me()
    # A place in an array is told only in full.
    if full or parsed.given("array"):
        query["full"] = 1
    jobs = sorted(client.jobs(**query), key=_id)
    if parsed.given("job") and not any(parsed.given(key) for key in ("sql", "array", "user")):
        _note_unknown(set(_ids(parsed)) - {_id(job) for job in jobs}, out)
    return jobs


def _note_unknown(ids: Collection[int], out: CommandOutput) -> None:
    """Name jobs that do not exist. As in OAR that is no error: the answer is empty."""
    for job_id in sorted(ids):
        out.note(f"There is no job {job_id}.", "`oarstat` lists yours.")


def _id(job: Any) -> int:
    return int(job["Job_Id"])


def _ids(parsed: ParsedOptions) -> list[int]:
    """Return the jobs that -j names: numbers, or the job that this runs in."""
    named = parsed.texts("job") or [os.environ.get("OAR_JOB_ID", "")]
    ids = [_number(text) for text in named]
    return [job_id for job_id in ids if job_id is not None]


def _number(text: str | None) -> int | None:
    if text is None:
        return None
    if not (text.isdecimal() and text.isascii()) or len(text) > LONGEST_NUMBER:
        sentence = f"`{text}` is not a job number." if text else "No job is named, neither here nor by $OAR_JOB_ID."
        raise RequestRefused(sentence, kind="BadJobId", hint="Numbers are in the first column of `oarstat`.")
    return int(text)


def _me() -> str:
    import pwd

    return pwd.getpwuid(os.geteuid()).pw_name


def _states(client: Client, parsed: ParsedOptions, out: CommandOutput) -> None:
    states = {str(job["Job_Id"]): job["state"] for job in _chosen(client, parsed, out)}
    if out.form:
        out.data(states)
        return
    for job_id, state in states.items():
        out.line(f"{job_id}: {state}")


def _of_each(client: Client, parsed: ParsedOptions, out: CommandOutput, ask: Callable[[int], Any]) -> dict[int, Any]:
    """Ask the server about each chosen job; a job that -j names is not looked up first."""
    ids = _ids(parsed) if parsed.given("job") else [_id(job) for job in _chosen(client, parsed, out)]
    answers: dict[int, Any] = {}
    for job_id in ids:
        try:
            answers[job_id] = ask(job_id)
        except RequestRefused as refused:
            if refused.kind != "UnknownJob":
                raise
            _note_unknown([job_id], out)
    return answers


def _events(client: Client, parsed: ParsedOptions, out: CommandOutput) -> None:
    by_job = _of_each(client, parsed, out, client.events)
    if out.form:
        out.data({str(job_id): events for job_id, events in by_job.items()})
        return
    from oarlock.cli.layout.readable import date

    for job_id, events in by_job.items():
        for event in events:
            out.line(f"{date(event['at'])}> [{job_id}] {event['type']}: {event['description']}")


def _properties(client: Client, parsed: ParsedOptions, out: CommandOutput) -> None:
    from oarlock.cli.layout.resources import properties

    by_job = _of_each(client, parsed, out, client.job_resources)
    if out.form:
        out.data({str(job_id): {str(r["resource_id"]): properties(r) for r in rows} for job_id, rows in by_job.items()})
        return
    for resource in (resource for rows in by_job.values() for resource in rows):
        pairs = (f"{name} = '{'' if value is None else value}'" for name, value in properties(resource).items())
        out.line(f" {' , '.join(pairs)} ")


_MOST_WITH_FINDINGS = 20  # jobs: each is a question of its own


def _usage(client: Client, parsed: ParsedOptions, out: CommandOutput) -> None:
    ids = _ids(parsed) if parsed.given("job") else [_id(job) for job in _chosen(client, parsed, out)]
    by_job = client.usage(list(dict.fromkeys(ids)))
    _note_unknown(set(ids) - {used["job_id"] for used in by_job}, out)
    if out.form:
        out.data({str(used["job_id"]): used for used in by_job})
        return
    from oarlock.cli.layout.findings import finding_lines
    from oarlock.cli.layout.usage import usage_blocks

    for used in by_job:
        findings = client.findings(used["job_id"]) if len(by_job) <= _MOST_WITH_FINDINGS and used["at"] else []
        for line in (*usage_blocks([used]), *finding_lines(findings), *([""] if used is not by_job[-1] else [])):
            out.line(line)


def _why(client: Client, parsed: ParsedOptions, out: CommandOutput) -> None:
    answer = client.why(parsed.number("why") or 0)
    if out.form:
        out.data(answer)
        return
    out.line(answer["says"])
    if answer.get("start"):
        from oarlock.cli.layout.readable import date

        out.line(f"Start: {date(answer['start'])}")
    if answer.get("smaller"):
        out.line(f"Sooner: {answer['smaller']}")
    if answer.get("priority"):
        from oarlock.cli.layout.jobs import priority_lines

        for line in priority_lines(answer["priority"]):
            out.line(line)


def _gantt(client: Client, parsed: ParsedOptions, out: CommandOutput) -> None:
    from oarlock.cli.layout.jobs import gantt_data, gantt_table
    from oarlock.cli.layout.readable import interval

    since, until = interval(parsed.text("gantt") or "", what="--gantt")
    answer = client.gantt(since, until)
    if out.form:
        out.data(gantt_data(answer))
        return
    for line in gantt_table(answer):
        out.line(line)


def _accounting(client: Client, parsed: ParsedOptions, out: CommandOutput) -> None:
    from oarlock.cli.layout import jobs as layout
    from oarlock.cli.layout.readable import interval

    since, until = interval(parsed.text("accounting") or "", what="--accounting")
    user = (parsed.text("user") or _me()) if parsed.given("user") else None
    answer = client.accounting(since=since, until=until + layout.DAY - 1, user=user)
    summary = layout.sums_by_user(answer["rows"])
    if user is not None:
        summary = {name: sums | layout.sums_by_project(answer) for name, sums in summary.items()}
    if out.form:
        out.data(summary)
        return
    for line in layout.user_table(summary) if user is None else layout.user_details(user, summary.get(user)):
        out.line(line)
