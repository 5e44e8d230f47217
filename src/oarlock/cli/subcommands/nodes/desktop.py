"""oarlock desktop: serve as a node, on a machine that the server cannot reach."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from oarlock.cli.output import show_text
from oarlock.client_connection import CA_VARIABLE, RequestRefused

if TYPE_CHECKING:
    import argparse

_ABOUT = (
    "Run jobs of a cluster on this machine, which its server cannot reach: a desktop, a laptop, a machine behind a "
    "firewall. It connects to the server by HTTPS, gets its jobs and their files by that connection, and sends back "
    "what they wrote. Jobs run as the user who runs this; root runs each as its own user, if the account exists here. "
    "Ctrl-C ends the jobs that are here and takes leave of the server; a second one goes at once."
)
_LONGEST_TOKEN = 4096
_HERE = ("localhost", "::1", "127.")


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to those of `oarlock`."""
    parser = commands.add_parser(
        "desktop", help="run jobs on a machine that the server cannot reach", description=_ABOUT
    )
    parser.add_argument("url", metavar="URL", help="the server: https://NAME:PORT")
    parser.add_argument(
        "--token-file",
        metavar="FILE",
        type=Path,
        required=True,
        help="the token of this machine, that `oarlock token add --node NAME -o FILE` made on the server",
    )
    parser.add_argument(
        "--state",
        metavar="DIR",
        type=Path,
        help="where its files and those of jobs are kept (/var/lib/oarlock/desktop for root, else in the user's state "
        "directory); to be kept as long as the token is",
    )
    parser.add_argument(
        "--ca", metavar="FILE", type=Path, help=f"the certificate of the site's own authority (${CA_VARIABLE})"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Serve until the end."""
    url, token = _checked_url(arguments.url), _read_token(arguments.token_file)
    if arguments.ca is not None:
        os.environ[CA_VARIABLE] = str(_readable(arguments.ca))
    from oarlock.server.nodes import desktop_relay  # late: it reads all sources of the node program

    connection = desktop_relay.DesktopConnection(url, token)
    places = desktop_relay.DesktopPlaces.below((arguments.state or desktop_relay.default_state()).absolute())
    with desktop_relay.only_one(places):
        desktop_relay.Desktop(connection, places, _say).run()


def _say(sentence: str) -> None:
    show_text(f"oarlock desktop: {sentence}", file=sys.stderr)


def _checked_url(url: str) -> str:
    """Return the address of a server; a token travels by TLS, or stays on this machine."""
    scheme, is_url, rest = url.partition("://")
    if scheme == "https" and is_url and rest:
        return url
    if scheme == "http" and rest.strip("[").startswith(_HERE):
        return url
    raise RequestRefused(
        f"`{url[:200]}` is not the address of a server that a desktop can use.",
        kind="BadAddress",
        hint="Give https://NAME:PORT; http:// is for an ssh tunnel to this machine.",
    )


def _read_token(path: Path) -> str:
    try:
        with path.open("rb") as file:
            about = os.fstat(file.fileno())
            if not stat.S_ISREG(about.st_mode):
                raise _bad_token(f"{path} is not a plain file.")
            content = file.read(_LONGEST_TOKEN + 1)
    except (OSError, ValueError) as problem:
        raise _bad_token(f"{path} cannot be read: {getattr(problem, 'strerror', None) or problem}.") from None
    if about.st_mode & 0o077:
        raise RequestRefused(f"Others can read the token in {path}.", kind="NoToken", hint=f"chmod 600 {path}")
    token = content.decode("ascii", "replace").strip()
    if not token or len(content) > _LONGEST_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
        raise _bad_token(f"{path} does not hold a token.")
    return token


def _bad_token(sentence: str) -> RequestRefused:
    hint = "An administrator makes one on the server's machine: oarlock token add --node NAME -o FILE."
    return RequestRefused(sentence, kind="NoToken", hint=hint)


def _readable(path: Path) -> Path:
    try:
        with path.open("rb"):
            return path
    except OSError as problem:
        raise RequestRefused(
            f"{path} cannot be read: {problem.strerror}.", kind="BadPath", hint="Name the file of a certificate."
        ) from None
