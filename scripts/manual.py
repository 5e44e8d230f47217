"""Man pages and the reference page of the commands, made from the tables that the commands parse with."""

import re
from collections.abc import Callable
from itertools import groupby

from oarlock import __version__
from oarlock.cli import slurm
from oarlock.cli.commands import load
from oarlock.cli.exit_codes import EXIT_CODES, NO_SERVER, exit_codes
from oarlock.cli.options import CommandOption, CommandOptions
from oarlock.client_connection import TOKEN_VARIABLE, VARIABLE

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


SLURM_DIFFERENCES = """\
## What differs from Slurm

A hundred scripts (`tests/slurm/corpus.toml`) were run on Slurm 22.05.8 and here, and states, exit codes, files and
variables compared. What is not the same, and why:

| | here | reason |
| --- | --- | --- |
| `-d after:`, `aftercorr:`, `singleton`, kinds with `?`, two kinds together, `--kill-on-invalid-dep` | refused | a \
job waits for the ends of others, all in one way (`-t dependency=`) |
| `-N 1-2` | refused | a request has one size; `-n` alone takes cores wherever they are |
| `--gres=gpu:KIND:1`, other resources | refused | the kind of a GPU is a property: `-C` |
| `--comment`, `--nice`, `--licenses`, and what is not listed above | refused | there is no place for it |
| more nodes than there are, a feature that no node has | refused at once | Slurm lets some of them wait for ever |
| `-t 90:30` | 1:30:30 | a limit is not rounded up to minutes |
| a script that a signal ended | `FAILED 143:0`, in Slurm `0:15` | a shell starts the script, and tells signals its \
own way |
| a script whose interpreter is missing | `FAILED 127:0`, in Slurm `2:0` | the same |
| a bad option | exit code 1, in Slurm 255 | our commands have one table of codes |
| a script from standard input | SLURM_JOB_NAME is `sbatch`, in Slurm empty | the job is called so in both |
| a task of an array that was cancelled before it began | listed as CANCELLED | Slurm without accounting forgets it |
| a signalled or killed job | a line `## OAR […] Job … KILLED ##` in its error file | Slurm writes one of slurmstepd |
| `srun --multi-prog` and steps on other jobs | refused | a step runs one command on the nodes of its own job |
| `srun` without `--exact` | starts at once, also beside other steps | cores are counted for those with `--exact` |
| SLURM_CLUSTER_NAME, SLURM_CONF, SLURM_WORKING_CLUSTER, SLURM_TOPOLOGY_*, SLURM_NODE_ALIASES, SLURM_PRIO_PROCESS, \
SLURM_UMASK, SLURM_DISTRIBUTION, SLURM_LAUNCH_NODE_IPADDR, SLURM_SRUN_COMM_*, SLURM_STEP_LAUNCHER_PORT | not set | \
they lead to daemons of Slurm, or tell of what there is none of here |
| SLURM_JOB_PARTITION | the queue | there are no partitions |
"""


def slurm_page() -> str:
    """Make docs/reference/slurm-commands.md."""
    return "\n".join([SLURM_HEAD, *(_section(name) for name in SLURM_COMMANDS), SLURM_DIFFERENCES])


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
