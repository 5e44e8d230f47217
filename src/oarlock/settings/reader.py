"""From a file to values: every key known, given once, and of its kind."""

import os
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from oarlock.model.errors import ConfigRefused
from oarlock.settings import bash, secret
from oarlock.settings.bash import BashAssignment
from oarlock.settings.kinds import BadValue, NoEffect, SettingKind
from oarlock.settings.secret import Secret
from oarlock.settings.twins import TWINS
from oarlock.settings.unused import UNUSED

_LONGEST_NAME = 80  # longer ones resemble no key, and comparing them would take long
_SHOWN = 60


@dataclass(frozen=True, slots=True)
class ParsedSettings:
    """The settings of a file: values by key, the line of each, and warnings for the administrator."""

    values: Mapping[str, Any]
    lines: Mapping[str, int]
    warnings: tuple[str, ...]


def read(path: Path, kinds: Mapping[str, SettingKind[Any]]) -> ParsedSettings:
    """Read a file; one that is not there is a `FileNotFoundError`, all else that is wrong with it is refused."""
    try:
        with path.open("rb") as file:
            return _read(file.read(bash.LONGEST_FILE + 1), kinds, str(path), os.fstat(file.fileno()))
    except FileNotFoundError:
        raise
    except OSError as problem:
        raise ConfigRefused(f"The settings file {path} cannot be read: {problem.strerror}.") from problem


def _read(content: bytes, kinds: Mapping[str, SettingKind[Any]], file: str, status: os.stat_result) -> ParsedSettings:
    # Settings name programs that the server runs: whoever writes them is the server.
    if status.st_mode & stat.S_IWOTH:
        raise ConfigRefused(f"{file} can be written by everybody.", hint=f"chmod o-w {file}")
    try:
        text = content.decode()
    except UnicodeDecodeError as problem:
        raise ConfigRefused(f"{file} is not UTF-8 text (byte {problem.start}).") from problem
    parsed = bind(bash.assignments(text, file=file), kinds, file=file)
    for key, value in parsed.values.items():
        if isinstance(value, Secret):
            secret.check_plain(key, value, file=file, status=status)
    return parsed


def bind(assignments: Iterable[BashAssignment], kinds: Mapping[str, SettingKind[Any]], *, file: str) -> ParsedSettings:
    """Parse each assignment by its kind; `ConfigRefused` for an unknown key, a bad value or a second assignment."""
    values: dict[str, Any] = {}
    lines: dict[str, int] = {}
    warnings: list[str] = []
    twins: list[BashAssignment] = []
    for assignment in assignments:
        where = f"{file}, line {assignment.line}"
        _refuse_twice(assignment.name, lines, where)
        lines[assignment.name] = assignment.line
        if assignment.name in kinds:
            try:
                values[assignment.name] = _value(assignment, kinds[assignment.name], where)
            except NoEffect as reason:
                warnings.append(f"{where}: {assignment.name} has no effect: {reason}.")
        elif assignment.name in TWINS:
            twins.append(assignment)
        elif assignment.name in UNUSED:
            warnings.append(f"{where}: {assignment.name} has no effect: {UNUSED[assignment.name]}.")
        else:
            _refuse_unknown(assignment.name, kinds, where)
    warnings += _read_twins(twins, values, lines, kinds, file)
    return ParsedSettings(values, lines, tuple(warnings))


def _read_twins(
    assignments: Iterable[BashAssignment],
    values: dict[str, Any],
    lines: dict[str, int],
    kinds: Mapping[str, SettingKind[Any]],
    file: str,
) -> list[str]:
    """Read keys of OAR 2.5 as their twins; a twin that is set itself wins. Return the warnings."""
    warnings = []
    for assignment in assignments:
        twin, where = TWINS[assignment.name], f"{file}, line {assignment.line}"
        if twin.name in lines:
            warnings.append(f"{where}: {assignment.name} has no effect: {twin.name} is set, too.")
            continue
        if twin.name not in kinds:
            continue
        try:
            rewritten = twin.rewrite(assignment.value)
        except ValueError:
            rewritten = assignment.value  # the kind refuses it with a sentence
        values[twin.name] = _value(replace(assignment, value=rewritten), kinds[twin.name], where)
        lines[twin.name] = assignment.line
    return warnings


def _value(assignment: BashAssignment, kind: SettingKind[Any], where: str) -> Any:
    try:
        return kind.read(assignment.value)
    except NoEffect:
        raise
    except ValueError as problem:
        story = str(problem) if isinstance(problem, BadValue) else ""
        raise ConfigRefused(
            f"{where}: {assignment.name} is `{_shortened(assignment.value)}`; expected {kind.expected}.", hint=story
        ) from problem


def _refuse_twice(name: str, lines: Mapping[str, int], where: str) -> None:
    if name in lines:
        raise ConfigRefused(
            f"{where}: {name} is already set on line {lines[name]}.", hint="Keep the line that you mean."
        )


def _refuse_unknown(name: str, kinds: Mapping[str, SettingKind[Any]], where: str) -> None:
    names = [*kinds, *TWINS, *UNUSED]
    close = get_close_matches(name.upper(), names, n=1) if len(name) <= _LONGEST_NAME else []
    hint = f"Did you mean {close[0]}?" if close else "`oarlock config` lists all settings."
    raise ConfigRefused(f"{where}: there is no setting {_shortened(name)}.", hint=hint)


def _shortened(text: str) -> str:
    line = text.replace("\n", " ")
    return line if len(line) <= _SHOWN else f"{line[:_SHOWN]}…"
