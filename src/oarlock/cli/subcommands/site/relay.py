"""oarlock relay: pass the requests of commands on a login host on to the server."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import TYPE_CHECKING

from oarlock.client_connection import CA_FILE, CA_VARIABLE, PORT, RequestRefused

if TYPE_CHECKING:
    import argparse
    import ssl

    from oarlock.server.login_relay import ServerAddress

_ABOUT = (
    "Allow users of this login host to use the commands without tokens: the kernel says who connects to the relay's "
    "socket, and the relay asks the server in that user's name, with the key of this host. It runs as an account of "
    "its own, needs no privilege, and runs until it is stopped."
)
SOCKET = Path("/run/oarlock-relay/server.sock")
KEY = Path("/etc/oarlock/relay.key")
_HERE = re.compile(r"localhost|127(\.\d{1,3}){3}|\[::1\]")


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to those of `oarlock`."""
    parser = commands.add_parser("relay", help="let users of a login host reach the server", description=_ABOUT)
    parser.add_argument(
        "server", metavar="ADDRESS", help=f"the server: https://NAME:{PORT}; two with a comma between them"
    )
    parser.add_argument(
        "--key",
        metavar="FILE",
        type=Path,
        default=KEY,
        help=f"the key of this host, that `oarlock token add --relay HOST -o FILE` made on the server ({KEY})",
    )
    parser.add_argument(
        "--listen", metavar="SOCKET", type=Path, default=SOCKET, help=f"where commands reach it ({SOCKET})"
    )
    parser.add_argument(
        "--ca", metavar="FILE", type=Path, help=f"the certificate of the site's own authority (${CA_VARIABLE})"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Relay until SIGTERM or SIGINT."""
    import asyncio
    import contextlib
    import signal

    from oarlock.server import login_relay

    addresses = [_address(part.strip(), arguments.ca) for part in arguments.server.split(",")]
    try:
        login_relay.read_key(arguments.key)
    except (OSError, ValueError) as problem:
        why = getattr(problem, "strerror", None) or str(problem)
        raise RequestRefused(
            f"The key {arguments.key} cannot be used: {why}.",
            kind="BadFile",
            hint="On the server an administrator makes it: `oarlock token add --relay HOST -o FILE`; mode 600 here.",
        ) from None
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    relay = login_relay.LoginRelay(addresses, arguments.key)

    async def serve() -> None:
        serving = asyncio.ensure_future(relay.serve(arguments.listen))
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, serving.cancel)
        with contextlib.suppress(asyncio.CancelledError):
            await serving

    try:
        asyncio.run(serve())
    except OSError as problem:
        raise RequestRefused(
            f"The relay cannot listen at {arguments.listen}: {problem.strerror or problem}.",
            kind="BadFile",
            hint="Make its folder, for the account that the relay runs as; or name another with --listen.",
        ) from None


def _address(text: str, authority: Path | None) -> ServerAddress:
    from oarlock.server.login_relay import ServerAddress

    scheme, _, rest = text.partition("://")
    name, colon, port = rest.rstrip("/").rpartition(":")
    if not colon or name.endswith(":"):
        name, port = rest.rstrip("/"), str(PORT)
    if scheme not in {"https", "http"} or not name or not port.isdecimal() or "/" in name:
        raise RequestRefused(
            f"`{text}` is not the address of a server.", kind="BadAddress", hint=f"Give https://NAME:{PORT}."
        )
    if scheme == "http" and not _HERE.fullmatch(name):
        raise RequestRefused(
            f"The key of this host would cross the network unencrypted to {name}.",
            kind="BadAddress",
            hint="Use https; http is for a tunnel that begins on this machine.",
        )
    return ServerAddress(name.strip("[]"), int(port), _context(authority) if scheme == "https" else None)


def _context(authority: Path | None) -> ssl.SSLContext:
    import os
    import ssl

    own = os.environ.get(CA_VARIABLE) or (CA_FILE if Path(CA_FILE).exists() else None)
    try:
        return ssl.create_default_context(cafile=str(authority) if authority else own)
    except OSError as problem:
        raise RequestRefused(
            f"The certificate {authority or own} cannot be read: {problem.strerror or problem}.",
            kind="BadFile",
            hint="Name the file (PEM) of the site's own authority.",
        ) from None
