"""oarlock: what OAR has no word for."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from oarlock import __version__
from oarlock.model.errors import OarlockError

REFUSED = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one subcommand; a refusal goes to standard error with its way out, and ends with 2."""
    asked = _options().parse_args(arguments)
    try:
        asked.run(asked)
    except OarlockError as refused:
        print(f"oarlock: {refused.told()}", file=sys.stderr)
        return REFUSED
    return 0


def _options() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser("oarlock", description="Run a cluster's jobs and show what each one really did.")
    options.add_argument("--version", action="version", version=f"oarlock {__version__}")
    commands = options.add_subparsers(title="commands", metavar="COMMAND", required=True)
    config = commands.add_parser(
        "config",
        help="check a settings file and show every setting in effect",
        description="Check a settings file and show every setting in effect, with where it comes from. The output is "
        "a settings file itself. Without FILE: $OARLOCK_CONF, else /etc/oarlock/oar.conf, else the defaults.",
    )
    config.add_argument("file", metavar="FILE", nargs="?", type=Path, help="the settings file")
    config.add_argument("-J", "--json", action="store_true", help="as JSON, for programs")
    config.set_defaults(run=_config)
    _add_rules(commands)
    return options


def _add_rules(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    rules = commands.add_parser("rules", help="list admission rules, or try the examples beside them")
    verbs = rules.add_subparsers(title="commands", metavar="COMMAND", required=True)
    listing = verbs.add_parser("list", help="list the rules in the order in which they apply")
    listing.add_argument("-J", "--json", action="store_true", help="as JSON, for programs")
    listing.set_defaults(run=_list_rules)
    trying = verbs.add_parser("test", help="try the examples beside the rules; ends with 2 if one comes out otherwise")
    trying.add_argument("-v", "--verbose", action="store_true", help="also show those that come out as they say")
    trying.set_defaults(run=_test_rules)
    for verb in (listing, trying):
        verb.add_argument("folder", metavar="DIR", nargs="?", type=Path, help="the rules of this folder only")


def _list_rules(asked: argparse.Namespace) -> None:
    from oarlock.cli.rules import listed

    listed(asked)


def _test_rules(asked: argparse.Namespace) -> None:
    from oarlock.cli.rules import tested

    tested(asked)


def _config(asked: argparse.Namespace) -> None:
    from oarlock.cli.effective import as_json, as_text, effective
    from oarlock.config import load

    loaded = load(asked.file)
    for warning in loaded.warnings:
        print(f"oarlock: {warning}", file=sys.stderr)
    show = as_json if asked.json else as_text
    sys.stdout.write(show(effective(loaded)))
