"""The admission rules of a site, loaded from three places: the shipped files, the site's files, the database table.

A file of the site replaces the shipped one of the same name; an empty one switches it off. What cannot be read becomes
a source that refuses every job with the reason: a broken rule lets no job through.
"""

import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby
from pathlib import Path

from oarlock.lang import rules
from oarlock.lang.rules import AdmissionRule, RuleExample, perl
from oarlock.lang.rules.parse import LONGEST_FILE
from oarlock.model.errors import OarlockError
from oarlock.model.submission_errors import BadRule, RuleNotTrusted
from oarlock.settings.kinds import PerlRules
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.site import administration
from oarlock.store.queries.site.administration import StoredRule

SHIPPED = Path(__file__).parents[2] / "rules"
OPTIONAL = SHIPPED / "optional"
LONGEST_LIST = 1024 * 1024
PERL_HINT = "docs/running-a-site/admission-rules.md shows how a Perl rule is written here."
_LAST = 1000  # the priority of a file whose name begins with no number


@dataclass(frozen=True, slots=True)
class RuleSource:
    """One file or one row: its rules, or a Python file to be run, or why it refuses every job."""

    name: str
    priority: int
    rules: tuple[AdmissionRule, ...] = ()
    examples: tuple[RuleExample, ...] = ()
    python: Path | None = None
    broken: str = ""
    hint: str = ""


@dataclass(frozen=True)
class RuleSet:
    """What applies, in order, neighbours joined; and the names in the files that rules ask about.

    `unused_perl`: rows that are written in Perl and to be switched off.
    """

    sources: tuple[RuleSource, ...]
    lists: Mapping[str, frozenset[str]] = field(default_factory=dict)
    unused_perl: tuple[int, ...] = ()

    @property
    def rules(self) -> Iterator[AdmissionRule]:
        """Every rule that is data, in order."""
        return (rule for source in self.sources for rule in source.rules)

    @cached_property  # asked for with every submission
    def fields(self) -> frozenset[str]:
        """The fields that these rules ask about; a Python rule may ask about any."""
        if any(source.python for source in self.sources):
            return frozenset(rules.FIELDS)
        return frozenset().union(*(rule.when.fields for rule in self.rules if rule.when))


class RuleSetCache:
    """Keeps the book as it was last read; it is read again when a file or a row changed."""

    def __init__(self, directory: Path | None, perl_rules: PerlRules = PerlRules.DISABLE) -> None:
        self._directory, self._perl_rules = directory, perl_rules
        self._looked: int | None = None
        self._seen: tuple[object, ...] = ()
        self._book = RuleSet(())

    def now(self, tx: Tx, *, now: int) -> RuleSet:
        """Return the rules of this second. Reads files, once a second at most: not for the event loop."""
        if now == self._looked:
            return self._book
        stored = administration.enabled_rules(tx)
        seen = (*stored, *self._looks())
        if seen != self._seen:
            self._book = load(self._directory, stored, perl_rules=self._perl_rules)
            self._seen = (*stored, *self._looks())
        self._looked = now
        return self._book

    def _looks(self) -> Iterator[object]:
        """Yield what changes when a file does."""
        paths = [SHIPPED, *([self._directory] if self._directory else [])]
        paths += [path for folder in paths for path in _files(folder).values()]
        for path in (*paths, *map(Path, self._book.lists)):
            try:
                now = path.stat()
            except OSError:
                yield path
            else:
                yield path, now.st_mtime_ns, now.st_size, now.st_ino


def load(
    directory: Path | None, stored: Sequence[StoredRule] = (), *, perl_rules: PerlRules = PerlRules.DISABLE
) -> RuleSet:
    """Read everything that is in effect, with the files of names that rules ask about."""
    lists, complete = read_lists(sources(directory, stored, perl_rules=perl_rules))
    unused = [row.id for row in stored if _is_unused(row, perl_rules)]
    return RuleSet(tuple(_merged(complete)), lists, tuple(unused))


def sources(
    directory: Path | None,
    stored: Sequence[StoredRule] = (),
    *,
    shipped: Path | None = SHIPPED,
    perl_rules: PerlRules = PerlRules.DISABLE,
) -> list[RuleSource]:
    """Read all rules, in the order in which they apply: by number, files before rows, then by name."""
    files = (_files(shipped) if shipped else {}) | (_files(directory) if directory else {})
    result = [_source(path) for path in files.values()]
    if directory and not directory.is_dir():
        result.append(RuleSource(str(directory), 0, broken=f"The folder of rules {directory} is not there."))
    result += [_row(row, perl_rules) for row in stored]
    return sorted(result, key=lambda row: row.priority)


def with_lists(rule_sources: Iterable[RuleSource]) -> list[RuleSource]:
    """Return sources as the server uses them: one that asks about a file that cannot be read is broken."""
    return read_lists(rule_sources)[1]


def _merged(rule_sources: Iterable[RuleSource]) -> Iterator[RuleSource]:
    """Join sources that follow each other and are data: their rules apply in one go."""
    for plain, group in groupby(rule_sources, key=lambda source: not source.python and not source.broken):
        if plain:
            members = list(group)
            yield replace(members[0], rules=tuple(rule for source in members for rule in source.rules), examples=())
        else:
            yield from group


def _files(folder: Path) -> dict[str, Path]:
    try:
        paths = sorted(folder.iterdir())
    except OSError:
        return {}
    return {path.name: path for path in paths if path.suffix in {".toml", ".py"} and not path.name.startswith(".")}


def _source(path: Path) -> RuleSource:
    number = re.match(r"[0-9]{1,6}", path.name)
    priority = int(number[0]) if number else _LAST
    if path.suffix == ".py":
        return RuleSource(str(path), priority, python=path)
    try:
        parsed = rules.read(_text(path, LONGEST_FILE), file=path.name)
    except OarlockError as problem:
        return RuleSource(path.name, priority, broken=str(problem), hint=problem.hint)
    return RuleSource(path.name, priority, parsed.rules, parsed.examples)


def _is_unused(stored: StoredRule, perl_rules: PerlRules) -> bool:
    """Return whether a row is Perl that is none of the manual's examples, on a site that switches such rows off."""
    return perl_rules is PerlRules.DISABLE and perl.is_perl(stored.text) and perl.translated(stored.text) is None


def _row(stored: StoredRule, perl_rules: PerlRules) -> RuleSource:
    name = f"row {stored.id} of admission_rules"
    text = stored.text
    if _is_unused(stored, perl_rules):
        return RuleSource(name, stored.priority)
    if perl.is_perl(text):
        toml = perl.translated(text)
        if toml is None:
            return RuleSource(name, stored.priority, broken=f"The {name} is written in Perl.", hint=PERL_HINT)
        text = toml
    try:
        parsed = rules.read(text, file=name)
    except BadRule as problem:
        return RuleSource(name, stored.priority, broken=str(problem), hint=problem.hint)
    return RuleSource(name, stored.priority, parsed.rules, parsed.examples)


def _text(path: Path, most: int) -> str:
    """Read a trusted file: only its owner and its group may write it."""
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_mode & stat.S_IWOTH:
                raise RuleNotTrusted(f"{path} can be written by everybody.", hint=f"chmod o-w {path}")
            return file.read(most + 1).decode()
    except OSError as problem:
        hint = "Make the file." if isinstance(problem, FileNotFoundError) else "Give the server the right to."
        raise BadRule(f"{path} cannot be read: {problem.strerror}.", hint=hint) from problem
    except UnicodeDecodeError as problem:
        raise BadRule(f"{path} is not UTF-8 text (byte {problem.start}).") from problem


def read_lists(rule_sources: Iterable[RuleSource]) -> tuple[dict[str, frozenset[str]], list[RuleSource]]:
    """Read the files of names that rules ask about; a source that asks about one that cannot be read is broken."""
    lists: dict[str, frozenset[str]] = {}
    complete = []
    for source in rule_sources:
        try:
            for rule in source.rules:
                for name in rule.when.files if rule.when else ():
                    lists[name] = lists.get(name) or _names(name, rule)
        except OarlockError as problem:
            complete.append(RuleSource(source.name, source.priority, broken=str(problem), hint=problem.hint))
        else:
            complete.append(source)
    return lists, complete


def _names(name: str, rule: AdmissionRule) -> frozenset[str]:
    try:
        text = _text(Path(name), LONGEST_LIST)
    except OarlockError as problem:
        raise BadRule(f"{rule.file}, rule `{rule.name}`: {problem}", hint=problem.hint) from problem
    if len(text) > LONGEST_LIST:
        raise BadRule(f"{rule.file}, rule `{rule.name}`: {name} is longer than {LONGEST_LIST} bytes.")
    return frozenset(line for raw in text.splitlines() if (line := raw.strip()) and not line.startswith("#"))
