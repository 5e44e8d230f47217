"""Options of a command, declared once: what is parsed, what `--help` says, and what the man page says.

Made by hand because argparse alone costs as much as a whole command may. The rules are GNU's, as in OAR: long options
with `=` or a space and cut short where that is clear, short ones bundled, options also behind other words, `--` ends
them. `_` and `-` are the same in a long name, since the manual writes some one way and OAR 2.5 the other.
"""

from __future__ import annotations

from oarlock.client import RequestRefused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FLAG, TEXT, NUMBER, MAYBE = "flag", "text", "number", "maybe"

LONGEST_NUMBER = 18
"""Digits of a number that surely fits into 64 bits."""

FORMATS = ("dumper", "xml", "yaml", "json")


class CommandOption:
    """One option: its names, what its value is called (nothing for a flag), and a sentence."""

    __slots__ = ("key", "kind", "many", "names", "says", "value")

    def __init__(self, spelled: str, says: str, kind: str, *, many: bool) -> None:
        names, _, value = spelled.partition("=")
        self.names = names.split()
        self.value = value
        self.says, self.kind, self.many = says, kind, many
        # The first long name is what a command asks for; others are older spellings.
        self.key = next((n for n in self.names if n.startswith("--")), self.names[0]).lstrip("-").replace("-", "_")

    def spelled(self) -> str:
        """Return its names and its value as a person writes them."""
        names = ", ".join(self.names)
        if self.kind == FLAG:
            return names
        joint = "=" if self.names[-1].startswith("--") else " "
        return f"{names}[{joint}{self.value}]" if self.kind == MAYBE else f"{names}{joint}{self.value}"


class ParsedOptions:
    """What stands on a command line: values by the option's long name, and the words that are no options."""

    def __init__(self) -> None:
        self.values: dict[str, list[str]] = {}
        self.words: list[str] = []
        self.behind: list[str] = []  # values of options that stand behind the first word
        self.dashed = ""  # the command line with `--` before the first word

    def given(self, key: str) -> bool:
        """Whether an option stands there at all."""
        return key in self.values

    def text(self, key: str) -> str | None:
        """Return the value of an option; the last one counts."""
        values = self.values.get(key)
        return values[-1] if values else None

    def number(self, key: str) -> int | None:
        """Return the value of an option that is a number."""
        value = self.text(key)
        return None if value is None else int(value)

    def texts(self, key: str) -> list[str]:
        """Return all values of an option."""
        return self.values.get(key, [])

    def numbers(self, key: str) -> list[int]:
        """Return all values of an option that are numbers."""
        return [int(value) for value in self.texts(key)]

    @property
    def format(self) -> str:
        """The format that was asked for; nothing: the one for people."""
        return next((name for name in FORMATS if name in self.values), "")


class CommandOptions:
    """The options of one command. `usage` are the lines behind its name, `words` what its other words are."""

    def __init__(
        self,
        command: str,
        summary: str,
        *,
        usage: tuple[str, ...],
        help_names: str = "-h --help",
        version_names: str = "-V --version",
        about: str = "",
        takes_command: bool = False,
        negative_words: bool = False,
        stops_at_word: bool = False,
    ) -> None:
        self.command, self.summary, self.usage, self.about = command, summary, usage, about
        self.examples: list[tuple[str, str]] = []
        self.all: list[CommandOption] = []
        self._help_names, self._version_names = help_names, version_names
        self._takes_command = takes_command
        self.asks_server = True
        self._negative_words = negative_words  # `-0:10` is a word, not an option
        self._stops_at_word = stops_at_word  # what follows the first word belongs to that

    def flag(self, spelled: str, says: str) -> None:
        """Add an option without a value."""
        self.all.append(CommandOption(spelled, says, FLAG, many=False))

    def text(self, spelled: str, says: str, *, many: bool = False) -> None:
        """Add an option with a value: `-q --queue=QUEUE`."""
        self.all.append(CommandOption(spelled, says, TEXT, many=many))

    def number(self, spelled: str, says: str, *, many: bool = False) -> None:
        """Add an option whose value is a whole number, not below zero."""
        self.all.append(CommandOption(spelled, says, NUMBER, many=many))

    def maybe(self, spelled: str, says: str, *, many: bool = False) -> None:
        """Add an option whose value may be left out; the next word is its value unless it begins with `-`."""
        self.all.append(CommandOption(spelled, says, MAYBE, many=many))

    def example(self, line: str, says: str) -> None:
        """Add an example for the man page."""
        self.examples.append((line, says))

    def formats(self) -> None:
        """Add the formats for programs."""
        self.flag("-D --dumper", "print the result as a Perl structure (Data::Dumper)")
        self.flag("-X --xml", "print the result as XML")
        self.flag("-Y --yaml", "print the result as YAML")
        self.json()

    def json(self) -> None:
        """Add the format for programs, where OAR has none to be like."""
        self.flag("-J --json", "print the result as JSON")

    def end(self, *, server: bool = True) -> CommandOptions:
        """Add what every command has, called last. `server`: it asks one."""
        self.asks_server = server
        if server:
            self.text("--server=ADDRESS", "the server: the path of its socket, or http://NAME:PORT ($OARLOCK_SERVER)")
        self.flag(self._help_names, "show this help and exit")
        self.flag(self._version_names, "show the version and exit")
        return self

    def parse(self, words: list[str]) -> ParsedOptions:
        """Read the words of a command line; a word that is no known option is refused with the closest one."""
        _refuse_bytes(words)
        parsed, rest = ParsedOptions(), list(reversed(words))
        try:
            self._read(parsed, rest, words)
        except RequestRefused as refused:
            if self._takes_command and parsed.words:
                refused.hint = hint_of_dashes(refused.hint, parsed)
            raise
        return parsed

    def _read(self, parsed: ParsedOptions, rest: list[str], words: list[str]) -> None:
        before: dict[str, int] = {}
        while rest:
            word = rest.pop()
            if word == "--":
                parsed.words += reversed(rest)
                break
            if word.startswith("--"):
                self._long(word, rest, parsed)
            elif word.startswith("-") and word != "-" and not (self._negative_words and word[1].isdecimal()):
                self._short(word[1:], rest, parsed)
            else:
                if not parsed.words:
                    before = {key: len(values) for key, values in parsed.values.items()}
                    at = len(words) - len(rest) - 1
                    parsed.dashed = " ".join([self.command, *words[:at], "--", *words[at:]])
                parsed.words.append(word)
                if self._stops_at_word:
                    parsed.words += reversed(rest)
                    break
        if parsed.words:
            parsed.behind = [value for key, values in parsed.values.items() for value in values[before.get(key, 0) :]]

    def _long(self, word: str, rest: list[str], parsed: ParsedOptions) -> None:
        name, equals, value = word.partition("=")
        option = self._named(name)
        if option.kind == FLAG and equals:
            raise _bad(f"{name} takes no value, but `{value}` was given.", f"Write {name} alone.")
        _take(option, name, value if equals else None, rest, parsed)

    def _short(self, letters: str, rest: list[str], parsed: ParsedOptions) -> None:
        while letters:
            name, letters = f"-{letters[0]}", letters[1:]
            option = self._exactly(name)
            if option is None:
                raise self._unknown(name)
            if option.kind == FLAG:
                _take(option, name, None, rest, parsed)
            else:
                _take(option, name, letters.removeprefix("=") or None, rest, parsed)
                return

    def _exactly(self, name: str) -> CommandOption | None:
        return next((option for option in self.all if name in option.names), None)

    def _named(self, name: str) -> CommandOption:
        wanted = name.replace("_", "-")
        begins = [o for o in self.all if any(n.startswith(wanted) for n in o.names)]
        exact = [o for o in begins if wanted in o.names]
        if len(exact or begins) == 1:
            return (exact or begins)[0]
        if not begins:
            raise self._unknown(name)
        names = ", ".join(n for o in begins for n in o.names if n.startswith(wanted))
        raise _bad(f"{name} could be any of {names}.", "Write more of it.")

    def _unknown(self, name: str) -> RequestRefused:
        from difflib import get_close_matches

        names = [n[2:] for option in self.all for n in option.names if n.startswith("--")]
        alike = get_close_matches(name[2:], names, n=1)
        hint = f"Did you mean --{alike[0]}?" if alike else f"`{self.command} --help` lists them."
        return _bad(f"There is no option {name}.", hint)


def hint_of_dashes(hint: str, parsed: ParsedOptions) -> str:
    """Add the way out where an option of the command was read as one of ours."""
    return f"{hint} If it belongs to the command: {parsed.dashed}".lstrip()


def _refuse_bytes(words: list[str]) -> None:
    """Refuse what is no text: Python hides the bytes of such a word in surrogates, which cannot travel."""
    for word in words:
        if not word.isascii() and not is_text(word):
            shown = word.encode("ascii", "backslashreplace").decode()
            raise _bad(f"`{shown}` is not valid UTF-8.", "Type it anew, or look at the locale of your terminal.")


def is_text(word: str) -> bool:
    """Whether a word can be written in UTF-8."""
    try:
        word.encode()
    except UnicodeEncodeError:
        return False
    return True


def _take(option: CommandOption, name: str, value: str | None, rest: list[str], parsed: ParsedOptions) -> None:
    values = parsed.values.setdefault(option.key, [])
    if option.kind == FLAG:
        return
    if value is None and option.kind == MAYBE:
        if rest and not rest[-1].startswith("-"):
            values.append(rest.pop())
        return
    if value is None:
        if not rest:
            raise _bad(f"{name} needs a value.", f"Write {option.spelled()}.")
        value = rest.pop()
    if option.kind == NUMBER and (not (value.isdecimal() and value.isascii()) or len(value) > LONGEST_NUMBER):
        raise _bad(f"{name} takes a whole number, not `{value}`.", f"Write {option.spelled()}.")
    values.append(value)


def _bad(sentence: str, hint: str) -> RequestRefused:
    return RequestRefused(sentence, kind="BadOption", hint=hint)


_INDENT = 30
_WIDTH = 100


def help_text(options: CommandOptions) -> str:
    """Explain a command: how it is called, what it does, its options."""
    usage = [f"{'Usage:' if at == 0 else '      '} {options.command} {line}" for at, line in enumerate(options.usage)]
    lines = [line for option in options.all for line in _explained(option)]
    return "\n".join([*usage, "", options.summary, "", "Options:", *lines, ""])


def _explained(option: CommandOption) -> list[str]:
    left = f"  {option.spelled()}" if len(option.names[0]) == 2 else f"      {option.spelled()}"
    says = option.says + ("; may be given several times" if option.many else "")
    from textwrap import wrap

    lines = wrap(says, _WIDTH - _INDENT)
    if len(left) > _INDENT - 2:
        return [left, *(f"{'':{_INDENT}}{line}" for line in lines)]
    return [f"{left:{_INDENT}}{lines[0]}", *(f"{'':{_INDENT}}{line}" for line in lines[1:])]


def add_selection(options: CommandOptions) -> None:
    """Add the options that choose jobs."""
    options.flag("--array", "the numbers are those of arrays: all their jobs")
    options.text("--sql=CONDITION", "the jobs for which this holds: \"project = 'p1'\"")


def chosen_jobs(parsed: ParsedOptions, command: str) -> list[dict[str, Any]]:
    """Return the selections as the server reads them, one a request."""
    where = parsed.text("sql")
    ids = [job_number(word) for word in parsed.words]
    if where is not None and ids:
        raise RequestRefused(
            "--sql and job numbers cannot be given together.", kind="BadOption", hint="Give one of them."
        )
    if where is not None:
        return [{"where": where}]
    if not ids:
        raise RequestRefused(
            "No job is named.", kind="BadOption", hint=f'{command} JOB..., or {command} --sql "CONDITION"'
        )
    return [{"array": number} for number in ids] if parsed.given("array") else [{"ids": ids}]


def job_number(word: str) -> int:
    """Parse the number of a job (`RequestRefused` of kind BadJobId)."""
    if not (word.isdecimal() and word.isascii()) or len(word) > LONGEST_NUMBER:
        raise RequestRefused(f"`{word}` is not a job number.", kind="BadJobId", hint="`oarstat` lists the jobs.")
    return int(word)


def signal_number(name: str) -> int:
    """Return the number of a signal that is written as a number or a name: `10`, `USR1`, `SIGUSR1`."""
    from oarlock.lang import signals

    number = signals.signal_number(name)
    if number is None:
        raise RequestRefused(f"There is no signal `{name}`.", kind="BadOption", hint="`kill -l` lists them.")
    return number
