"""The options that sbatch, salloc and srun share, and what of Slurm has no translation here.

An option that is not listed is refused with its name, and so is a listed one whose value has no translation: nothing is
ignored without a word.
"""

from __future__ import annotations

from oarlock.cli.options import CommandOptions, ParsedOptions
from oarlock.client import RequestRefused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


def add_request_options(options: CommandOptions) -> None:
    """Add what a job needs and how it is called."""
    options.text("-N --nodes=COUNT", "how many nodes")
    options.text("-n --ntasks=COUNT", "how many tasks")
    options.text("-c --cpus-per-task=COUNT", "cores of each task, all on one node")
    options.text("--ntasks-per-node=COUNT", "tasks on each node")
    options.text("--mem=SIZE", "memory on each node: 4G, 500M; a number alone is MB; 0 is all of it")
    options.text("--mem-per-cpu=SIZE", "memory for each core")
    options.text("-G --gpus=COUNT", "GPUs on one node")
    options.text("--gpus-per-node=COUNT", "GPUs on each node")
    options.text("--gres=gpu:COUNT", "the same as --gpus-per-node; no other resource is known")
    options.flag("--exclusive", "whole nodes")
    options.text("-t --time=LIMIT", "the walltime: MIN, MIN:SEC, H:MIN:SEC, D-H, D-H:MIN or D-H:MIN:SEC")
    options.text("-p --partition=QUEUE", "the queue")
    options.text("-A --account=PROJECT", "the project")
    options.text("-q --qos=NAME", "the quality of service (the job type qos=NAME)")
    options.text("-C --constraint=FEATURE", "properties: `ib&ssd` means ib = 'YES' and ssd = 'YES'; `cpu=epyc` a value")
    options.text("-w --nodelist=NODES", "these nodes: n1,n[3-5]")
    options.text("-x --exclude=NODES", "any nodes but these")
    options.text("-J --job-name=NAME", "a name for the job")
    options.text("-D --chdir=DIRECTORY", "where the job runs, instead of here")
    options.text("-d --dependency=KIND:JOB", "start after other jobs: afterok, afterany or afternotok")
    options.text("-b --begin=WHEN", "do not start before: now+2hours, 2027-03-01T08:00")
    options.text("--signal=SIGNAL@SECONDS", "signal the job so long before its time ends")
    options.text("--mail-type=KINDS", "send mail at BEGIN, END, FAIL or ALL")
    options.text("--mail-user=ADDRESS", "to whom")
    options.text("--export=VARIABLES", "ALL, NONE, or names and NAME=VALUE with commas between")
    options.flag("-Q --quiet", "print nothing but errors")


def merge(script: ParsedOptions, typed: ParsedOptions) -> ParsedOptions:
    """Return the options of a script with those of the command line over them."""
    merged = ParsedOptions()
    merged.values = {**script.values, **typed.values}
    merged.words = typed.words
    return merged


def not_translated(option: str, value: str, hint: str) -> RequestRefused:
    """Build the refusal of an option that has no translation."""
    return RequestRefused(f"{option}={value} cannot be translated.", kind="BadOption", hint=hint)


def count(parsed: ParsedOptions, key: str, option: str) -> int | None:
    """Return a number of things, at least one; None if it is not given."""
    text = parsed.text(key)
    if text is None:
        return None
    low, dash, high = text.partition("-")
    if dash and low != high:
        raise not_translated(option, text, "Give one number: a job here has as many as it asks for.")
    return at_least_one(low, option)


def at_least_one(text: str, option: str) -> int:
    """Parse a positive whole number."""
    if not (text.isascii() and text.isdecimal()) or not 0 < len(text) <= 7 or int(text) == 0:
        raise RequestRefused(f"{option}: `{text}` is not a number above zero.", kind="BadOption", hint=f"{option}=4")
    return int(text)


_UNITS = {"K": 1 / 1024, "M": 1.0, "G": 1024.0, "T": 1024.0 * 1024}


def megabytes(text: str, option: str) -> float:
    """Parse a size of memory; a number alone is MB."""
    digits, unit = (text[:-1], text[-1:].upper()) if text[-1:].isalpha() else (text, "M")
    if unit not in _UNITS or not (digits.isascii() and digits.isdecimal()) or len(digits) > 12:
        raise RequestRefused(f"{option}: `{text}` is not a size of memory.", kind="BadOption", hint=f"{option}=4G")
    return int(digits) * _UNITS[unit]


def seconds(text: str) -> int:
    """Parse a time limit of Slurm."""
    days, dash, rest = text.partition("-")
    parts = (rest if dash else text).split(":")
    numbers = [int(part) for part in parts if part.isascii() and part.isdecimal() and len(part) < 8]
    bad = len(numbers) != len(parts) or len(parts) > 3 or (dash and not (days.isascii() and days.isdecimal()))
    total = 0 if bad else _total(numbers, int(days) if dash else None)
    if total <= 0:
        hint = "MIN, MIN:SEC, H:MIN:SEC, D-H, D-H:MIN or D-H:MIN:SEC; a walltime has an end."
        raise RequestRefused(f"--time: `{text}` is not a time limit here.", kind="BadOption", hint=hint)
    return total


def _total(numbers: list[int], days: int | None) -> int:
    if days is not None:
        return days * 86400 + sum(n * unit for n, unit in zip(numbers, (3600, 60, 1), strict=False))
    if len(numbers) == 1:
        return numbers[0] * 60
    return sum(n * unit for n, unit in zip(reversed(numbers), (1, 60, 3600), strict=False))


def node_names(text: str, option: str) -> list[str]:
    """Expand a list of nodes."""
    from oarlock.model.nodeset import unfold

    try:
        return unfold(text)
    except ValueError as error:
        raise RequestRefused(f"{option}: {error}", kind="BadOption", hint=f"{option}=n1,n[3-5]") from None


def quoted_list(names: Iterable[str]) -> str:
    """Write names as a condition does."""
    return ", ".join("'" + name.replace("'", "''") + "'" for name in names)
