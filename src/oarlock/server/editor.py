"""Runs an administrator's text editor on a text, in the terminal of a command."""

import os
import shlex
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from oarlock.model.submission_errors import EditorFailed

_USUAL = "vi"


def edited(text: str, *, command: str | None = None, suffix: str = ".toml") -> str:
    """Return a text as an editor leaves it: `command`, else $VISUAL, $EDITOR or vi (`EditorFailed`)."""
    words = shlex.split(command or os.environ.get("VISUAL") or os.environ.get("EDITOR") or _USUAL)
    with tempfile.TemporaryDirectory(prefix="oarlock-") as folder:
        path = Path(folder) / f"rule{suffix}"
        path.write_text(text)
        _run([*words, str(path)])
        try:
            return path.read_text()
        except (OSError, UnicodeDecodeError) as problem:
            raise EditorFailed(f"What the editor left is unreadable: {problem}.", hint="Nothing was changed.") from None


def _run(words: Sequence[str]) -> None:
    try:
        status = subprocess.run(words, check=False).returncode  # noqa: S603 (the caller's own editor, as the caller)
    except OSError as problem:
        raise EditorFailed(
            f"The editor `{words[0]}` cannot be run: {problem.strerror}.",
            hint="--edit=COMMAND or $EDITOR names another.",
        ) from None
    if status:
        raise EditorFailed(f"The editor `{words[0]}` ended with {status}.", hint="Nothing was changed.")
