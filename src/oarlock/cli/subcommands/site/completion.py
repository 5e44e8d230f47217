"""oarlock completion: what a shell offers behind the commands, made from the options that they parse with."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from oarlock.cli.commands import load
from oarlock.cli.exit_codes import EXIT_CODES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oarlock.cli.options import CommandOptions

_ABOUT = (
    "Print what a shell needs to complete the options of all commands. For all users: `oarlock completion bash > "
    "/etc/bash_completion.d/oarlock`, `oarlock completion zsh > /usr/local/share/zsh/site-functions/_oarlock`, "
    "`oarlock completion fish > /etc/fish/conf.d/oarlock.fish`. For yourself, in bash: "
    '`eval "$(oarlock completion bash)"`.'
)


@dataclass(frozen=True, slots=True)
class OfferedWord:
    """A word that can follow: an option by one of its names, or a subcommand. `value`: another word goes with it."""

    name: str
    says: str
    value: bool = False


Offers = dict[str, list[OfferedWord]]
"""What can follow each command; a subcommand stands behind its command: `oarlock token add`."""


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser], root: argparse.ArgumentParser) -> None:
    """Add the command to those of `oarlock`, whose own parser is `root`."""
    parser = commands.add_parser("completion", help="let a shell complete options and subcommands", description=_ABOUT)
    parser.add_argument("shell", metavar="SHELL", choices=tuple(_SCRIPTS), help="bash, zsh or fish")
    parser.set_defaults(run=partial(_print, root))


def _print(root: argparse.ArgumentParser, arguments: argparse.Namespace) -> None:
    print(_SCRIPTS[arguments.shell](offers(root)), end="")


def offers(root: argparse.ArgumentParser) -> Offers:
    """Return what can follow each command: those of the manual, and `oarlock` with its subcommands."""
    offered: Offers = {name: _of_table(load(name).OPTIONS) for name in sorted(EXIT_CODES)}
    return offered | dict(_of_parser("oarlock", root))


def _of_table(options: CommandOptions) -> list[OfferedWord]:
    return [OfferedWord(name, option.says, bool(option.value)) for option in options.all for name in option.names]


def _of_parser(path: str, parser: argparse.ArgumentParser) -> Iterator[tuple[str, list[OfferedWord]]]:
    words: list[OfferedWord] = []
    children: dict[str, argparse.ArgumentParser] = {}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            children |= action.choices
            words += [OfferedWord(child.dest, child.help or "") for child in action._choices_actions]
        says = (action.help or "").replace("%%", "%")
        words += [OfferedWord(name, says, action.nargs != 0) for name in action.option_strings]
    yield path, words
    for name, child in children.items():
        yield from _of_parser(f"{path} {name}", child)


def _commands(offered: Offers) -> str:
    return " ".join(name for name in offered if " " not in name)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


_BASH = """\
# What bash offers behind the commands of Oarlock. Made by `oarlock completion bash`.
_oarlock_words() {{
    case "$1" in
{cases}
    *) return 1 ;;
    esac
}}

_oarlock_complete() {{
    local current=${{COMP_WORDS[COMP_CWORD]}} path=${{COMP_WORDS[0]##*/}} word
    for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
        _oarlock_words "$path $word" >/dev/null && path="$path $word"
    done
    for word in $(compgen -W "$(_oarlock_words "$path")" -- "$current"); do
        # Options are offered to who begins one; elsewhere names of files are (`-o default`).
        if [[ $current == -* || $word != -* ]]; then COMPREPLY+=("$word"); fi
    done
}}

complete -o default -F _oarlock_complete {commands}
"""


def bash(offered: Offers) -> str:
    """Write the script of bash."""
    cases = "\n".join(
        f"    {_quoted(path)}) echo {_quoted(' '.join(word.name for word in words))} ;;"
        for path, words in offered.items()
    )
    return _BASH.format(cases=cases, commands=_commands(offered))


_ZSH = """\
#compdef {commands}
# What zsh offers behind the commands of Oarlock. Made by `oarlock completion zsh`.
_oarlock_words() {{
    case "$1" in
{cases}
    *) return 1 ;;
    esac
}}

_oarlock() {{
    local command=${{words[1]:t}} word
    local -a offered flags subcommands
    for word in ${{words[2,CURRENT-1]}}; do
        _oarlock_words "$command $word" && command="$command $word"
    done
    offered=()
    _oarlock_words "$command"
    flags=(${{(M)offered:#-*}})
    subcommands=(${{offered:#-*}})
    if [[ $PREFIX == -* ]]; then
        _describe -o option flags
    elif (( $#subcommands )); then
        _describe command subcommands
    else
        _files
    fi
}}

if [[ $funcstack[1] == _oarlock ]]; then _oarlock "$@"; else compdef _oarlock {commands}; fi
"""


def zsh(offered: Offers) -> str:
    """Write the function of zsh; what a word means stands behind a colon."""
    cases = "\n".join(
        f"    {_quoted(path)}) offered=({' '.join(_quoted(_described(word)) for word in words)}) ;;"
        for path, words in offered.items()
    )
    return _ZSH.format(cases=cases, commands=_commands(offered))


def _described(word: OfferedWord) -> str:
    return f"{word.name.replace(':', chr(92) + ':')}:{word.says}"


def fish(offered: Offers) -> str:
    """Write the lines of fish, one a word."""
    lines = ["# What fish offers behind the commands of Oarlock. Made by `oarlock completion fish`."]
    for path, words in offered.items():
        command, *parents = path.split()
        children = [word.name for word in words if not word.name.startswith("-")]
        seen = [f"__fish_seen_subcommand_from {parent}" for parent in parents]
        for word in words:
            condition = [*seen, *([] if word.name.startswith("-") else _none_of(children))]
            lines.append(_fish_line(command, "; and ".join(condition), word))
    return "\n".join(lines) + "\n"


def _none_of(children: list[str]) -> list[str]:
    return [f"not __fish_seen_subcommand_from {' '.join(children)}"]


def _fish_line(command: str, condition: str, word: OfferedWord) -> str:
    if word.name.startswith("--"):
        name = f"-l {word.name[2:]}"
    elif word.name.startswith("-"):
        name = f"-s {word.name[1:]}" if len(word.name) == 2 else f"-o {word.name[1:]}"
    else:
        name = f"-f -a {_fish_quoted(word.name)}"
    where = f" -n {_fish_quoted(condition)}" if condition else ""
    return f"complete -c {command}{where} {name}{' -r' if word.value else ''} -d {_fish_quoted(word.says)}"


def _fish_quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


_SCRIPTS = {"bash": bash, "zsh": zsh, "fish": fish}
