"""Secrets: each in a file of its own that only its owner can read, named in the settings as `file:/path`."""

import os
import stat
from dataclasses import dataclass, field
from pathlib import Path

from oarlock.model.errors import ConfigRefused, SecretExposed

PREFIX = "file:"
LONGEST = 4096


@dataclass(frozen=True, slots=True)
class Secret:
    """A password and where it came from; it is never shown, printed or logged by accident.

    `file` is `None` when the password itself stood in the settings.
    """

    value: str = field(repr=False)
    file: Path | None = None

    def __str__(self) -> str:
        return f"{PREFIX}{self.file}" if self.file else "(hidden)"


def read(text: str) -> Secret | None:
    """Read a setting that is a secret; nothing means that there is none.

    `SecretExposed` when others could read its file. Whether a password may stand in the settings themselves is for
    `check_plain` to say, since only the reader of that file knows who can read it.
    """
    if not text:
        return None
    if not text.startswith(PREFIX):
        return Secret(text)
    path = Path(text.removeprefix(PREFIX))
    if not path.is_absolute():
        raise ConfigRefused(f"The secret file `{path}` is not an absolute path.", hint="Write file:/full/path.")
    return Secret(read_file(path), path)


def check_plain(key: str, secret: Secret, *, file: str, status: os.stat_result) -> None:
    """Refuse a password that stands in a settings file which others can read."""
    if secret.file is None and exposure(status):
        raise SecretExposed(
            f"{file} holds a password ({key}) and {exposure(status)}.",
            hint=f"Move the password to a file of mode 0600 and write {key}=file:/path/to/it (or chmod 600 {file}).",
        )


def exposure(status: os.stat_result) -> str:
    """Return why a file does not keep a secret; empty if it does: owned by us or root, readable by nobody else."""
    if status.st_uid not in (os.geteuid(), 0):
        return f"belongs to another user (uid {status.st_uid})"
    mode = stat.S_IMODE(status.st_mode)
    return f"can be read by others (mode {mode:04o})" if mode & 0o077 else ""


def read_file(path: Path, *, longest: int = LONGEST) -> str:
    """Read a secret file; what is checked is what is read, whatever happens to the name meanwhile."""
    try:
        # Without O_NONBLOCK a pipe in its place would stop us for ever.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as problem:
        raise ConfigRefused(f"The secret file {path} cannot be read: {problem.strerror}.") from problem
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise ConfigRefused(f"The secret file {path} is not a plain file.")
        if why := exposure(status):
            raise SecretExposed(f"The secret file {path} {why}.", hint=f"chmod 600 {path}, owned by the server's user.")
        return _decoded(file.read(longest + 1), path, longest)


def _decoded(content: bytes, path: Path, longest: int) -> str:
    try:
        secret = content.decode().removesuffix("\n")
    except UnicodeDecodeError as problem:
        raise ConfigRefused(f"The secret file {path} is not UTF-8 text.") from problem
    if not secret or len(content) > longest:
        raise ConfigRefused(f"The secret file {path} is {'too long' if secret else 'empty'}.")
    return secret
