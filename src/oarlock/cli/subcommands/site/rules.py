"""oarlock rules: which admission rules there are, and whether their examples come out as they say."""

import argparse
import asyncio
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from oarlock.cli.output import show_text
from oarlock.config import Config, load
from oarlock.job.admission.admit import admit
from oarlock.job.admission.rules import SHIPPED, RuleSet, RuleSource, sources, with_lists
from oarlock.job.admission.stored_rules import NOW, plain_job, run_examples
from oarlock.model.errors import DatabaseRefused, OarlockError
from oarlock.model.submission_errors import BadRule, ExamplesFailed, RefusedByRule
from oarlock.server.instance import database_address, state_of_commands
from oarlock.server.rules import python_rules
from oarlock.store.engine.opening import parse_address
from oarlock.store.queries.site import administration
from oarlock.store.queries.site.administration import StoredRule


@dataclass(frozen=True, slots=True)
class RuleLine:
    """A rule as it is listed."""

    priority: int
    source: str
    name: str
    when: str
    does: str


def _sources(folder: Path | None, state: Path | None) -> list[RuleSource]:
    """Read a folder's rules, or those in effect: of the settings, and of the database."""
    if folder is None:
        config = load().config
        return with_lists(
            sources(
                config.admission_rules_dir,
                _stored(state or state_of_commands(), config),
                perl_rules=config.admission_perl_rules,
            )
        )
    if not folder.is_dir():
        raise BadRule(f"There is no folder {folder}.", hint=f"The rules that are shipped are in {SHIPPED}.")
    sources_found = sources(folder, shipped=None)
    if not sources_found:
        raise BadRule(
            f"There is no rule in {folder}: no file ends with .toml or .py.",
            hint=f"The rules that are shipped are in {SHIPPED}.",
        )
    return with_lists(sources_found)


def _stored(state: Path, config: Config) -> list[StoredRule]:
    """Read the rules in the table of an instance; where that is not possible, a line says that they are left out."""
    try:
        return administration.rules_of_instance(parse_address(database_address(state, config)))
    except DatabaseRefused as refused:
        show_text(
            f"oarlock: the rules in the database are left out: {refused} `--state` names another.", file=sys.stderr
        )
        return []


def listed(arguments: argparse.Namespace) -> None:
    """List the rules in the order in which they apply."""
    lines = [line for source in _sources(arguments.folder, arguments.state) for line in _lines(source)]
    if arguments.json:
        print(json.dumps([asdict(line) for line in lines], indent=2))
        return
    for line in lines:
        show_text(f"{line.priority:>4}  {line.source}: {line.name}\n      when {line.when or 'always'}: {line.does}")


def _lines(source: RuleSource) -> Iterator[RuleLine]:
    if source.broken:
        yield RuleLine(source.priority, source.name, "BROKEN", "", f"refuses every job: {source.broken}")
    if source.python:
        yield RuleLine(source.priority, source.python.name, "Python", "", "whatever it does, in a process of its own")
    for rule in source.rules:
        when = rule.when.text if rule.when else ""
        yield RuleLine(source.priority, source.name, rule.name, when, ", ".join(rule.does))


def tested(arguments: argparse.Namespace) -> None:
    """Try the examples beside the rules; one that comes out otherwise is a refusal."""
    sources_found = [_checked(source) for source in _sources(arguments.folder, arguments.state)]
    broken = [source for source in sources_found if source.broken]
    for source in broken:
        show_text(f"BROKEN {source.broken}")
    tries = [result for source in sources_found for result in run_examples(source)]
    failed = [result for result in tries if result.differs]
    for result in tries if arguments.verbose else failed:
        show_text(f"{'FAILED' if result.differs else 'ok'} {result.example.file}: {result.example.name}")
        if result.differs:
            show_text(f"       {result.differs}")
    if failed or broken:
        raise ExamplesFailed(
            f"{len(failed)} of {len(tries)} examples come out otherwise; {len(broken)} files cannot be used.",
            hint="Change the rule, or what its example says.",
        )
    show_text(f"{len(tries)} examples come out as they say.")


def _checked(source: RuleSource) -> RuleSource:
    """Run a Python rule on a plain job as the server does; one that fails there refuses every job."""
    if source.python is None:
        return source
    submission, context = plain_job()
    alone = RuleSet((replace(source, python=source.python.absolute()),))
    try:
        asyncio.run(admit(alone, submission, context, config=Config(), now=NOW, run=python_rules.run))
    except RefusedByRule:
        pass
    except OarlockError as problem:
        return replace(source, broken=f"{problem} {problem.hint}".rstrip())
    return source
