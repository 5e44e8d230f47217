"""oarlock digest: the mails that users and staff would get about last week and last month, as files."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oarlock.cli.output import show_text
from oarlock.client import Client, RequestRefused

if TYPE_CHECKING:
    import argparse

_ABOUT = (
    "Write the digests of the last week and month as `.eml` files, which mail programs open: those of users, and the "
    "lists for MAIL_RECIPIENT. Nothing is sent; with MAIL_DIGESTS=yes the server sends them by itself."
)
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9@._-]")


class _Digests(Client):
    """The client, with the verb of digests."""

    def preview(self) -> dict[str, Any]:
        """Return the digests as mails."""
        response: dict[str, Any] = self._change("POST", "/digests/preview", {})
        return response


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to those of `oarlock`."""
    parser = commands.add_parser("digest", help="write the mails about last week and month", description=_ABOUT)
    parser.add_argument("--dry-run", metavar="DIR", required=True, help="write them into this directory")
    parser.add_argument("--server", metavar="ADDRESS", help="the server's socket, or http://NAME:PORT")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Write a file for each digest."""
    folder = Path(arguments.dry_run)
    if not folder.is_dir():
        raise RequestRefused(f"{folder} is not a directory.", kind="BadFile", hint="Make it, or name another.")
    view = _Digests(arguments.server).preview()
    for digest in view["digests"]:
        name = _NOT_IN_NAMES.sub("_", f"{digest['rule']}.{digest['user']}.eml")
        _write(folder / name, digest["message"])
        show_text(f"{folder / name}: to {digest['address']}")
    if not view["digests"]:
        show_text("There is nothing to send: nothing was found, or MAIL_RECIPIENT and MAIL_USER_DOMAIN are empty.")
    if view["more"]:
        show_text(f"There are more; these are the first {len(view['digests'])}.")


def _write(path: Path, message: str) -> None:
    try:
        # A file of before is replaced; a link that somebody put there is not followed.
        path.unlink(missing_ok=True)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as problem:
        raise RequestRefused(
            f"{path} cannot be made: {problem.strerror}.", kind="BadFile", hint="Name another directory."
        ) from None
    with os.fdopen(fd, "w", encoding="utf-8", newline="") as file:
        file.write(message)
