"""oarlock: what OAR has no word for."""

import argparse
import re
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn

from oarlock import __version__
from oarlock.cli.output import show_text, unless_nobody_reads
from oarlock.cli.subcommands.instance import (
    backup,
    check,
    collect,
    doctor,
    import_oar,
    import_slurm,
    portal,
    setup,
    shadow,
    simulate,
)
from oarlock.cli.subcommands.measurements import archive, findings, meter, report, samples
from oarlock.cli.subcommands.nodes import agent, desktop, discover, lustre_proxy, measure, node, sources
from oarlock.cli.subcommands.site import audit, completion, digest, limits, login, mail, purge, relay, slurm, token
from oarlock.client import RequestRefused
from oarlock.model.errors import OarlockError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from oarlock.config import Config


_QUOTED = re.compile(r"'([^']*)'")
_REQUIRED = "the following arguments are required:"
_ARGUMENT = re.compile(r"argument ([^:]+): (.*)", re.DOTALL)


class ArgumentParser(argparse.ArgumentParser):
    """A parser whose errors are refusals; parsers of subcommands are made of it, too."""

    def parse_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        """Parse a command line; what is left over is refused by the subcommand it was given to."""
        words = sys.argv[1:] if args is None else list(args)
        parsed, extra = self.parse_known_args(words, namespace)
        if extra:
            self._subcommand(words).refuse_extra(extra)
        return parsed

    def refuse_extra(self, extra: Sequence[str]) -> NoReturn:
        """Refuse what this command does not know, with the closest option that it does."""
        word = extra[0].partition("=")[0]
        if not word.startswith("-"):
            raise RequestRefused(f"`{word}` is one word too many.", kind="BadOption", hint=self._help())
        names = [name for action in self._actions for name in action.option_strings]
        alike = get_close_matches(word, names, n=1)
        hint = f"Did you mean {alike[0]}?" if alike else self._help()
        raise RequestRefused(f"There is no option {word}.", kind="BadOption", hint=hint)

    def _subcommand(self, words: Sequence[str]) -> "ArgumentParser":
        """Return the parser that the first words of a command line lead to."""
        parser = self
        for word in words:
            choices = [action.choices for action in parser._actions if isinstance(action.choices, dict)]
            if not choices or word not in choices[0]:
                break
            parser = choices[0][word]
        return parser

    def _help(self) -> str:
        return f"`{self.prog} --help` explains what can be given."

    def error(self, message: str) -> NoReturn:
        """Raise a refusal in place of printing the usage and ending the process."""
        sentence, hint = _worded(message)
        raise RequestRefused(sentence, kind="BadOption", hint=hint or self._help())


def _worded(message: str) -> tuple[str, str]:
    """Return a sentence for an error of argparse, and a way out where the error names it."""
    if message.startswith(_REQUIRED):
        names = message.removeprefix(_REQUIRED).strip()
        return f"{names} {'are' if ',' in names else 'is'} missing.", ""
    if match := _ARGUMENT.fullmatch(message):
        return _of_argument(match[1].rpartition("/")[2], match[2])
    return f"{message[:1].upper()}{message[1:]}.", ""


def _of_argument(name: str, problem: str) -> tuple[str, str]:
    quoted = _QUOTED.findall(problem)
    if problem.startswith("invalid choice") and quoted:
        # Newer versions of Python list the choices without quotes.
        choices = quoted[1:] or re.findall(r"[\w-]+", problem.partition("choose from")[2])
        alike = get_close_matches(quoted[0], choices, n=1)
        what = f"There is no command `{quoted[0]}`." if name == "COMMAND" else f"{name} cannot be `{quoted[0]}`."
        return what, f"Did you mean {alike[0]}?" if alike else f"Choose one of {', '.join(choices)}."
    if problem.startswith("expected"):
        return f"{name} needs a value.", ""
    if problem.startswith("invalid int value") and quoted:
        return f"{name} takes a whole number, not `{quoted[0]}`.", ""
    if problem.startswith("invalid") and quoted:
        return f"{name} cannot be `{quoted[0]}`.", ""
    return f"{name}: {problem}.", ""


REFUSED = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one subcommand; a refusal goes to standard error with its way out, and ends with 2."""
    return unless_nobody_reads(lambda: _run(arguments))


def _run(arguments: Sequence[str] | None) -> int:
    try:
        parsed = options().parse_args(arguments)
        code: int | None = parsed.run(parsed)
    except OarlockError as refused:
        show_text(f"oarlock: {refused.full_text()}", file=sys.stderr)
        return REFUSED
    except RequestRefused as refused:
        show_text(f"oarlock: {refused}" + (f"\n  {refused.hint}" if refused.hint else ""), file=sys.stderr)
        return REFUSED
    except PermissionError as denied:
        if denied.filename is None:
            raise
        show_text(f"oarlock: {denied.filename}: permission denied.\n  {_WHO_MAY}", file=sys.stderr)
        return REFUSED
    except ModuleNotFoundError as missing:
        if not (missing.name or "").startswith("oarlock."):
            raise
        show_text(_COMMANDS_ONLY, file=sys.stderr)
        return REFUSED
    return code or 0


_WHO_MAY = "Files of an instance are for root, and for the account that serves it."
_COMMANDS_ONLY = """\
oarlock: this machine has the commands alone (package oarlock-client), and this needs the rest.
  Run it on the server, or install the package oarlock here instead."""


def options() -> argparse.ArgumentParser:
    """Return the parser of the command; the man pages are made from it, too."""
    options: argparse.ArgumentParser = ArgumentParser(
        "oarlock", description="Run a cluster's jobs and show what each one really did."
    )
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
    limits.options(commands)
    backup.options(commands)
    check.add(commands)
    _serve_options(commands.add_parser("serve", help="run the server of an instance", description=_SERVE))
    _demo_options(commands.add_parser("demo", help="show jobs of every kind on pretended nodes", description=_DEMO))
    agent.add(commands)
    collect.add(commands)
    measure.add(commands)
    node.add(commands)
    portal.add(commands)
    setup.add(commands)
    archive.add(commands)
    desktop.add(commands)
    discover.add(commands)
    doctor.add(commands)
    audit.add(commands)
    token.add(commands)
    login.add(commands)
    samples.add(commands)
    meter.add(commands)
    findings.add(commands)
    digest.add(commands)
    mail.add(commands)
    relay.add(commands)
    report.add(commands)
    simulate.add(commands)
    shadow.add(commands)
    import_oar.add(commands)
    import_slurm.add(commands)
    purge.add(commands)
    slurm.add(commands)
    sources.add(commands)
    lustre_proxy.add(commands)
    completion.add(commands, options)
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
        verb.add_argument(
            "--state", metavar="DIR", type=Path, help="the state directory, for the rules in its database"
        )
        verb.add_argument("folder", metavar="DIR", nargs="?", type=Path, help="the rules of this folder only")


def _list_rules(arguments: argparse.Namespace) -> None:
    from oarlock.cli.subcommands.site.rules import listed

    listed(arguments)


def _test_rules(arguments: argparse.Namespace) -> None:
    from oarlock.cli.subcommands.site.rules import tested

    tested(arguments)


_DEMO = (
    "Start an instance in a temporary directory with four pretended nodes of this machine, run jobs of every kind and "
    "show what became of them. Then jobs keep coming, a link opens the portal that shows them (in a browser where "
    "there is one), and in a terminal a shell in a job on two nodes follows, until Ctrl-C."
)


def _demo_options(demo: argparse.ArgumentParser) -> None:
    demo.add_argument("--tour", action="store_true", help="end afterwards; 0 only if every job ended as it should")
    demo.add_argument("--user", metavar="NAME", help="who runs the jobs, when root gives the demonstration")
    demo.set_defaults(run=_demo)


def _demo(arguments: argparse.Namespace) -> None:
    from oarlock.cli.subcommands.instance import demo

    demo.run(tour=arguments.tour, user=arguments.user, say=lambda line: print(line, flush=True))


_SERVE = (
    "Run the server of an instance until SIGTERM; jobs that run go on without it. Everything of the instance is in its "
    "state directory; a fresh one gets a new database. With --standby, on PostgreSQL, it waits until the active server "
    "of its database is gone (ended, or frozen or cut off for 8 seconds) and takes over."
)


def _serve_options(serve: argparse.ArgumentParser) -> None:
    serve.add_argument("--state", metavar="DIR", type=Path, help="the state directory")
    serve.add_argument("--config", metavar="FILE", type=Path, help="the settings file")
    serve.add_argument("--standby", action="store_true", help="wait for the active server to be gone (PostgreSQL)")
    serve.set_defaults(run=_serve)


def _serve(arguments: argparse.Namespace) -> None:
    from oarlock.cli.subcommands.instance.site_settings import show_warnings
    from oarlock.config import load
    from oarlock.job.quotas import current
    from oarlock.server.instance import default_state
    from oarlock.server.process import logs
    from oarlock.server.serve import serve

    loaded = load(arguments.config)
    current(loaded.config)  # refuses a bad file before anything is begun
    logs.begin(loaded.config)
    show_warnings(loaded)
    serve(arguments.state or default_state(), loaded.config, standby=arguments.standby)


def _config(arguments: argparse.Namespace) -> None:
    from oarlock.cli.subcommands.instance.site_settings import as_json, as_text, effective, show_warnings
    from oarlock.config import load
    from oarlock.job.quotas import current

    loaded = load(arguments.file)
    current(loaded.config)
    show_warnings(loaded)
    show = as_json if arguments.json else as_text
    sys.stdout.write(show(effective(loaded)))
    _refuse_unusable_programs(loaded.config)


def _refuse_unusable_programs(config: "Config") -> None:
    """Raise `ProgramsUnusable` if a program of the site could not be run on this machine."""
    from oarlock.model.errors import ProgramsUnusable
    from oarlock.server.effects.programs import of_this_machine, unusable

    if problems := unusable(of_this_machine(config)):
        sys.stdout.flush()
        raise ProgramsUnusable([why for _, why in problems])
