"""oarlock login: print a link that signs a browser in to the portal."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from oarlock.cli.output import show_text
from oarlock.client import Client

if TYPE_CHECKING:
    import argparse

_ABOUT = (
    "Print a link to the portal that signs you in. Open it within a minute and press the button there; it works once. "
    "It is made where the server's socket is: on the server's machine, or where OARLOCK_SERVER names a socket."
)


class _Browsers(Client):
    """The client, with the verb of links."""

    def link(self) -> dict[str, Any]:
        """Make a link."""
        return dict(self._change("POST", "/browser/link", {}))


def make_link(server: str | None) -> dict[str, Any]:
    """Make a link that signs in whoever runs this; `server` is the server's socket."""
    return _Browsers(server).link()


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to those of `oarlock`."""
    parser = commands.add_parser("login", help="print a link that signs your browser in", description=_ABOUT)
    parser.add_argument("-J", "--json", action="store_true", help="as JSON, for programs")
    parser.add_argument("--server", metavar="SOCKET", help="the server's socket")
    parser.set_defaults(run=_login)


def _login(arguments: argparse.Namespace) -> None:
    made = make_link(arguments.server)
    if arguments.json:
        print(json.dumps(made, indent=2))
        return
    show_text(made["link"])
    show_text("Open it within a minute; it signs in once.")
