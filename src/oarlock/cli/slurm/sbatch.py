"""sbatch: submit a batch script with Slurm's options."""

from __future__ import annotations

import os

from oarlock.cli import output
from oarlock.cli.options import CommandOptions
from oarlock.cli.slurm.batch_script import (
    COMMAND,
    OutputName,
    array_limit,
    array_step,
    array_tasks,
    begin_text,
    check_script,
    directives,
    task_variables,
)
from oarlock.cli.slurm.options import add_request_options, merge, not_translated
from oarlock.client import RequestRefused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from oarlock.cli.options import ParsedOptions
    from oarlock.cli.output import CommandOutput
    from oarlock.client import Client

OPTIONS = CommandOptions(
    "sbatch",
    "Submit a batch script with Slurm's options.",
    usage=("[OPTION]... SCRIPT [ARGUMENT]...", '[OPTION]... --wrap="COMMAND"'),
    about="Translates the options, and the #SBATCH lines of the script, into a job of Oarlock. What has no translation "
    "is refused with the name of the option. Inside the job the SLURM_* variables are set beside the OAR_* ones.",
    stops_at_word=True,
)
add_request_options(OPTIONS)
OPTIONS.text("-a --array=TASKS", "an array: 0-15, 1,3,5 or 0-30:10; with %4 behind it four tasks run at a time")
OPTIONS.text("-o --output=FILE", "the output file; %j %A %a %x %u %N are replaced, %4a has four digits")
OPTIONS.text("-e --error=FILE", "the file for errors, instead of the output file")
OPTIONS.text("--open-mode=MODE", "`append` to the output files, or `truncate` them, as is usual")
OPTIONS.flag("-H --hold", "do not start the job before `scontrol release`")
OPTIONS.flag("--requeue", "the job may be run again by itself after it was killed")
OPTIONS.flag("--no-requeue", "the job is run once, as is usual")
OPTIONS.text("--wrap=COMMAND", "submit this command instead of a script")
OPTIONS.flag("--parsable", "print the number of the job alone")
OPTIONS.flag("-W --wait", "wait for the end of the job, and end as it did")
OPTIONS.flag("--test-only", "show when and where the job would start, and submit nothing")
OPTIONS.end()
OPTIONS.example("sbatch -N 2 --ntasks-per-node=8 -t 2:00:00 job.sh", "two nodes, eight cores of each, for two hours")
OPTIONS.example('sbatch -a 0-9 --wrap="./simulate $SLURM_ARRAY_TASK_ID"', "ten jobs of one command")


def main() -> int:
    """Run the command."""
    return output.main(OPTIONS, run)


def run(client: Client, typed: ParsedOptions, out: CommandOutput) -> None:
    """Submit, and tell the job's number."""
    text, path, arguments = _script(typed)
    check_script(text, path)
    notes: list[str] = []
    parsed = merge(merge(directives(OPTIONS, text, path), _variables(notes)), typed)
    body = _body(client, parsed, notes, text, path, arguments)
    _print_notes(notes, parsed, out)
    if parsed.given("test_only"):
        answer = client.dry_run(body)
        out.line(f"{answer['says']} {answer.get('nodes') or ''}".rstrip())
        return
    answer = client.submit(body)
    number = answer["array_id"] if "array" in body else answer["job_ids"][0]
    _print_notes([*answer.get("notes", ()), *answer.get("messages", ())], parsed, out)
    if parsed.given("parsable"):
        out.line(str(number))
    elif not parsed.given("quiet"):
        out.line(f"Submitted batch job {number}")
    if parsed.given("wait"):
        out.flush()
        out.code = _wait(client, answer["job_ids"])


def _print_notes(notes: list[str], parsed: ParsedOptions, out: CommandOutput) -> None:
    """Print what is worth knowing and no error, each sentence once."""
    if not parsed.given("quiet"):
        for note in dict.fromkeys(notes):
            out.note(note)


def _script(typed: ParsedOptions) -> tuple[str, str, list[str]]:
    """Return the text of the script, its name, and its arguments."""
    wrap = typed.text("wrap")
    if wrap is not None:
        if typed.words:
            raise RequestRefused(
                "A script and --wrap cannot be given together.", kind="BadOption", hint="Give one of them."
            )
        return f"#!/bin/sh\n{wrap}\n", "wrap", []
    from oarlock.cli.submitting.submission import read

    if typed.words:
        return read(typed.words[0], kind="BadScript", what="script", newline=""), typed.words[0], typed.words[1:]
    import sys

    if sys.stdin.isatty():
        hint = 'sbatch [OPTION]... SCRIPT, or sbatch --wrap="COMMAND".'
        raise RequestRefused("There is no script.", kind="BadScript", hint=hint)
    return sys.stdin.read(), "standard input", []


def _body(
    client: Client, parsed: ParsedOptions, notes: list[str], text: str, path: str, arguments: list[str]
) -> dict[str, Any]:
    import shlex
    import sys

    from oarlock.cli.slurm.request import submission

    body, shape = submission(client, parsed, notes)
    tasks = array_tasks(array) if (array := parsed.text("array")) is not None else []
    name = body.setdefault(
        "name", "wrap" if path == "wrap" else os.path.basename(path).replace("standard input", "sbatch")
    )
    user = os.environ.get("USER") or str(os.getuid())
    usual = "slurm-%A_%a.out" if tasks else "slurm-%j.out"
    out_file = OutputName(parsed.text("output") or usual, "--output", user, tasks)
    error = parsed.text("error")
    error_file = OutputName(error, "--error", user, tasks) if error is not None else None
    body["stdout"], body["stderr"] = out_file.file, (error_file or out_file).file
    body["environment"] = {
        **_exported(parsed.text("export") or "ALL"),
        **task_variables(shape, tasks, array_step(array or "")),
        "SLURM_SUBMIT_DIR": os.getcwd(),
        "SLURM_SUBMIT_HOST": os.uname().nodename,
        "SLURM_JOB_PARTITION": body.get("queue", "default"),
        "OARLOCK_SLURM_SCRIPT": text,
        "OARLOCK_SLURM_BEGIN": begin_text(out_file, error_file, truncate=_truncates(parsed)),
    }
    body["command"] = shlex.join([name, *arguments]).join([f"{COMMAND} ", ""])
    body["initial_request"] = shlex.join(["sbatch", *sys.argv[1:]])
    if tasks:
        body["array"] = [str(task) for task in tasks]
        if limit := array_limit(array or ""):
            body["at_once"] = limit
    if parsed.given("hold"):
        body["hold"] = True
    if parsed.given("requeue") and not parsed.given("no_requeue"):
        body["types"] = [*body.get("types", []), "idempotent"]
    _expand_arrays(client, body)
    return body


_OTHER_NAMES = {
    "ARRAY_INX": "array", "EXCLUSIVE": "exclusive", "MEM_PER_NODE": "mem", "MEM_PER_CPU": "mem_per_cpu",
    "TIMELIMIT": "time",
}  # fmt: skip
_WITHOUT_MEANING = {"DEBUG", "IGNORE_PBS"}


def _variables(notes: list[str]) -> ParsedOptions:
    """Return the options that SBATCH_* variables set: they are stronger than the script, weaker than what is typed."""
    from oarlock.cli.options import ParsedOptions

    keys = {option.key: option for option in OPTIONS.all}
    set_options = ParsedOptions()
    for variable, value in sorted(os.environ.items()):
        prefix, _, name = variable.partition("_")
        if prefix != "SBATCH" or name in _WITHOUT_MEANING or not name:
            continue
        key = _OTHER_NAMES.get(name, name.lower())
        if key not in keys or key in {"wrap", "server", "help", "version"}:
            notes.append(f"{variable} is set and has no meaning here; it is left out.")
        elif keys[key].kind != "flag" or value != "no":
            set_options.values[key] = [value]
    return set_options


def _truncates(parsed: ParsedOptions) -> bool:
    mode = parsed.text("open_mode") or "truncate"
    if mode not in {"append", "truncate"}:
        raise not_translated("--open-mode", mode, "Write append or truncate.")
    return mode == "truncate"


def _exported(wanted: str) -> dict[str, str]:
    """Return the variables that travel."""
    from oarlock.cli.submitting.submission import environment

    kept = {name: value for name, value in os.environ.items() if not name.startswith("SLURM_")}
    if wanted == "NONE":
        return {}
    chosen: dict[str, str] = {}
    for word in wanted.split(","):
        name, equals, value = word.partition("=")
        if word == "ALL":
            chosen |= kept
        elif equals:
            chosen[name] = value
        elif name in kept:
            chosen[name] = kept[name]
    return environment(chosen)


def _expand_arrays(client: Client, body: dict[str, Any]) -> None:
    """Wait for all jobs of an array where its number is named, as Slurm does."""
    after: list[int] = []
    for number in body.get("after", []):
        members = [job["Job_Id"] for job in client.jobs(array=number)]
        after += members or [number]
    if after:
        body["after"] = after


def _wait(client: Client, ids: list[int]) -> int:
    """Wait for jobs; return the highest of their exit codes."""
    import time

    from oarlock.cli.slurm.job_table import is_over

    while True:
        jobs = client.jobs(ids=",".join(map(str, ids)))
        if all(map(is_over, jobs)):
            return max((_code(job) for job in jobs), default=1)
        time.sleep(1.0)


def _code(job: Any) -> int:
    status = job["exit_code"]
    if job["state"] == "Error" or status is None:
        return 1
    return int(os.waitstatus_to_exitcode(status)) if status & 0x7F == 0 else 128 + (status & 0x7F)
