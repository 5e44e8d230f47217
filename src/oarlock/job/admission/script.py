"""`#OAR` lines of a script → fields of its submission. What was said outside the script is stronger.

This is the only place that reads them: commands and other clients send the script.
"""

import argparse
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple, NoReturn

import msgspec

from oarlock.job.admission import warnings
from oarlock.job.admission.payload import ARRAY_MEMBERS, SubmissionPayload
from oarlock.lang import directives
from oarlock.lang.limits import short
from oarlock.lang.signals import signal_number
from oarlock.model.submission_errors import BadDirective, ParameterFileNeeded, StageInNeeded

_Names = dict[str, tuple[str, ...]]
_LISTS: _Names = {"resources": ("-l", "--resource"), "types": ("-t", "--type")}
_TEXTS: _Names = {
    "queue": ("-q", "--queue"),
    "properties": ("-p", "--property"),
    "reservation": ("-r", "--reservation"),
    "directory": ("-d", "--directory"),
    "project": ("--project",),
    "name": ("-n", "--name"),
    "notify": ("--notify",),
    "stdout": ("-O", "--stdout"),
    "stderr": ("-E", "--stderr"),
}
_ADDED_UP = frozenset({*_LISTS, "after"})
_NUMBERS: _Names = {"checkpoint": ("--checkpoint",)}
_FLAGS: _Names = {"hold": ("--hold",), "use_key": ("-k", "--use-job-key"), "interactive": ("-I", "--interactive")}
_ONLY_TYPED = (
    "-S", "--scanscript", "--resubmit", "--dry-run", "--advise", "--server", "-h", "--help", "-V", "--version",
    "--stagein-md5sum", "-D", "--dumper", "-X", "--xml", "-Y", "--yaml", "-J", "--json", "-C", "--connect",
    "-i", "--import-job-key-from-file", "--import-job-key-inline", "-e", "--export-job-key-to-file",
    "--ssh_private_key", "--ssh_public_key",
)  # fmt: skip


class ScriptedPayload(NamedTuple):
    """A submission with the directives of its script, and what its user is told about them."""

    payload: SubmissionPayload
    notes: tuple[str, ...] = ()


class _Options(argparse.ArgumentParser):
    """Options of `oarsub` as a script may carry them; a mistake is raised, never printed."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(message)


@cache
def _options() -> _Options:
    options = _Options(prog="#OAR", add_help=False, allow_abbrev=False)
    for field, names in _LISTS.items():
        options.add_argument(*names, dest=field, action="append", default=[])
    for field, names in _TEXTS.items():
        options.add_argument(*names, dest=field)
    for field, names in _NUMBERS.items():
        options.add_argument(*names, dest=field, type=int)
    for field, names in _FLAGS.items():
        options.add_argument(*names, dest=field, action="store_true")
    options.add_argument("--signal", type=_signal)
    options.add_argument("-a", "--anterior", dest="after", type=int, action="append", default=[])
    options.add_argument("--array", dest="array", type=int)
    options.add_argument("--array-param-file", dest="parameter_file")
    options.add_argument("-s", "--stagein", dest="archive")
    return options


def _signal(name: str) -> int:
    number = signal_number(name)
    if number is None:
        raise ValueError(name)
    return number


def apply_directives(body: SubmissionPayload) -> ScriptedPayload:
    """Return the submission with the directives of its script. Alternatives, types and dependencies add up.

    `ParameterFileNeeded`: the lines of a file that the script names have to be sent as well.
    """
    if body.script is None:
        return ScriptedPayload(body)
    warnings.refuse_windows_lines(body.script)
    changes: dict[str, Any] = {}
    notes: list[str] = []
    for line, words in directives.scan(body.script):
        for field, value in _read(line, words, body).items():
            if field in _ADDED_UP:
                changes[field] = [*changes.get(field, getattr(body, field)), *value]
            elif not value:
                continue
            elif _given(body, field):
                notes.append(_overridden(line, field, value))
            else:
                changes[field] = value
    return ScriptedPayload(msgspec.structs.replace(body, **changes), tuple(notes))


def _overridden(line: int, field: str, value: object) -> str:
    name = {**_TEXTS, **_NUMBERS, **_FLAGS}.get(field, (f"--{field}",))[-1]
    written = "" if value is True else f" {len(value) if isinstance(value, list) else value}"
    return f"Line {line} of the script ({name}{short(written)}) gives way to what was given beside it."


def _given(body: SubmissionPayload, field: str) -> bool:
    """Return whether a field was set outside the script."""
    value = getattr(body, field)
    return value is not None and value != _DEFAULTS.get(field)


_DEFAULTS = {"directory": "", "hold": False, "use_key": False, "interactive": False}


def _read(line: int, words: Sequence[str], body: SubmissionPayload) -> dict[str, Any]:
    _refuse_misplaced(line, words)
    try:
        options = vars(_options().parse_args(list(words)))
    except ValueError as problem:
        raise _bad(line, words, short(str(problem))) from None
    members, parameter_file = options.pop("array"), options.pop("parameter_file")
    archive = options.pop("archive")
    if archive is not None and body.file_id is None and body.resubmit is None:
        raise StageInNeeded(
            f"Line {line} of the script names files, `{short(archive)}`, that were not sent.", path=archive
        )
    if members is not None:
        options["array"] = _members(line, members)
    elif parameter_file is not None:
        if body.array is None:
            raise ParameterFileNeeded(
                f"Line {line} of the script names a parameter file, `{short(parameter_file)}`, that was not sent.",
                path=parameter_file,
            )
        options["array"] = []  # its lines were sent
    return options


def _refuse_misplaced(line: int, words: Sequence[str]) -> None:
    """Refuse options that a script cannot carry by their names: the parser would say that they are unknown."""
    for word in words:
        name = word.partition("=")[0] if word.startswith("--") else word[:2]
        if name in _ONLY_TYPED:
            raise _bad(line, words, f"{name} has no place in a script", hint="Give it on the command line.")


def _bad(line: int, words: Sequence[str], why: str, *, hint: str = "") -> BadDirective:
    return BadDirective(
        f"Line {line} of the script, `#OAR {short(' '.join(words))}`, cannot be followed: {why}.",
        hint=hint or "It takes the options of oarsub, and no command.",
    )


def _members(line: int, count: int) -> list[str]:
    if not 0 < count <= ARRAY_MEMBERS:
        raise BadDirective(
            f"Line {line} of the script asks for an array of {count} jobs.", hint=f"Give 1 to {ARRAY_MEMBERS}."
        )
    return [""] * count
