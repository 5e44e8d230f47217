"""From the words of `oarsub` to the body of a submission; only what was said is sent, the server knows the rest.

With -S the script is sent as well: the server follows its `#OAR` lines.
"""

from __future__ import annotations

import os

from oarlock.cli.options import ParsedOptions, is_text, signal_number
from oarlock.client import RequestRefused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


MOST_MEMBERS = 100_000
MOST_ENVIRONMENT = 128 * 1024

_TEXTS = ("queue", "name", "project", "notify", "stdout", "stderr")
_FIRST = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_")
_LONGEST_FILE = 16 << 20  # characters; a request has less, and a device has no end
_OTHERS = _FIRST | frozenset("0123456789")


def submission(parsed: ParsedOptions) -> dict[str, Any]:
    """Return the body of `POST /jobs`."""
    words = parsed.words
    body: dict[str, Any] = {key: parsed.text(key) for key in _TEXTS if parsed.given(key)}
    body |= {key: parsed.number(key) for key in ("checkpoint", "resubmit") if parsed.given(key)}
    if (signal := parsed.text("signal")) is not None:
        body["signal"] = signal_number(signal)
    if parsed.given("resource"):
        body["resources"] = parsed.texts("resource")
    if parsed.given("property"):
        body["properties"] = parsed.text("property")
    if parsed.given("type"):
        body["types"] = parsed.texts("type")
    if parsed.given("anterior"):
        body["after"] = parsed.numbers("anterior")
    body |= {key: True for key in ("hold", "interactive") if parsed.given(key)}
    directory = _directory(parsed.text("directory"))
    if parsed.given("scanscript"):
        words = _add_script(body, words)
    # A script may name the directory as well: it counts where none was typed.
    body["launched_from" if "script" in body and not parsed.given("directory") else "directory"] = directory
    if words:
        body["command"] = _command(" ".join(words), directory)
    elif not _needs_none(parsed):
        raise RequestRefused("There is no command to run.", kind="NoCommand", hint="oarsub [OPTION]... COMMAND")
    _add_dates(body, parsed)
    _add_array(body, parsed)
    body["environment"] = environment(dict(os.environ))
    body["initial_request"] = _initial_request()
    body["submitted_from"] = f"{os.uname().nodename}:{os.getpid()}"
    return body


def _add_script(body: dict[str, Any], words: list[str]) -> list[str]:
    """Add the text of the script that the first word names; return the words with its name as a shell needs it."""
    import shlex

    if not words:
        raise RequestRefused("-S needs a script.", kind="NoCommand", hint="oarsub -S SCRIPT")
    whole = words[0]
    path = whole if os.path.isfile(whole) or not whole.strip() else whole.split()[0]
    body["script"] = read(path, kind="BadScript", what="script", errors="replace")
    if path == whole and any(character.isspace() for character in path):
        return [shlex.quote(path), *words[1:]]
    return words


def with_parameters(body: dict[str, Any], path: str) -> dict[str, Any]:
    """Return a submission with the lines of a parameter file that its script names."""
    return body | {"array": _parameters(path)}


def _command(command: str, directory: str) -> str:
    command = _found_here(command, directory, os.environ.get("PATH", ""))
    _refuse_windows_lines(command, directory)
    return command


def _needs_none(parsed: ParsedOptions) -> bool:
    """Return whether a job needs no command: a reservation only keeps its resources, and a shell is its own."""
    given = any(parsed.given(key) for key in ("resubmit", "reservation", "interactive"))
    return given or "noop" in parsed.texts("type")


def _add_dates(body: dict[str, Any], parsed: ParsedOptions) -> None:
    text = parsed.text("reservation")
    if text is None:
        return
    if text.strip() == "now":
        body["reservation"] = "now"  # by the server's clock
        return
    from oarlock.cli.layout.readable import instant, interval

    if "," in text:
        # Instants: the server may live in another time zone than who reads this terminal's clock.
        body["reservation"] = ", ".join(str(at) for at in interval(text, what="-r"))
    else:
        body["reservation"] = instant(_with_clock(text), what="-r")


def _with_clock(text: str) -> str:
    """Refuse a date without a time: a reservation at midnight is seldom meant."""
    if text.count(":") != 2:
        raise RequestRefused(
            f"-r: `{text}` is not a date with a time.", kind="BadDate", hint='Write it as "YYYY-MM-DD hh:mm:ss".'
        )
    return text


def _add_array(body: dict[str, Any], parsed: ParsedOptions) -> None:
    count, path = parsed.number("array"), parsed.text("array_param_file")
    if count is not None and path is not None:
        raise RequestRefused(
            "--array and --array-param-file cannot be given together.",
            kind="BadOption",
            hint="The file has a line for each job already.",
        )
    if count is not None:
        body["array"] = [""] * _sized(count)
    if path is not None:
        body["array"] = _parameters(path)


def _sized(count: int) -> int:
    if not 1 <= count <= MOST_MEMBERS:
        raise RequestRefused(
            f"An array of {count} jobs cannot be submitted.", kind="BadArray", hint=f"Ask for 1 to {MOST_MEMBERS}."
        )
    return count


def _parameters(path: str) -> list[str]:
    text = read(path, kind="BadParameterFile", what="parameter file")
    lines = [line.strip() for line in text.split("\n")]
    parameters = [line for line in lines if line and not line.startswith("#")]
    if not parameters:
        raise RequestRefused(
            f"The parameter file {path} has no line for a job.",
            kind="BadParameterFile",
            hint="Write the parameters of one job a line; empty lines and those that begin with # do not count.",
        )
    _sized(len(parameters))
    return parameters


def read(path: str, *, kind: str, what: str, errors: str = "strict", newline: str | None = None) -> str:
    """Read a file that an option names; `newline=""` keeps the ends of its lines as they are."""
    try:
        with open(path, encoding="utf-8", errors=errors, newline=newline) as file:
            text = file.read(_LONGEST_FILE)
        if "\0" not in text:
            return text
        sentence = f"The {what} {path} cannot be read: character {text.index(chr(0)) + 1} of it is NUL."
        hint = "Give a file with text."
    except OSError as why:
        sentence, hint = f"The {what} {path} cannot be read: {why.strerror}.", "Look at its path."
    except UnicodeDecodeError as why:
        sentence = f"The {what} {path} cannot be read: byte {why.start + 1} of it is not valid UTF-8."
        hint = "`iconv -f latin1 -t utf8` converts older texts."
    raise RequestRefused(sentence, kind=kind, hint=hint)


def _directory(parsed: str | None) -> str:
    """Return the directory of the job; a relative one begins here."""
    if parsed and parsed.startswith("/"):
        return os.path.normpath(parsed)
    return os.path.normpath(os.path.join(_here(), parsed)) if parsed else _here()


def _here() -> str:
    """Return this directory under the name by which the shell came here (home may be a link)."""
    try:
        here = os.getcwd()
    except FileNotFoundError:
        raise RequestRefused(
            "This directory was removed.", kind="BadOption", hint="Go elsewhere, or give -d /PATH."
        ) from None
    named = os.environ.get("PWD", "")
    if named.startswith("/") and os.path.isdir(named) and os.path.samefile(named, here):
        here = named
    if not is_text(here):
        sentence = "The name of this directory is not valid UTF-8."
        raise RequestRefused(sentence, kind="BadOption", hint="Go elsewhere, or give -d /PATH.")
    return here


def environment(variables: dict[str, str]) -> dict[str, str]:
    """Choose the variables that travel: names that every shell knows, values that are text.

    Functions that bash exports have names of another form, and stay behind.
    """
    kept = {name: value for name, value in variables.items() if _is_name(name) and is_text(value)}
    size = sum(len(name) + len(value.encode()) + 2 for name, value in kept.items())
    if size > MOST_ENVIRONMENT:
        largest = max(kept, key=lambda name: len(kept[name]))
        raise RequestRefused(
            f"The exported variables are {size} bytes; at most {MOST_ENVIRONMENT} travel with a job.",
            kind="TooLong",
            hint=f"The largest is {largest}; `unset {largest}`, or set it in the job.",
        )
    return kept


def _is_name(name: str) -> bool:
    return name[:1] in _FIRST and _OTHERS.issuperset(name)


def _initial_request() -> str:
    import sys

    return " ".join(["oarsub", *sys.argv[1:]])


_PLAIN = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.+-")
_OF_THE_SHELL = (
    " alias bg bind break builtin caller case cd command compgen complete continue declare dirs disown do done echo "
    "elif else enable esac eval exec exit export false fc fg fi for function getopts hash help history if in jobs kill "
    "let local logout mapfile popd printf pushd pwd read readarray readonly return select set shift shopt source "
    "suspend test then time times trap true type typeset ulimit umask unalias unset until wait while "
)
"""Words that a shell understands itself."""


def _found_here(command: str, directory: str, path: str) -> str:
    """Return a command so that the shell finds its program: `test.sh` in the launching directory becomes `./test.sh`.

    What stands in PATH comes first, as in every shell; words of the shell stay what they are.
    """
    name = command.split(None, 1)[0] if command.strip() else ""
    if not name or not _PLAIN.issuperset(name) or f" {name} " in _OF_THE_SHELL or name.startswith("-"):
        return command
    if not os.path.isfile(os.path.join(directory, name)) or _in_path(name, path):
        return command
    return f"./{command.lstrip()}"


def _in_path(name: str, path: str) -> bool:
    places = (os.path.join(folder or ".", name) for folder in path.split(":"))
    return any(os.path.isfile(place) and os.access(place, os.X_OK) for place in places)


def _refuse_windows_lines(command: str, directory: str) -> None:
    """Refuse a script whose first line ends as on Windows: the kernel would look for an interpreter named `sh\\r`."""
    name = command.split(None, 1)[0].strip("'\"") if command.strip() else ""
    for place in (name, command.strip("'\"")):
        try:
            with open(os.path.join(directory, place), "rb") as file:
                first = file.read(256).partition(b"\n")
        except (OSError, ValueError):
            continue
        if first[0].startswith(b"#!") and first[0].endswith(b"\r") and first[1]:
            raise RequestRefused(
                f"The lines of {place} end as on Windows (CR LF): its interpreter would not be found.",
                kind="BadScript",
                hint=f"sed -i 's/\\r$//' {place}",
            )
