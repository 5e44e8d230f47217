"""The rules of findings: TOML text → conditions on facts, patterns for scripts, and texts.

`findings.toml` beside this module has those of Oarlock; a site's own file changes or adds some. Data, never code.
"""

import re
import string
import tomllib
from collections.abc import Iterable, Mapping
from enum import StrEnum
from functools import cache, lru_cache
from pathlib import Path
from typing import Final, TypeVar

import msgspec
from msgspec import Struct

from oarlock.insight.facts import FACTS, FactKind
from oarlock.insight.wording import LANGUAGES
from oarlock.lang import where
from oarlock.lang.limits import closest, short
from oarlock.model.condition import Condition
from oarlock.model.errors import OarlockError
from oarlock.model.submission_errors import BadRule

LONGEST_FILE: Final = 256 * 1024
LEAST_SAMPLES: Final = 10
_TYPES: Final[where.Types] = {
    name: str if fact.kind is FactKind.TEXT else int for name, fact in FACTS.items()
}  # fmt: skip
_ID: Final = re.compile(r"[a-z]+(\.[a-z_]+)+")


class Severity(StrEnum):
    """How much a finding matters."""

    BAD = "bad"
    WARN = "warn"


class FindingAction(StrEnum):
    """What is done about a job of which a rule finds something, beside saying so."""

    NONE = "none"
    WARN = "warn"
    DELETE = "delete"


ACTING: Final = ("gpu.zero", "gpu.idle_window")
"""The rules that may act: their GPUs are idle now, and others wait for them."""


class ActionExceptions(Struct, frozen=True):
    """For whose jobs, in which queues, and for which types of jobs nothing is done."""

    users: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    types: tuple[str, ...] = ()


class FindingText(Struct, frozen=True, forbid_unknown_fields=True):
    """What a finding says, what to do about it, and a line to paste; `{fact}` stands for the value of a fact."""

    text: str
    advice: str = ""


class FindingRule(Struct, frozen=True, kw_only=True):
    """A condition over the facts of a job. `bad` is looked at before `warn`; either may be missing."""

    id: str
    plot: str
    texts: Mapping[str, FindingText]
    bad: Condition | None = None
    warn: Condition | None = None
    least_seconds: int = 300
    least_samples: int = LEAST_SAMPLES
    line: str = ""
    act: FindingAction = FindingAction.NONE
    exceptions: ActionExceptions = ActionExceptions()


class ScriptRule(Struct, frozen=True, kw_only=True):
    """A pattern that is looked for in the script of a job, where a condition on its facts holds.

    `differs` names a fact: the number that the pattern's group matched has to be another one.
    """

    id: str
    pattern: re.Pattern[str]
    texts: Mapping[str, FindingText]
    severity: Severity = Severity.WARN
    unless: re.Pattern[str] | None = None
    when: Condition | None = None
    differs: str = ""


class FindingRules(Struct, frozen=True):
    """All rules, in the order in which they are shown."""

    findings: tuple[FindingRule, ...]
    scripts: tuple[ScriptRule, ...]


class _FindingTable(Struct, kw_only=True, forbid_unknown_fields=True):
    """A [[finding]] as it is written; what a site's file leaves out stays as it was."""

    id: str
    plot: str | None = None
    bad: str | None = None
    warn: str | None = None
    least_seconds: int | None = None
    least_samples: int | None = None
    text: str | None = None
    advice: str | None = None
    line: str | None = None
    act: FindingAction | None = None
    except_users: tuple[str, ...] | None = None
    except_queues: tuple[str, ...] | None = None
    except_types: tuple[str, ...] | None = None
    off: bool | None = None
    fr: FindingText | None = None


class _ScriptTable(Struct, kw_only=True, forbid_unknown_fields=True):
    """A [[script]] as it is written."""

    id: str
    pattern: str | None = None
    unless: str | None = None
    when: str | None = None
    differs: str | None = None
    severity: Severity | None = None
    text: str | None = None
    advice: str | None = None
    off: bool | None = None
    fr: FindingText | None = None


class _FileTable(Struct, kw_only=True, forbid_unknown_fields=True):
    finding: list[_FindingTable] = []
    script: list[_ScriptTable] = []


Table = TypeVar("Table", _FindingTable, _ScriptTable)


@cache
def own_rules() -> FindingRules:
    """Return the rules that come with Oarlock."""
    return read_rules(None)


def rules_in_force(site_file: Path | None) -> FindingRules:
    """Return the rules, read again when the site's file has changed."""
    if site_file is None:
        return own_rules()
    try:
        changed = site_file.stat().st_mtime_ns
    except OSError:
        changed = 0
    return _read_at(site_file, changed)


@lru_cache(maxsize=2)
def _read_at(site_file: Path, _changed: int) -> FindingRules:
    return read_rules(site_file)


def read_rules(site_file: Path | None) -> FindingRules:
    """Read Oarlock's rules with a site's file over them; `BadRule` says what to change in it."""
    own = _parse(Path(__file__).with_name("findings.toml").read_text(), "findings.toml")
    if site_file is None:
        return _build(own, "findings.toml")
    try:
        text = site_file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise BadRule(f"{site_file} cannot be read: {error}.", hint="Name another in FINDINGS_FILE.") from error
    site = _parse(text, str(site_file))
    merged = _FileTable(finding=_merge(own.finding, site.finding), script=_merge(own.script, site.script))
    return _build(merged, str(site_file))


def _parse(text: str, file: str) -> _FileTable:
    if len(text) > LONGEST_FILE:
        raise BadRule(f"{file} has {len(text)} characters; at most {LONGEST_FILE} are read.")
    try:
        return msgspec.convert(tomllib.loads(text), _FileTable)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError, RecursionError) as error:
        raise BadRule(
            f"{file}: {' '.join(str(error).split())}.", hint="`oarlock findings --rules` shows how rules are written."
        ) from None


def _merge(own: Iterable[Table], site: Iterable[Table]) -> list[Table]:
    """Put a site's tables over ours, key by key; tables of a new name come last."""
    merged: dict[str, Table] = {table.id: table for table in own}
    for table in site:
        before = merged.get(table.id)
        if before is None:
            merged[table.id] = table
            continue
        changes = {key: value for key, value in msgspec.structs.asdict(table).items() if value is not None}
        merged[table.id] = msgspec.structs.replace(before, **changes)
    return list(merged.values())


def _build(tables: _FileTable, file: str) -> FindingRules:
    return FindingRules(
        tuple(_finding(table, file) for table in tables.finding if not table.off),
        tuple(_script(table, file) for table in tables.script if not table.off),
    )


def _finding(table: _FindingTable, file: str) -> FindingRule:
    place = _checked_id(table.id, file)
    if table.bad is None and table.warn is None:
        raise BadRule(f"{place}: it has no condition.", hint='Write bad = "…", warn = "…", or both.')
    return FindingRule(
        id=table.id,
        plot=table.plot or table.id.partition(".")[0],
        texts=_texts(table, place),
        bad=_condition(table.bad, place),
        warn=_condition(table.warn, place),
        least_seconds=300 if table.least_seconds is None else table.least_seconds,
        least_samples=LEAST_SAMPLES if table.least_samples is None else table.least_samples,
        line=_template(table.line or "", place),
        act=_action(table, place),
        exceptions=ActionExceptions(table.except_users or (), table.except_queues or (), table.except_types or ()),
    )


def _action(table: _FindingTable, place: str) -> FindingAction:
    act = table.act or FindingAction.NONE
    if act is not FindingAction.NONE and table.id not in ACTING:
        raise BadRule(f"{place}: nothing can be done about it.", hint=f"`act` belongs to {' and '.join(ACTING)}.")
    return act


def _script(table: _ScriptTable, file: str) -> ScriptRule:
    place = _checked_id(table.id, file)
    if table.pattern is None:
        raise BadRule(f"{place}: it has no pattern.", hint="Write pattern = '…'.")
    return ScriptRule(
        id=table.id,
        pattern=_pattern(table.pattern, place),
        unless=None if table.unless is None else _pattern(table.unless, place),
        severity=table.severity or Severity.WARN,
        texts=_texts(table, place),
        when=_condition(table.when, place),
        differs=_differs(table, place),
    )


def _differs(table: _ScriptTable, place: str) -> str:
    name = table.differs or ""
    if name and name not in FACTS:
        raise BadRule(f"{place}: there is no fact `{short(name)}`.", hint=closest(name, FACTS))
    if name and _pattern(table.pattern or "", place).groups != 1:
        raise BadRule(f"{place}: with `differs` the pattern has one group, the number.", hint=r"Write (\d+) in it.")
    return name


def _checked_id(name: str, file: str) -> str:
    if not _ID.fullmatch(name):
        raise BadRule(
            f"{file}: `{short(name)}` is not the name of a finding.", hint="Write a group and a name: cpu.low."
        )
    return f"{file}, `{name}`"


def _texts(table: _FindingTable | _ScriptTable, place: str) -> Mapping[str, FindingText]:
    if table.text is None:
        raise BadRule(f"{place}: it has no text.", hint='Write text = "…"; {cores} and other facts may stand in it.')
    english = FindingText(_template(table.text, place), _template(table.advice or "", place))
    french = table.fr
    if french is None:
        return dict.fromkeys(LANGUAGES, english)
    return {"en": english, "fr": FindingText(_template(french.text, place), _template(french.advice, place))}


def _template(text: str, place: str) -> str:
    try:
        names = [name for _, name, _, _ in string.Formatter().parse(text) if name is not None]
    except ValueError as error:
        raise BadRule(f"{place}: the text `{short(text)}` is not a template: {error}.") from None
    for name in names:
        if name not in FACTS:
            raise BadRule(f"{place}: there is no fact `{short(name)}`.", hint=closest(name, FACTS))
    return text


def _condition(text: str | None, place: str) -> Condition | None:
    if text is None:
        return None
    try:
        return where.check(where.parse(text, limits=where.STORED), _TYPES)
    except OarlockError as problem:
        raise BadRule(f"{place}: {problem}", hint=problem.hint) from problem


def _pattern(text: str, place: str) -> re.Pattern[str]:
    try:
        return re.compile(text, re.MULTILINE)
    except re.error as error:
        raise BadRule(f"{place}: `{short(text)}` is not a regular expression: {error}.") from None
