"""Run a program of the system and return its output: arguments as a list, with a timeout, never a shell."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence

_LONGEST_COMPLAINT = 200


class CommandFailed(Exception):
    """A program is missing, timed out or failed; the text names it and the reason."""


def output(command: Sequence[str], *, text_in: str = "", timeout: float = 20) -> str:
    """Run a command to its end and return what it printed; raise `CommandFailed` otherwise."""
    program = shutil.which(command[0])
    if program is None:
        raise CommandFailed(f"{command[0]} is not installed")
    try:
        ran = subprocess.run(  # noqa: S603  the caller made the list; nothing in it is read by a shell
            [program, *command[1:]], input=text_in, capture_output=True, text=True, errors="replace", timeout=timeout,
            check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CommandFailed(f"{command[0]} gave no answer: {error}") from error
    if ran.returncode:
        complaint = ran.stderr.strip()[:_LONGEST_COMPLAINT] or f"it ended with {ran.returncode}"
        raise CommandFailed(f"{command[0]}: {complaint}")
    return ran.stdout
