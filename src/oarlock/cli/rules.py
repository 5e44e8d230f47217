"""oarlock rules: which admission rules there are, and whether their examples come out as they say."""

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from oarlock.config import load
from oarlock.job.examples import tried
from oarlock.job.rulebook import SHIPPED, Source, sources
from oarlock.model.errors import BadRule, ExamplesFailed


@dataclass(frozen=True, slots=True)
class Line:
    """A rule as it is listed."""

    priority: int
    source: str
    name: str
    when: str
    does: str


def _sources(folder: Path | None) -> list[Source]:
    """Read a folder's rules, or those that the settings put into effect (rows of the database left out)."""
    if folder is None:
        return sources(load().config.admission_rules_dir)
    if not folder.is_dir():
        raise BadRule(f"There is no folder {folder}.", hint=f"The rules that are shipped are in {SHIPPED}.")
    found = sources(folder, shipped=None)
    if not found:
        raise BadRule(
            f"There is no rule in {folder}: no file ends with .toml or .py.",
            hint=f"The rules that are shipped are in {SHIPPED}.",
        )
    return found


def listed(asked: argparse.Namespace) -> None:
    """List the rules in the order in which they apply."""
    lines = [line for source in _sources(asked.folder) for line in _lines(source)]
    if asked.json:
        print(json.dumps([asdict(line) for line in lines], indent=2))
        return
    for line in lines:
        print(f"{line.priority:>4}  {line.source}: {line.name}\n      when {line.when or 'always'}: {line.does}")


def _lines(source: Source) -> Iterator[Line]:
    if source.broken:
        yield Line(source.priority, source.name, "BROKEN", "", f"refuses every job: {source.broken}")
    if source.python:
        yield Line(source.priority, source.python.name, "Python", "", "whatever it does, in a process of its own")
    for rule in source.rules:
        when = rule.when.text if rule.when else ""
        yield Line(source.priority, source.name, rule.name, when, ", ".join(rule.does))


def tested(asked: argparse.Namespace) -> None:
    """Try the examples beside the rules; one that comes out otherwise is a refusal."""
    found = _sources(asked.folder)
    broken = [source for source in found if source.broken]
    for source in broken:
        print(f"BROKEN {source.broken}")
    tries = [one for source in found for one in tried(source)]
    failed = [one for one in tries if one.differs]
    for one in tries if asked.verbose else failed:
        print(f"{'FAILED' if one.differs else 'ok'} {one.example.file}: {one.example.name}")
        if one.differs:
            print(f"       {one.differs}")
    if failed or broken:
        raise ExamplesFailed(
            f"{len(failed)} of {len(tries)} examples come out otherwise; {len(broken)} files cannot be used.",
            hint="Change the rule, or what its example says.",
        )
    print(f"{len(tries)} examples come out as they say.")
