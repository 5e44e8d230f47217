"""From a file to values: every key known, given once, and of its kind."""

import os
import re
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

from oarlock.model.errors import ConfigRefused
from oarlock.settings import bash, secret
from oarlock.settings.bash import BashAssignment
from oarlock.settings.kinds import YES_NO, BadValue, NoEffect, SettingKind
from oarlock.settings.secret import Secret
from oarlock.settings.unused import UNUSED

_PAIR = re.compile(r"""\s*(?:'([^']*)'|"([^"]*)"|([\w.-]+))\s*=>\s*([0-9.]+)\s*""")


class TwinKey(NamedTuple):
    """The key that a setting of OAR 2.5 is here, and how its value is rewritten."""

    name: str
    rewrite: Callable[[str], str] = str


def _targets(text: str) -> str:
    """Rewrite OAR's `{first => 75, default => 25.0}` as `first=75 default=25.0`."""
    stripped = text.strip()
    if not (stripped.startswith("{") and stripped.endswith("}")):
        return text
    pairs = []
    for entry in filter(str.strip, stripped[1:-1].split(",")):
        match = _PAIR.fullmatch(entry)
        if match is None:
            raise ValueError(entry)
        pairs.append(f"{match[1] or match[2] or match[3]}={match[4]}")
    return " ".join(pairs)


TWINS: Mapping[str, TwinKey] = {
    "SCHEDULER_FAIRSHARING_WINDOW_SIZE": TwinKey("KARMA_WINDOW"),
    "SCHEDULER_FAIRSHARING_PROJECT_TARGETS": TwinKey("KARMA_PROJECT_TARGETS", _targets),
    "SCHEDULER_FAIRSHARING_USER_TARGETS": TwinKey("KARMA_USER_TARGETS", _targets),
    "SCHEDULER_FAIRSHARING_COEF_PROJECT": TwinKey("KARMA_COEFF_PROJECT_CONSUMPTION"),
    "SCHEDULER_FAIRSHARING_COEF_USER": TwinKey("KARMA_COEFF_USER_CONSUMPTION"),
    "SCHEDULER_FAIRSHARING_COEF_USER_ASK": TwinKey("KARMA_COEFF_USER_ASKED_CONSUMPTION"),
    "ENERGY_SAVING_NODE_MANAGER_WAKE_UP_CMD": TwinKey("SCHEDULER_NODE_MANAGER_WAKE_UP_CMD"),
    "ENERGY_SAVING_NODE_MANAGER_SLEEP_CMD": TwinKey("SCHEDULER_NODE_MANAGER_SLEEP_CMD"),
    "ENERGY_SAVING_NODE_MANAGER_WAKEUP_TIMEOUT": TwinKey("SCHEDULER_NODE_MANAGER_WAKEUP_TIMEOUT"),
    "ENERGY_SAVING_NODES_KEEPALIVE": TwinKey("SCHEDULER_NODE_MANAGER_KEEP_AWAKE"),
    "ENERGY_SAVING_WINDOW_SIZE": TwinKey("SCHEDULER_NODE_MANAGER_WINDOW_SIZE"),
    "ENERGY_SAVING_WINDOW_TIME": TwinKey("SCHEDULER_NODE_MANAGER_WINDOW_TIME"),
    "ENERGY_SAVING_WINDOW_TIMEOUT": TwinKey("SCHEDULER_NODE_MANAGER_TIMEOUT"),
    "LEON_SOFT_WALLTIME": TwinKey("JOBDEL_SOFTWALLTIME"),
    "LEON_WALLTIME": TwinKey("JOBDEL_WALLTIME"),
}
"""OAR's key → ours."""

OFF_SWITCHES: Mapping[str, str] = {"ENERGY_SAVING_INTERNAL": "ENERGY_SAVING_"}
"""OAR's keys that, set to `no`, make all keys that begin with the same letters mean nothing."""


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
        elif assignment.name in TWINS or assignment.name in OFF_SWITCHES:
            twins.append(assignment)
        elif assignment.name in UNUSED:
            warnings.append(f"{where}: {assignment.name} has no effect: {UNUSED[assignment.name]}.")
        else:
            _refuse_unknown(assignment.name, kinds, where)
    warnings += _read_twins(twins, values, lines, kinds, file)
    return ParsedSettings(values, lines, tuple(warnings))


def _read_twins(
    assignments: Sequence[BashAssignment],
    values: dict[str, Any],
    lines: dict[str, int],
    kinds: Mapping[str, SettingKind[Any]],
    file: str,
) -> list[str]:
    """Read keys of OAR 2.5 as their twins; a twin that is set itself wins. Return the warnings."""
    warnings = []
    off = _switched_off(assignments, file)
    for assignment in assignments:
        twin, where = TWINS.get(assignment.name), f"{file}, line {assignment.line}"
        if twin is None:
            continue
        if switch := next((switch for switch in off if assignment.name.startswith(OFF_SWITCHES[switch])), None):
            warnings.append(f"{where}: {assignment.name} has no effect: {switch} is `no`.")
            continue
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


def _switched_off(assignments: Iterable[BashAssignment], file: str) -> list[str]:
    """Return the keys that are `no` and thereby switch others off."""
    return [
        assignment.name
        for assignment in assignments
        if assignment.name in OFF_SWITCHES and not _value(assignment, YES_NO, f"{file}, line {assignment.line}")
    ]


def _value(assignment: BashAssignment, kind: SettingKind[Any], where: str) -> Any:
    try:
        return kind.read(assignment.value)
    except NoEffect:
        raise
    except ValueError as problem:
        hint = str(problem) if isinstance(problem, BadValue) else ""
        raise ConfigRefused(
            f"{where}: {assignment.name} is `{_shortened(assignment.value)}`; expected {kind.expected}.", hint=hint
        ) from problem


def _refuse_twice(name: str, lines: Mapping[str, int], where: str) -> None:
    if name in lines:
        raise ConfigRefused(
            f"{where}: {name} is already set on line {lines[name]}.", hint="Keep the line that you mean."
        )


def _refuse_unknown(name: str, kinds: Mapping[str, SettingKind[Any]], where: str) -> None:
    names = [*kinds, *TWINS, *OFF_SWITCHES, *UNUSED]
    close = get_close_matches(name.upper(), names, n=1) if len(name) <= _LONGEST_NAME else []
    hint = f"Did you mean {close[0]}?" if close else "`oarlock config` lists all settings."
    raise ConfigRefused(f"{where}: there is no setting {_shortened(name)}.", hint=hint)


def _shortened(text: str) -> str:
    line = text.replace("\n", " ")
    return line if len(line) <= _SHOWN else f"{line[:_SHOWN]}…"
