"""oarsub: submit a job."""

from __future__ import annotations

from oarlock.cli import output
from oarlock.cli.options import CommandOptions, hint_of_dashes
from oarlock.client import RequestRefused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from oarlock.cli.options import ParsedOptions
    from oarlock.cli.output import CommandOutput
    from oarlock.cli.sessions.x11 import DisplayForwarding
    from oarlock.cli.submitting.job_keys import KeyExport
    from oarlock.client import Client

OPTIONS = CommandOptions(
    "oarsub",
    "Submit a job: what it needs, and the command to run on the first of its nodes.",
    usage=(
        "[OPTION]... COMMAND",
        "[OPTION]... -S SCRIPT",
        "[OPTION]... -I",
        "-C JOB",
        "[OPTION]... -r DATE",
        "--resubmit=JOB",
    ),
    about="Prints OAR_JOB_ID=NUMBER once the job is safely stored. The job runs in the directory and with the exported "
    "variables that oarsub was started with (names of letters, digits and _; 128 KiB at most). A reservation (-r) "
    "without a command keeps its resources until its walltime is over or it is deleted. Options may also stand "
    "behind the command; write -- before a command that has options of its own, or quote it. A file in the directory "
    "where the job runs needs no ./ before its name.",
    takes_command=True,
)
OPTIONS.text(
    "-l --resource=REQUEST",
    "what the job needs: /nodes=2/core=4,walltime=1:30:00; the job gets one of several requests",
    many=True,
)
OPTIONS.text("-p --property=CONDITION", "only resources for which this holds: \"mem > 64 AND cputype = 'epyc'\"")
OPTIONS.text("-q --queue=QUEUE", "the queue")
OPTIONS.text(
    "-t --type=TYPE", "a kind of job: besteffort, timesharing, idempotent, deploy, noop, container, …", many=True
)
OPTIONS.text("-n --name=NAME", "a name for the job")
OPTIONS.text("--project=NAME", "the project that the job is for")
OPTIONS.text("-d --directory=DIRECTORY", "where the command runs, instead of here")
OPTIONS.text("-O --stdout=FILE", "where the output goes; %jobid% and %jobname% are replaced")
OPTIONS.text("-E --stderr=FILE", "where the error output goes; %jobid% and %jobname% are replaced")
OPTIONS.flag("-S --scanscript", "read further options from the `#OAR` lines of the script; the command line wins")
OPTIONS.number("--array=COUNT", "submit an array of so many jobs")
OPTIONS.text("--array-param-file=FILE", "submit an array, a job a line of this file, with the line as its parameters")
OPTIONS.text(
    "-r --reservation=DATE",
    'start at "YYYY-MM-DD hh:mm:ss", or `now`, or not at all; a second date is the end; without a command it keeps the '
    "resources",
)
OPTIONS.number("-a --anterior=JOB", "start only after this job is over", many=True)
OPTIONS.flag("--hold", "do not start the job before `oarresume`")
OPTIONS.number("--checkpoint=SECONDS", "signal the job so long before its walltime ends")
OPTIONS.text("--signal=SIGNAL", "the signal for that, a number or a name such as USR1, instead of 12 (USR2)")
OPTIONS.text(
    "--notify=HOW",
    "notify about the job: mail:ADDRESS, or exec:/PATH ARGUMENTS; [START,END,ERROR] before it chooses, [REPORT] brings "
    "what it used",
)
OPTIONS.number("--resubmit=JOB", "submit a job that is over once more, as it was; nothing else is given beside it")
OPTIONS.flag("-k --use-job-key", "give the job an ssh key of its own; who has it enters the job with oarsh")
OPTIONS.text("-i --import-job-key-from-file=FILE", "use this private key as the job's key")
OPTIONS.text("--import-job-key-inline=KEY", "use the private key in this text as the job's key")
OPTIONS.text(
    "-e --export-job-key-to-file=FILE", "write the job's private key to this file, replacing it; %jobid% is replaced"
)
OPTIONS.text("--ssh-private-key=KEY", "the same as --import-job-key-inline (also --ssh_private_key)")
OPTIONS.text("--ssh-public-key=KEY", "the public half of that key; it may be left out")
OPTIONS.flag("--dry-run", "show when and where the job would start, and submit nothing")
OPTIONS.flag("--advise", "show what your last jobs of the same name or command used, and submit nothing")
OPTIONS.flag("-I --interactive", "wait for the job and open a shell on its first node; the job ends with the shell")
OPTIONS.flag("--x11", "with -I or -C: let programs of the shell use the display of this terminal, as ssh -Y does")
OPTIONS.number("-C --connect=JOB", "open a shell in a running job of yours; leaving it does not end the job")
OPTIONS.text(
    "-s --stagein=DIRECTORY|TGZ",
    "unpack the content of a directory, or an archive, in the job's directory on each node",
)
OPTIONS.text("--stagein-md5sum=SUM", "the MD5 sum that the archive must have; without -s, one that was sent before")
OPTIONS.formats()
OPTIONS.end()
OPTIONS.example("oarsub -l /nodes=4 test.sh", "four whole nodes, for the walltime that the site's rules give")
OPTIONS.example(
    "oarsub -l /nodes=2/core=1,walltime=0:30 -l core=4,walltime=1 ./prog", "whichever of the two fits first"
)
OPTIONS.example("oarsub -r '2027-03-01 08:00:00' -l nodes=12 ./demo", "at that moment, or refused at once")
OPTIONS.example("oarsub -s input/ ./simulate", "the files in input/ are in the job's directory on each of its nodes")
OPTIONS.example("oarsub --array-param-file params.txt ./simulate", "one job a line of params.txt")

APART = {
    ("interactive", "array_param_file"): (
        "InteractiveParameterFile", "An interactive job cannot be an array.", "Drop -I, or --array-param-file."),
    ("connect", "noop"): (
        "ConnectNoop", "A job of type noop has no shell to connect to.", "Drop -t noop: -C is about a job that runs."),
}  # fmt: skip
"""What cannot be asked for together and never reaches the server, which refuses the rest; OAR has a number for each."""

_KEYS = (
    "use_job_key", "import_job_key_from_file", "import_job_key_inline", "export_job_key_to_file", "ssh_private_key",
    "ssh_public_key",
)  # fmt: skip

BESIDE_RESUBMIT = frozenset({"resubmit", "dry_run", "advise", "server", "dumper", "xml", "yaml", "json"})


def main() -> int:
    """Run the command."""
    return output.main(OPTIONS, run)


def run(client: Client, parsed: ParsedOptions, out: CommandOutput) -> None:
    """Submit, and tell the job's number."""
    from oarlock.cli.submitting.submission import submission

    _together(parsed)
    _alone(parsed)
    if parsed.given("connect"):
        from oarlock.cli.sessions.interactive import enter_running_job

        if parsed.words:
            out.note(f"{parsed.words[0]} is not run: -C opens a shell.")
        enter_running_job(client, parsed.number("connect") or 0, out, _display(client, parsed))
        return
    display = _display(client, parsed)
    body = submission(parsed)
    export = _add_key(body, parsed, out)
    send = _sender(client, parsed)
    try:
        _add_archive(client, parsed, body)
        answer = _sent(client, send, body)
    except RequestRefused as refused:
        refused.kind = _exit_kind(refused, body)
        if refused.text is not None and refused.text in parsed.behind:
            refused.hint = hint_of_dashes(refused.hint, parsed)
        raise
    if parsed.given("advise"):
        _show_advice(answer, out)
    elif parsed.given("dry_run"):
        _show_plan(answer, out)
    else:
        _show_job(answer, body, out, export)
    if answer.get("interactive", body.get("interactive")) and not _only_asks(parsed):
        from oarlock.cli.sessions.interactive import enter_new_job

        if parsed.words:
            out.note(f"{parsed.words[0]} is not run: -I opens a shell.")
        enter_new_job(client, answer["job_ids"][0], out, display)


def _display(client: Client, parsed: ParsedOptions) -> DisplayForwarding | None:
    """Return what forwards the user's display, if that is wanted; raise `RequestRefused` where there is none."""
    if not parsed.given("x11"):
        return None
    if not parsed.given("interactive") and not parsed.given("connect"):
        raise RequestRefused("--x11 is for a shell.", kind="BadOption", hint="oarsub -I --x11, or oarsub -C JOB --x11")
    from oarlock.cli.sessions.x11 import DisplayForwarding

    return DisplayForwarding(client)


def _sender(client: Client, parsed: ParsedOptions) -> Callable[[dict[str, Any]], Any]:
    """Return the verb that a submission is for."""
    if parsed.given("advise"):
        return client.advise
    return client.dry_run if parsed.given("dry_run") else client.submit


def _only_asks(parsed: ParsedOptions) -> bool:
    return parsed.given("dry_run") or parsed.given("advise")


def _add_key(body: dict[str, Any], parsed: ParsedOptions, out: CommandOutput) -> KeyExport | None:
    if not any(map(parsed.given, _KEYS)):
        return None
    from oarlock.cli.submitting.job_keys import add_key

    return add_key(body, parsed, out)


def _add_archive(client: Client, parsed: ParsedOptions, body: dict[str, Any]) -> None:
    """Send the archive that a job needs, unless nothing is to be submitted."""
    path, md5sum = parsed.text("stagein"), parsed.text("stagein_md5sum")
    if (path is not None or md5sum is not None) and not _only_asks(parsed):
        from oarlock.cli.submitting.stage_in import file_id

        body["file_id"] = file_id(client, path, md5sum)


def _sent(client: Client, send: Callable[[dict[str, Any]], Any], body: dict[str, Any]) -> Any:
    """Send a submission; again if its script names files, which only this command can read."""
    while True:
        try:
            return send(body)
        except RequestRefused as refused:
            body = _with_file(client, body, refused)


def _with_file(client: Client, body: dict[str, Any], refused: RequestRefused) -> dict[str, Any]:
    """Return the submission with a file that its script names, if that is why it was refused."""
    if refused.kind == "ParameterFileNeeded" and refused.text is not None and "array" not in body:
        from oarlock.cli.submitting.submission import with_parameters

        return with_parameters(body, refused.text)
    if refused.kind == "StageInNeeded" and refused.text is not None and "file_id" not in body:
        from oarlock.cli.submitting.stage_in import file_id

        return {**body, "file_id": file_id(client, refused.text, None)}
    raise refused


def _together(parsed: ParsedOptions) -> None:
    """Refuse what is good alone and bad together."""
    given = {key for pair in APART for key in pair if key != "noop" and parsed.given(key)}
    if "noop" in parsed.texts("type"):
        given.add("noop")
    for pair, (kind, sentence, hint) in APART.items():
        if given.issuperset(pair):
            raise RequestRefused(sentence, kind=kind, hint=hint)


def _alone(parsed: ParsedOptions) -> None:
    """Refuse what is given beside --resubmit: the job is submitted as it was."""
    if not parsed.given("resubmit"):
        return
    given = [f"--{key.replace('_', '-')}" for key in parsed.values if key not in BESIDE_RESUBMIT]
    if parsed.words:
        given.append("a command")
    if given:
        sentence = (
            f"--resubmit submits job {parsed.text('resubmit')} again as it was; {given[0]} cannot be given beside it."
        )
        raise RequestRefused(sentence, kind="ResubmitRefused", hint="Leave it out, or submit a new job.")


def _exit_kind(refused: RequestRefused, body: dict[str, Any]) -> str:
    """Name what OAR's exit codes tell apart and the server's classes do not: what the refused text belonged to."""
    from oarlock.cli.exit_codes import NO_SERVER

    if refused.kind in NO_SERVER:
        return refused.kind
    if "resubmit" in body:
        return "ResubmitRefused"
    if refused.text is not None and refused.text == body.get("properties"):
        return "PropertiesRefused"
    return refused.kind


def _show_job(answer: Any, body: dict[str, Any], out: CommandOutput, export: KeyExport | None) -> None:
    if "resubmit" in body:
        out.line(f"Resubmitting job {body['resubmit']}...DONE")
    for note in answer.get("notes", ()):
        out.note(note)
    for message in answer.get("messages", ()):
        out.line(message)
    ids = answer["job_ids"]
    if export is not None:
        export.write(ids, out)
    array = "array" in body or len(ids) > 1  # a script may ask for one as well
    for job_id in ids:
        out.line(f"OAR_JOB_ID={job_id}")
    if array:
        out.line(f"OAR_ARRAY_ID={answer['array_id']}")
    _show_reservation(answer.get("reservation"), ids[0], out, held=answer.get("state") == "Hold")
    if out.form:
        _between_rules({"array_id": answer["array_id"], "job_ids": ids} if array else {"job_id": ids[0]}, out)


def _show_reservation(reservation: Any, job_id: int, out: CommandOutput, *, held: bool) -> None:
    if reservation is None:
        return
    if held:  # its owner asked for that: not an error
        out.line(reservation["says"])
        return
    out.line("Reservation mode: waiting validation...")
    if reservation["accepted"]:
        out.line("Reservation valid --> OK")
        return
    if reservation["accepted"] is None:
        sentence = "The scheduler has not answered yet; the reservation may still be accepted."
        hint = f"`oarstat -fj {job_id}` tells; `oardel {job_id}` takes it back."
        out.refuse(RequestRefused(sentence, kind="NoAnswer", hint=hint))
        return
    out.line(f"Reservation not valid --> KO ({_could_run(reservation)})")
    out.fail("ReservationRefused")


def _could_run(reservation: Any) -> str:
    from oarlock.cli.layout.readable import date

    if reservation.get("start"):
        return f"This reservation could run at {date(reservation['start'])}"
    return str(reservation.get("says") or "it cannot run")


def _show_advice(answer: Any, out: CommandOutput) -> None:
    if out.form:
        _between_rules(answer, out)
        return
    from oarlock.cli.layout.readable import date

    for message in answer.get("messages", ()):
        out.line(message)
    runs = answer["runs"]
    out.line(answer["advice"] or f"{runs or 'No'} past run{'s' * (runs != 1)} of this job: too few to say anything.")
    if answer["start"]:
        out.line(f"Start as asked: {date(answer['start'])}")
    if answer["start_with_less"]:
        sooner = answer["start"] is None or answer["start_with_less"] < answer["start"]
        out.line(f"Start with less: {date(answer['start_with_less'])}" + ("" if sooner else " (not sooner)"))
    out.line("Nothing was submitted.")


def _show_plan(answer: Any, out: CommandOutput) -> None:
    if out.form:
        _between_rules(answer, out)
        return
    for message in answer.get("messages", ()):
        out.line(message)
    out.line(answer["says"])
    if answer.get("start"):
        from oarlock.cli.layout.readable import date

        out.line(f"Start: {date(answer['start'])}")
    if answer.get("nodes"):
        out.line(f"Nodes: {answer['nodes']}")
    if answer.get("sooner"):
        out.line(f"Sooner: {answer['sooner']}")
    out.line("Nothing was submitted.")


def _between_rules(data: Any, out: CommandOutput) -> None:
    """Print data where scripts look for it: between two rules, behind the lines for people."""
    out.text("\n##########\n")
    out.data(data)
    out.text("\n##########\n\n")
