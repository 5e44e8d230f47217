"""What setup wrote on a machine: noted before it is done, so that it can be finished or taken back at any time."""

import contextlib
import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any

FOLDER = Path("/var/lib/oarlock-setup")


def below(root: Path, path: Path) -> Path:
    """Return where an absolute path lies when `root` is taken for the root of the file system."""
    return root / path.relative_to("/")


def checksum(content: bytes) -> str:
    """Return the sum by which a file is known to be as it was written."""
    return hashlib.sha256(content).hexdigest()


def write_whole(path: Path, content: bytes, mode: int) -> None:
    """Write a file whole or not at all; nobody sees it with another mode."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fchmod(handle, mode)
            os.fsync(handle)
        os.replace(name, path)  # noqa: PTH105 - one name for the call that can be interrupted
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)  # noqa: PTH108
        raise


class SetupJournal:
    """Files (by the sum of what was written), folders, lines and accounts that setup made for one role."""

    def __init__(self, root: Path, role: str) -> None:
        self._folder = below(root, FOLDER)
        self._file = self._folder / f"{role}.json"
        content: dict[str, Any] = {}
        with contextlib.suppress(FileNotFoundError):
            content = json.loads(self._file.read_text())
        self.files: dict[str, str] = content.get("files", {})
        self.lines: dict[str, list[str]] = content.get("lines", {})
        self.folders: list[str] = content.get("folders", [])
        self.accounts: list[str] = content.get("accounts", [])
        self.units: list[str] = content.get("units", [])

    @property
    def is_empty(self) -> bool:
        """Whether nothing of this role is on the machine."""
        return not (self.files or self.lines or self.folders or self.accounts or self.units)

    def save(self) -> None:
        """Write the journal, before what it notes is done; an empty one is removed."""
        if self.is_empty:
            self._file.unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # another role has its journal there
                self._folder.rmdir()
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        content = {name: getattr(self, name) for name in ("files", "lines", "folders", "accounts", "units")}
        write_whole(self._file, json.dumps(content, indent=1).encode(), 0o600)
