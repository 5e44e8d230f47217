"""TOML text → rules and the examples beside them. A mistake is named with its file and its rule."""

import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from oarlock.lang import duration, options
from oarlock.lang import where as conditions
from oarlock.lang.limits import closest, short
from oarlock.lang.rules import changes, evaluate
from oarlock.lang.rules.changes import SubmissionChange
from oarlock.lang.rules.evaluate import RuleCondition
from oarlock.lang.rules.vocabulary import PLACES, Template
from oarlock.model.condition import Condition
from oarlock.model.errors import OarlockError
from oarlock.model.submission_errors import BadRule

LONGEST_FILE = 256 * 1024
MOST_RULES = 1000

_AT = re.compile(r"^(.*) \(at (?:line ([0-9]+), column [0-9]+|end of document)\)$", re.DOTALL)
_TYPE_PLACE, _LEVEL_PLACE = frozenset({"type"}), frozenset({"level"})


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionRule:
    """One rule. Where `when` is true it makes its changes, says its texts, and rejects if it has `reject`.

    With `allow_types` or `refuse_levels` it rejects only a job that has another type, or counts one of these levels.
    """

    name: str
    file: str
    when: RuleCondition | None = None
    changes: tuple[SubmissionChange, ...] = ()
    prints: Template | None = None
    warns: Template | None = None
    reject: Template | None = None
    allow_types: tuple[str, ...] | None = None
    refuse_levels: frozenset[str] | None = None
    does: tuple[str, ...] = ()  # the keys it was written with, for listings


@dataclass(frozen=True, slots=True)
class RuleExample:
    """A job, what the rules of the same file know beside it, and what comes out."""

    name: str
    file: str
    job: Mapping[str, Any]
    given: Mapping[str, Any]
    gives: Mapping[str, Any]
    refused: str | None = None


@dataclass(frozen=True, slots=True)
class RuleFile:
    """What one file holds."""

    rules: tuple[AdmissionRule, ...] = ()
    examples: tuple[RuleExample, ...] = field(default=())


def read(text: str, *, file: str) -> RuleFile:
    """Read a file of rules; `BadRule` says what to change."""
    if len(text) > LONGEST_FILE:
        raise BadRule(f"{file} has {len(text)} characters; at most {LONGEST_FILE} are read.", hint="Cut it in two.")
    tables = _toml(text, file)
    for key in tables:
        if key not in {"rule", "example"}:
            raise BadRule(f"{file}: there is no table `{short(key)}`.", hint="There are [[rule]] and [[example]].")
    rules = tuple(_rule(table, file, place) for place, table in enumerate(_listed(tables, "rule", file), 1))
    examples = tuple(_example(table, file, place) for place, table in enumerate(_listed(tables, "example", file), 1))
    return RuleFile(rules, examples)


def _toml(text: str, file: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as problem:
        match = _AT.match(str(problem))
        says, line = (match[1], match[2]) if match else (str(problem), None)
        place = f"{file}, line {line}" if line else f"{file}, at its end"
        raise BadRule(
            f"{place}: this is not TOML: {' '.join(says.split())}.", hint="toml.io shows how it is written."
        ) from None
    except (RecursionError, ValueError):
        raise BadRule(
            f"{file}: this is not TOML that can be read.", hint="Nest less, and write dates as texts."
        ) from None


def _listed(tables: Mapping[str, Any], key: str, file: str) -> list[dict[str, Any]]:
    listed = tables.get(key, [])
    if not isinstance(listed, list) or not all(isinstance(table, dict) for table in listed):
        raise BadRule(f"{file}: `{key}` is not a list of tables.", hint=f"Write [[{key}]], with two brackets.")
    if len(listed) > MOST_RULES:
        raise BadRule(f"{file}: there are {len(listed)} [[{key}]]; at most {MOST_RULES} are read.")
    return listed


def _rule(table: Mapping[str, Any], file: str, place: int) -> AdmissionRule:
    name = table.get("name")
    if not isinstance(name, str) or not name.strip():
        raise BadRule(f"{file}, rule {place}: it has no name.", hint='Give it one: name = "what it is for".')
    try:
        return _Reader(table, name, file).rule()
    except BadRule:
        raise
    except OarlockError as problem:
        raise BadRule(f"{file}, rule `{short(name)}`: {problem}", hint=problem.hint) from problem


class _Reader:
    """Reads one [[rule]]."""

    def __init__(self, table: Mapping[str, Any], name: str, file: str) -> None:
        self.table, self.name, self.file = table, name, file

    def rule(self) -> AdmissionRule:
        made: list[SubmissionChange] = []
        for key, value in self.table.items():
            if key not in KEYS:
                raise self.bad(f"there is no `{short(key)}`", closest(key, KEYS))
            if key in _CHANGES:
                made += _CHANGES[key](self, key, value)
        rule = AdmissionRule(
            name=self.name, file=self.file, when=self.when(), changes=tuple(made),
            prints=self.template("print"), warns=self.template("warn"), reject=self.template("reject"),
            allow_types=self.texts("allow_types"), refuse_levels=self.levels(),
            does=tuple(key for key in self.table if key not in {"name", "when"}),
        )  # fmt: skip
        self.check(rule)
        return rule

    def check(self, rule: AdmissionRule) -> None:
        """Refuse rules that could not mean what they say."""
        tests = [key for key in ("allow_types", "refuse_levels") if key in self.table]
        if len(tests) == 2 or (tests and rule.reject is None):
            raise self.bad(f"`{tests[0]}` needs a `reject` and nothing else to test", "Make two rules of it.")
        if rule.reject is not None and (rule.changes or rule.prints or rule.warns):
            raise self.bad("it rejects the job and does something else with it", "Make two rules of it.")
        if not rule.does:
            raise self.bad("it does nothing", f"It can {', '.join(sorted(KEYS - {'name', 'when'}))}.")

    def when(self) -> RuleCondition | None:
        text = self.table.get("when")
        if text is None:
            return None
        if not isinstance(text, str):
            raise self.expected("when", "a condition in quotes")
        return evaluate.read(text)

    def template(self, key: str) -> Template | None:
        text = self.table.get(key)
        if text is None:
            return None
        if not isinstance(text, str) or not text.strip():
            raise self.expected(key, "a text")
        more = _TYPE_PLACE if "allow_types" in self.table else _LEVEL_PLACE if "refuse_levels" in self.table else None
        return self.placed(key, text, more or frozenset())

    def placed(self, key: str, text: str, more: frozenset[str] = frozenset()) -> Template:
        template = Template(text)
        if (placeholder := template.unknown(more)) is not None:
            raise self.bad(f"`{key}` has no field for {{{short(placeholder)}}}", closest(placeholder, PLACES | more))
        return template

    def texts(self, key: str) -> tuple[str, ...] | None:
        value = self.table.get(key)
        if value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.expected(key, "a list of texts")
        return tuple(value)

    def levels(self) -> frozenset[str] | None:
        named = self.texts("refuse_levels")
        return None if named is None else frozenset(name.lower() for name in named)

    def sets(self, key: str, value: Any) -> Iterator[SubmissionChange]:
        if not isinstance(value, dict) or not value:
            raise self.expected(key, 'fields and values, such as { queue = "night" }')
        for name, item in value.items():
            if name == "walltime":
                yield changes.SetWalltime(_WALLTIMES[key], self.seconds(key, item))
            elif key in {"clamp_max", "clamp_min"}:
                raise self.bad(f"`{key}` is for the walltime, not for `{short(name)}`", "Use `reject` with a `when`.")
            else:
                yield self.set_one(key, name, item)

    def set_one(self, key: str, name: str, value: Any) -> SubmissionChange:
        if name not in changes.SETTABLE:
            raise self.bad(f"`{short(name)}` is nothing to {key}", closest(name, [*changes.SETTABLE, "walltime"]))
        settable = changes.SETTABLE[name]
        if type(value) is not settable.kind:
            raise self.expected(f"{key}.{name}", _KINDS[settable.kind])
        if isinstance(value, str):
            template = self.placed(f"{key}.{name}", value)
            if "{" not in value:
                settable.check(value)
            return changes.SetField(name, template, key == "default")
        return changes.SetField(name, settable.check(value), key == "default")

    def seconds(self, key: str, value: Any) -> Template | int:
        if type(value) is int and 0 < value <= duration.LONGEST:
            return value
        if not isinstance(value, str):
            raise self.expected(f"{key}.walltime", "seconds, or a text like '12:00:00'")
        return self.placed(f"{key}.walltime", value) if "{" in value else duration.parse(value)

    def route(self, key: str, value: Any) -> Iterator[SubmissionChange]:
        yield self.set_one(key, "queue", value)

    def add_types(self, key: str, value: Any) -> Iterator[SubmissionChange]:
        yield changes.AddTypes([options.type_(type_) for type_ in self.some_texts(key, value)])

    def remove_types(self, key: str, value: Any) -> Iterator[SubmissionChange]:
        yield changes.RemoveTypes(self.some_texts(key, value))

    def some_texts(self, key: str, value: Any) -> list[str]:
        named = [value] if isinstance(value, str) else value
        if not isinstance(named, list) or not named or not all(isinstance(item, str) for item in named):
            raise self.expected(key, "a text or a list of texts")
        return named

    def constrain(self, key: str, value: Any) -> Iterator[SubmissionChange]:
        if not isinstance(value, str):
            raise self.expected(key, "a condition in quotes")
        self.placed(key, value)
        yield _CONSTRAINTS[key](conditions.parse(value))

    def expected(self, key: str, what: str) -> BadRule:
        return self.bad(f"`{key}` expects {what}", "")

    def bad(self, what: str, hint: str) -> BadRule:
        return BadRule(f"{self.file}, rule `{short(self.name)}`: {what}.", hint=hint)


_KINDS = {str: "a text", int: "a whole number", bool: "true or false"}
_WALLTIMES: Mapping[str, Callable[[int | None, int], int | None]] = {
    "set": changes.always,
    "default": changes.missing,
    "clamp_max": changes.at_most,
    "clamp_min": changes.at_least,
}
_CONSTRAINTS: Mapping[str, Callable[[Condition], SubmissionChange]] = {
    "add_constraint": changes.Constrain,
    "add_constraint_to_groups": changes.ConstrainGroups,
    "add_constraint_after_validation": changes.ConstrainAfter,
}
_CHANGES: Mapping[str, Callable[[_Reader, str, Any], Iterable[SubmissionChange]]] = {
    **dict.fromkeys(_WALLTIMES, _Reader.sets),
    **dict.fromkeys(_CONSTRAINTS, _Reader.constrain),
    "route": _Reader.route,
    "add_type": _Reader.add_types,
    "remove_type": _Reader.remove_types,
}
KEYS = frozenset({"name", "when", "print", "warn", "reject", "allow_types", "refuse_levels", *_CHANGES})


def _example(table: Mapping[str, Any], file: str, place: int) -> RuleExample:
    name = str(table.get("name", f"example {place}"))
    where = f"{file}, example `{short(name)}`"
    for key, value in table.items():
        if key not in {"name", "job", "given", "gives", "refused"}:
            raise BadRule(f"{where}: there is no `{short(key)}`.", hint="It has job, given, gives or refused.")
        if not isinstance(value, str if key in {"name", "refused"} else dict):
            raise BadRule(f"{where}: `{key}` is not of the right kind.", hint="See the rules that are shipped.")
    if ("gives" in table) == ("refused" in table):
        raise BadRule(f"{where}: say what comes out.", hint="Give `gives` or `refused`, and not both.")
    return RuleExample(
        name, file, table.get("job", {}), table.get("given", {}), table.get("gives", {}), table.get("refused")
    )
