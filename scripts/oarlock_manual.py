"""Man pages and the reference page of `oarlock` and its subcommands, made from what they parse with."""

import argparse
from collections.abc import Iterator

from oarlock import __version__
from oarlock.cli.oarlock import REFUSED, options
from scripts.manual import ENVIRONMENT, entry, roff

HEAD = """\
# oarlock

<!-- Made from src/oarlock/cli by `make docs`; change it there. -->

What OAR has no word for. Each subcommand has a man page (`man oarlock-simulate`). A refusal is a sentence with a way
out on standard error, and ends with 2.
"""


def subcommands() -> dict[str, argparse.ArgumentParser]:
    """Give the subcommands of `oarlock`, by name."""
    return dict(_children(options()))


def _children(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    for action in parser._actions:  # argparse has no other way to ask
        if isinstance(action, argparse._SubParsersAction):
            yield from action.choices.items()


def _summaries(parser: argparse.ArgumentParser) -> dict[str, str]:
    """Give what each subcommand does, in a few words."""
    return {
        one.dest: one.help or ""
        for action in parser._actions
        if isinstance(action, argparse._SubParsersAction)
        for one in action._choices_actions
    }


def _taken(parser: argparse.ArgumentParser) -> list[tuple[str, str]]:
    """Give the options and words that a command takes, each as it is written, with what it means."""
    return [
        (_spelled(action), (action.help or "").replace("%%", "%"))
        for action in parser._actions
        if not isinstance(action, argparse._SubParsersAction | argparse._HelpAction)
    ]


def _spelled(action: argparse.Action) -> str:
    word = action.metavar if isinstance(action.metavar, str) else (action.dest.upper() if action.nargs != 0 else "")
    if not action.option_strings:
        return f"[{word}]" if action.nargs in {"?", "*"} else word
    return ", ".join(f"{name} {word}".rstrip() for name in action.option_strings)


def _usage(parser: argparse.ArgumentParser) -> str:
    """Write how a command is called, on one line."""
    parser.formatter_class = lambda prog: argparse.HelpFormatter(prog, width=10_000)
    return parser.format_usage().removeprefix("usage: ").strip().replace(" [-h]", "")


def _about(parser: argparse.ArgumentParser, summary: str) -> str:
    return parser.description or f"{summary[0].upper()}{summary[1:]}."


def reference() -> str:
    """Make docs/reference/oarlock.md."""
    root = options()
    summaries = _summaries(root)
    return "\n".join([HEAD, *(_section(parser, summaries[name], 2) for name, parser in _children(root))])


def _section(parser: argparse.ArgumentParser, summary: str, depth: int) -> str:
    parts = [f"{'#' * depth} {parser.prog}\n", f"{_about(parser, summary)}\n", f"```\n{_usage(parser)}\n```\n"]
    taken = _taken(parser)
    if taken:
        rows = "\n".join(f"| `{_cell(spelled)}` | {_cell(says)} |" for spelled, says in taken)
        parts.append(f"| option | meaning |\n| --- | --- |\n{rows}\n")
    summaries = _summaries(parser)
    return "\n".join([*parts, *(_section(one, summaries[name], depth + 1) for name, one in _children(parser))])


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def man_page(name: str) -> str:
    """Make the man page of a subcommand, with what is below it."""
    parser, summary = subcommands()[name], _summaries(options())[name]
    below = list(_children(parser))
    summaries = _summaries(parser)
    lines = [
        *_begin(f"oarlock-{name}", summary),
        ".SH SYNOPSIS",
        *(line for one in (parser, *(one for _, one in below)) for line in (roff(_usage(one)), ".br")),
        ".SH DESCRIPTION",
        roff(_about(parser, summary)),
        *_options(parser),
    ]
    for word, one in below:
        lines += [f".SH {roff(f'oarlock {name} {word}').upper()}", roff(_about(one, summaries[word])), *_entries(one)]
    return "\n".join([*lines, *_end("oarlock", *(other for other in _pages() if other != f"oarlock-{name}"))])


def overview() -> str:
    """Make the man page of `oarlock` itself."""
    root = options()
    commands = [line for name, says in _summaries(root).items() for line in entry(f"oarlock {name}", f"{says}.")]
    lines = [
        *_begin("oarlock", "run a cluster's jobs and show what each one really did"),
        ".SH SYNOPSIS",
        roff("oarlock COMMAND [options]"),
        ".SH DESCRIPTION",
        roff(f"{root.description} These are the commands that OAR has no word for; `man oarlock-COMMAND` tells all."),
        ".SH COMMANDS",
        *commands,
        *_options(root),
        ".SH ENVIRONMENT",
        *(line for name, says in ENVIRONMENT.items() for line in entry(name, says)),
    ]
    return "\n".join([*lines, *_end(*_pages(), "oarsub", "oarstat")])


def _pages() -> list[str]:
    return [f"oarlock-{name}" for name in subcommands()]


def _begin(page: str, summary: str) -> list[str]:
    title = f'.TH {page.upper()} 1 "" "Oarlock {__version__}" "Oarlock commands"'
    return [title, ".SH NAME", f"{page} \\- {roff(summary)}"]


def _options(parser: argparse.ArgumentParser) -> list[str]:
    return [".SH OPTIONS", *_entries(parser)] if _taken(parser) else []


def _entries(parser: argparse.ArgumentParser) -> list[str]:
    return [line for spelled, says in _taken(parser) for line in entry(spelled, f"{says[:1].upper()}{says[1:]}.")]


def _end(*others: str) -> list[str]:
    status = [".SH EXIT STATUS", *entry("0", "It was done."), *entry(str(REFUSED), "It was refused, with a sentence.")]
    return [*status, ".SH SEE ALSO", ", ".join(f"\\fB{other}\\fR(1)" for other in others), ""]
