"""The file that the command of a job names, as far as this machine can see it."""

from __future__ import annotations

import os

from oarlock.client import RequestRefused

_PLAIN = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.+-")
_OF_THE_SHELL = (
    " alias bg bind break builtin caller case cd command compgen complete continue declare dirs disown do done echo "
    "elif else enable esac eval exec exit export false fc fg fi for function getopts hash help history if in jobs kill "
    "let local logout mapfile popd printf pushd pwd read readarray readonly return select set shift shopt source "
    "suspend test then time times trap true type typeset ulimit umask unalias unset until wait while "
)
"""Words that a shell understands itself."""


def found_here(command: str, directory: str, path: str) -> str:
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


def refuse_windows_lines(command: str, directory: str) -> None:
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
