"""Argparse that refuses as the manual's commands do: a sentence, and the way out."""

import argparse
import re
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any, NoReturn

from oarlock.client import RequestRefused

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
    """Return a sentence for an error of argparse, and a way out where the error tells it."""
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
