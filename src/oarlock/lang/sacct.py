"""Output of `sacct --parsable2`: a line with the names of fields, then a line a job. Steps of jobs are left out."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from oarlock.model.errors import BadRequest

NEEDED = ("JobIDRaw", "User", "State", "ExitCode", "Submit", "Start", "End", "NCPUS", "NodeList", "Partition")
WANTED = (*NEEDED, "JobID", "JobName", "UID", "Account", "TimelimitRaw", "WorkDir", "NNodes", "SubmitLine")
COMMAND = f"sacct --allusers --duplicates --starttime 2000-01-01 --parsable2 --format={','.join(WANTED)}"
_NOT_YET = frozenset({"", "Unknown", "None", "N/A"})


def read_rows(lines: Iterable[str]) -> Iterator[Mapping[str, str]]:
    """Yield the fields of each job by their names; `BadRequest` for what is no such output, or was cut off."""
    source = iter(lines)
    names = _names(next(source, ""), "|")
    for number, line in enumerate(source, 2):
        values = line.rstrip("\r\n").split("|")
        if not line.endswith("\n") or len(values) < len(names):
            raise BadRequest(f"Line {number} of the output of sacct is cut off.", hint="Nothing was taken over.")
        if len(values) > len(names):
            values = _joined(names, values)
        row = dict(zip(names, values, strict=True))
        if row["JobIDRaw"].isdecimal():
            yield row


def read_separated(
    text: str, separator: str, *, needed: Sequence[str] = NEEDED, steps: bool = False
) -> Iterator[Mapping[str, str]]:
    """Yield the fields of each job, and of its steps where they are wanted, by a separator that no user could know.

    The name of a job may hold bars and line ends: what it makes look like other jobs lacks the separator, and is left
    out.
    """
    lines = text.split("\n")
    names = _names(lines[0], separator, needed)
    for line in lines[1:]:
        values = line.split(separator)
        if len(values) == len(names):
            row = dict(zip(names, values, strict=True))
            if row["JobIDRaw"].isdecimal() or steps:
                yield row


def _names(line: str, separator: str, needed: Sequence[str] = NEEDED) -> list[str]:
    names = line.rstrip("\r\n").split(separator)
    missing = [name for name in needed if name not in names]
    if missing:
        raise BadRequest(f"The output of sacct has no field {missing[0]}.", hint=f"Make it with: {COMMAND}")
    return names


def _joined(names: list[str], values: list[str]) -> list[str]:
    """Put a name or command that has bars in it together again: one of the fields is free text."""
    free = next((names.index(name) for name in ("SubmitLine", "JobName") if name in names), 0)
    more = len(values) - len(names)
    return [*values[:free], "|".join(values[free : free + more + 1]), *values[free + more + 1 :]]


def is_set(text: str) -> bool:
    """Return whether a date or a number is there."""
    return text not in _NOT_YET


def state_word(text: str) -> str:
    """Return the word of a state: `CANCELLED by 1001` has more."""
    return text.partition(" ")[0]


def wait_status(text: str) -> int | None:
    """Return an exit code as the kernel writes it: Slurm has the code and the signal."""
    code, _, number = text.partition(":")
    if not (code.isdecimal() and (number or "0").isdecimal()):
        return None
    return (int(code) << 8) | int(number or 0)
