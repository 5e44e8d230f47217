"""Which jobs a command is about: numbers, arrays or a condition."""

from __future__ import annotations

from oarlock.cli.options import LONGEST_NUMBER
from oarlock.client import RequestRefused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from oarlock.cli.options import CommandOptions, ParsedOptions
    from oarlock.cli.output import CommandOutput


def add_selection(options: CommandOptions) -> None:
    """Add the options that choose jobs."""
    options.flag("--array", "the numbers are those of arrays: all their jobs")
    options.text("--sql=CONDITION", "the jobs for which this holds: \"project = 'p1'\"")


def chosen(parsed: ParsedOptions, command: str) -> list[dict[str, Any]]:
    """Return the selections as the server reads them, one a request."""
    where = parsed.text("sql")
    ids = [_number(word) for word in parsed.words]
    if where is not None and ids:
        raise RequestRefused(
            "--sql and job numbers cannot be given together.", kind="BadOption", hint="Give one of them."
        )
    if where is not None:
        return [{"where": where}]
    if not ids:
        raise RequestRefused(
            "No job is named.", kind="BadOption", hint=f'{command} JOB..., or {command} --sql "CONDITION"'
        )
    return [{"array": number} for number in ids] if parsed.given("array") else [{"ids": ids}]


def tell_refused(job: Any, out: CommandOutput) -> None:
    """Print why nothing was done to a job."""
    out.refuse(RequestRefused(job["says"], kind=job.get("kind") or "RequestRefused", hint=job.get("hint") or ""))


def _number(word: str) -> int:
    if not (word.isdecimal() and word.isascii()) or len(word) > LONGEST_NUMBER:
        raise RequestRefused(f"`{word}` is not a job number.", kind="BadJobId", hint="`oarstat` lists the jobs.")
    return int(word)
