"""`#OAR` lines of a script → fields of its submission. What was said outside the script is stronger."""

import argparse
from collections.abc import Sequence
from functools import cache
from typing import Any, NoReturn

import msgspec

from oarlock.job.admission import warnings
from oarlock.job.admission.payload import SubmissionPayload
from oarlock.job.admission.size_limits import ARRAY_MEMBERS
from oarlock.lang import directives
from oarlock.lang.limits import short
from oarlock.lang.signals import signal_number
from oarlock.model.submission_errors import BadDirective

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
    return options


def _signal(name: str) -> int:
    number = signal_number(name)
    if number is None:
        raise ValueError(name)
    return number


def apply_directives(body: SubmissionPayload) -> SubmissionPayload:
    """Return the submission with the directives of its script. Alternatives, types and dependencies add up."""
    if body.script is None:
        return body
    warnings.refuse_windows_lines(body.script)
    changes: dict[str, Any] = {}
    for line, words in directives.scan(body.script):
        for field, value in _read(line, words).items():
            if field in _ADDED_UP:
                changes[field] = [*changes.get(field, getattr(body, field)), *value]
            elif value and not _given(body, field):
                changes[field] = value
    return msgspec.structs.replace(body, **changes)


def _given(body: SubmissionPayload, field: str) -> bool:
    """Return whether a field was set outside the script."""
    value = getattr(body, field)
    return value is not None and value != _DEFAULTS.get(field)


_DEFAULTS = {"directory": "/", "hold": False, "use_key": False, "interactive": False}


def _read(line: int, words: Sequence[str]) -> dict[str, Any]:
    try:
        options = vars(_options().parse_args(list(words)))
    except ValueError as problem:
        raise BadDirective(
            f"Line {line} of the script, `#OAR {short(' '.join(words))}`, cannot be followed: {short(str(problem))}.",
            hint="It takes the options of oarsub that name no other file.",
        ) from None
    members = options.pop("array")
    if members is not None:
        options["array"] = _members(line, members)
    return options


def _members(line: int, count: int) -> list[str]:
    if not 0 < count <= ARRAY_MEMBERS:
        raise BadDirective(
            f"Line {line} of the script asks for an array of {count} jobs.", hint=f"Give 1 to {ARRAY_MEMBERS}."
        )
    return [""] * count
