"""oarlock import-oar: bring the resources, queues and history of an OAR 2 into an instance."""

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oarlock.cli.output import show_text

if TYPE_CHECKING:
    from oarlock.store.queries.site.imported_rows import ForeignRule, ImportCounts

_ABOUT = (
    "Bring what an OAR 2 knows into an instance whose server is stopped: resources with their properties, queues, jobs "
    "that are over with all that belongs to them, events, accounting (and so fair sharing). SOURCE is a dump that "
    "pg_dump or mysqldump wrote (also packed by gzip), or the address of the live database, which is only read: "
    "postgresql://USER@HOST/DATABASE or mysql://USER@HOST/DATABASE. All is taken over or nothing. A second run "
    "continues: what is there already is not doubled. Admission rules in Perl are listed with what they seem to do."
)


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to those of `oarlock`."""
    parser = commands.add_parser("import-oar", help="take over the database of an OAR 2", description=_ABOUT)
    parser.add_argument("source", metavar="SOURCE", help="a dump, or the address of OAR's database")
    parser.add_argument("--password-file", metavar="FILE", type=Path, help="the password of the account in SOURCE")
    parser.add_argument("--quotas", metavar="FILE", type=Path, help="also the quotas of a scheduler_quotas.conf")
    parser.add_argument(
        "--rules", metavar="DIR", type=Path, help="write each admission rule to a file: .toml a draft, .perl to do"
    )
    parser.add_argument(
        "--state", metavar="DIR", type=Path, help="the state directory (default: that of OARLOCK_SERVER)"
    )
    parser.add_argument("--config", metavar="FILE", type=Path, help="the settings file")
    parser.add_argument("-J", "--json", action="store_true", help="the report as JSON, for programs")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Import, and tell what had a place and what had none."""
    from oarlock.config import load
    from oarlock.server.imports import import_oar
    from oarlock.server.instance import state_of_commands

    password = arguments.password_file.read_text().strip() if arguments.password_file else ""
    report = import_oar(
        arguments.state or state_of_commands(),
        load(arguments.config).config,
        arguments.source,
        password=password,
        quotas=arguments.quotas,
        say=_say,
    )
    if arguments.rules:
        _write_rules(report.rules, arguments.rules)
    if arguments.json:
        rules = [_rule(rule) for rule in report.rules]
        written = {"version": report.version, "copied": report.copied, "present": report.present}
        print(json.dumps({**written, "no_place": report.no_place, "rules": rules}, indent=2))
        return
    for line in _lines(report):
        show_text(line)


def _say(line: str) -> None:
    print(f"oarlock: {line}", file=sys.stderr, flush=True)


def _lines(report: "ImportCounts") -> Iterator[str]:
    version = f" (tables of version {report.version})" if report.version else ""
    yield f"Taken over from OAR{version}:"
    for name in sorted(report.copied | report.present):
        here = report.present[name]
        yield f"  {name:<28}{report.copied[name]:>10}" + (f"   {here} were here already" if here else "")
    if report.no_place:
        yield "Without a place here:"
        yield from (f"  {line}" for line in report.no_place)
    if report.rules:
        yield "Admission rules (none was put into effect):"
        for rule in report.rules:
            yield from _rule_lines(_rule(rule))


def _rule(rule: "ForeignRule") -> dict[str, Any]:
    from oarlock.lang.rules import perl
    from oarlock.lang.rules.perl_summary import summarize

    summary = summarize(rule.text)
    return {
        "number": rule.number, "priority": rule.priority, "enabled": rule.enabled, "perl": perl.is_perl(rule.text),
        "title": summary.title, "seems_to": summary.sentence, "shipped": summary.shipped, "draft": summary.draft,
    }  # fmt: skip


def _rule_lines(rule: dict[str, Any]) -> Iterator[str]:
    off = "" if rule["enabled"] else " (switched off)"
    yield f"  {rule['number']}{off}: {rule['title'] or 'without a title'}"
    if rule["shipped"]:
        yield f"      as OAR installs it; here {rule['shipped']} does the same"
        return
    yield f"      {rule['seems_to']}"
    if rule["draft"]:
        yield "      a draft in TOML:"
        yield from (f"        {line}" for line in rule["draft"].splitlines())
    else:
        yield "      to be written anew (docs/running-a-site/admission-rules.md)"


def _write_rules(rules: "list[ForeignRule]", folder: Path) -> None:
    """Write drafts and texts; rules that are as OAR installs them need neither."""
    folder.mkdir(parents=True, exist_ok=True)
    for rule in rules:
        rule_facts = _rule(rule)
        if rule_facts["shipped"]:
            continue
        head = f"# OAR's rule {rule.number}: {rule_facts['title']}\n# It {rule_facts['seems_to']}.\n"
        name, body = ("toml", rule_facts["draft"]) if rule_facts["draft"] else ("perl", rule.text)
        (folder / f"{rule.priority or rule.number:02}-oar-{rule.number}.{name}").write_text(head + body)
