"""Run a program of the system and return its output: arguments as a list, with a timeout, never a shell."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence

_LONGEST_COMPLAINT = 200


class CommandFailed(Exception):
    """A program is missing, timed out or failed; the text names it and the reason."""


def output(
    command: Sequence[str], *, text_in: str = "", timeout: float = 20, environment: Mapping[str, str] | None = None
) -> str:
    """Run a command to its end and return what it printed; raise `CommandFailed` otherwise.

    `environment` is what differs from our own.
    """
    program = find(command[0])
    if program is None:
        raise CommandFailed(f"{command[0]} is not installed")
    try:
        ran = subprocess.run(  # noqa: S603  the caller made the list; nothing in it is read by a shell
            [program, *command[1:]], input=text_in, capture_output=True, text=True, errors="replace", timeout=timeout,
            check=False, env={**os.environ, **environment} if environment else None,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise CommandFailed(f"{command[0]} gave no answer within {timeout:g} s") from error
    except OSError as error:
        raise CommandFailed(f"{command[0]} gave no answer: {error}") from error
    if ran.returncode:
        complaint = ran.stderr.strip()[:_LONGEST_COMPLAINT] or f"it ended with {ran.returncode}"
        raise CommandFailed(f"{command[0]}: {complaint}")
    return ran.stdout


def find(program: str) -> str | None:
    """Return where a program is; None if it is not installed."""
    return shutil.which(program)
