"""Man pages and the reference page of the commands, made from the tables that the commands parse with."""

import re
from collections.abc import Callable
from itertools import groupby

from oarlock import __version__
from oarlock.cli import slurm
from oarlock.cli.commands import load
from oarlock.cli.exit_codes import EXIT_CODES, NO_SERVER, exit_codes
from oarlock.cli.options import CommandOption, CommandOptions
from oarlock.client import TOKEN_VARIABLE, VARIABLE

COMMANDS = tuple(sorted(EXIT_CODES))
SLURM_COMMANDS = slurm.COMMANDS
"""Their man pages are in a directory of their own: a machine may have Slurm's."""

ENVIRONMENT = {
    VARIABLE: "The server: the path of its socket, or http://NAME:PORT. Without it, the socket of your own instance "
    "($XDG_STATE_HOME/oarlock/server.sock) if there is one, else /var/lib/oarlock/server.sock.",
    TOKEN_VARIABLE: "Who you are, for a server that is reached over the network. On a socket the kernel says it.",
}

COMMANDS_HEAD = """\
# Commands

<!-- Made from src/oarlock/cli by `make docs`; change it there. -->

The manual's commands, each with a man page of the same words. All take long options with `=` or a space and cut short
where that is clear; short options can be bundled; `--` ends the options. A refusal is a sentence with a way out on
standard error, and a number; the numbers are those of OAR 2.5 where it has one for the case.

A command asks one server, with one request. If the connection breaks, the same request is sent again under the same
id, so that nothing is done twice; where it stays open whether something was done, the command says so.
"""


def options(command: str) -> CommandOptions:
    """Give the table of a command."""
    found = load(command).OPTIONS
    assert isinstance(found, CommandOptions)
    return found


def commands_page() -> str:
    """Make docs/reference/commands.md."""
    variables = "\n".join(f"| `{name}` | {_cell(says)} |" for name, says in ENVIRONMENT.items())
    return "\n".join(
        [COMMANDS_HEAD, f"| variable | meaning |\n| --- | --- |\n{variables}\n", *(_section(name) for name in COMMANDS)]
    )


SLURM_HEAD = """\
# Slurm's commands

<!-- Made from src/oarlock/cli/slurm by `make docs`; change it there. -->

What `oarlock slurm install DIR` installs, for [those who come from Slurm](../using/coming-from-slurm.md). An option
that is not listed here is refused with its name.
"""


def slurm_page() -> str:
    """Make docs/reference/slurm-commands.md."""
    return "\n".join([SLURM_HEAD, *(_section(name) for name in SLURM_COMMANDS)])


def _section(command: str) -> str:
    table = options(command)
    usage = "\n".join(f"{command} {line}".rstrip() for line in table.usage)
    rows = "\n".join(f"| `{_cell(option.spelled())}` | {_cell(_said(option))} |" for option in table.all)
    parts = [f"## {command}\n", f"{table.summary}\n", f"```\n{usage}\n```\n"]
    parts += [f"{table.about}\n"] if table.about else []
    parts += [f"| option | meaning |\n| --- | --- |\n{rows}\n", f"{_codes_in_words(command)}\n"]
    if table.examples:
        parts.append("\n".join(f"- `{line}`: {says}" for line, says in table.examples) + "\n")
    return "\n".join(parts)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _said(option: CommandOption) -> str:
    return f"{option.says}; may be given several times" if option.many else option.says


def _codes(command: str) -> list[tuple[int, str]]:
    """Give the exit codes of a command, each with what it stands for."""
    unused = {} if options(command).asks_server else NO_SERVER
    table = {kind: code for kind, code in exit_codes(command).items() if kind not in unused}
    by_code = sorted((code, _words(kind)) for kind, code in table.items())
    return [(code, ", ".join(words for _, words in group)) for code, group in groupby(by_code, key=lambda one: one[0])]


def _words(kind: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", kind).lower() or "anything else"


def _codes_in_words(command: str) -> str:
    return "Ends with 0, or: " + "; ".join(f"{code} ({words})" for code, words in _codes(command)) + "."


def man_page(command: str) -> str:
    """Make the man page of a command, in roff."""
    table = options(command)
    lines = [
        f'.TH {command.upper()} 1 "" "Oarlock {__version__}" "Oarlock commands"',
        ".SH NAME",
        f"{command} \\- {roff(_begun(table.summary, str.lower)).rstrip('.')}",
        ".SH SYNOPSIS",
        *(line for usage in table.usage for line in (f".B {command}", roff(usage) or "\\&", ".br")),
        ".SH DESCRIPTION",
        roff(f"{table.summary} {table.about}".strip()),
        ".SH OPTIONS",
        *(line for one in table.all for line in entry(one.spelled(), f"{_begun(_said(one), str.upper)}.")),
        ".SH EXIT STATUS",
        *entry("0", "It was done."),
        *(line for code, words in _codes(command) for line in entry(str(code), f"{_begun(words, str.upper)}.")),
    ]
    if table.asks_server:
        lines += [".SH ENVIRONMENT", *(line for name, says in ENVIRONMENT.items() for line in entry(name, says))]
    if table.examples:
        lines += [".SH EXAMPLES"]
        lines += [line for example, says in table.examples for line in entry(example, f"{_begun(says, str.upper)}.")]
    family = SLURM_COMMANDS if command in SLURM_COMMANDS else COMMANDS
    others = ", ".join(f"\\fB{other}\\fR(1)" for other in (*family, "oarlock") if other != command)
    return "\n".join([*lines, ".SH SEE ALSO", others, ""])


def entry(head: str, says: str) -> list[str]:
    """Write a term and what it means, in roff."""
    return [".TP", f"\\fB{roff(head)}\\fR", roff(says)]


def _begun(text: str, letter: Callable[[str], str]) -> str:
    return letter(text[0]) + text[1:]


def roff(text: str) -> str:
    """Write a text so that roff prints it as it is; what stands in backticks is bold."""
    escaped = (
        text.replace("…", "...").replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace('"', "\\(dq")
    )
    return re.sub(r"`([^`]*)`", r"\\fB\1\\fR", escaped)
