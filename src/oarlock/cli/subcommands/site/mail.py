"""oarlock mail: which mails you get without asking for them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from oarlock.cli.output import show_text
from oarlock.client import Client

if TYPE_CHECKING:
    import argparse

_ABOUT = (
    "Show which mails you get without asking for them, and where they go. Mails of `oarsub --notify` are not among "
    "them, nor warnings before a job of yours is ended."
)


class _Mail(Client):
    """The client, with the verbs of mail choices."""

    def choices(self) -> dict[str, Any]:
        """Return one's choices."""
        response: dict[str, Any] = self._get("/mail/choices")
        return response

    def choose(self, kind: str, *, wanted: bool) -> None:
        """Choose whether one wants a kind of mails."""
        self._change("POST", "/mail/choices", {"kind": kind, "wanted": wanted})


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to those of `oarlock`."""
    parser = commands.add_parser("mail", help="choose which mails you get without asking", description=_ABOUT)
    parser.add_argument("--on", metavar="KIND", action="append", default=[], help="send me these again")
    parser.add_argument(
        "--off", metavar="KIND", action="append", default=[], help="do not send me these: week, month, advice"
    )
    parser.add_argument("-J", "--json", action="store_true", help="as JSON, for programs")
    parser.add_argument("--server", metavar="ADDRESS", help="the server's socket, or http://NAME:PORT")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Change what is named, then print all choices."""
    client = _Mail(arguments.server)
    for kinds, wanted in ((arguments.on, True), (arguments.off, False)):
        for kind in kinds:
            client.choose(kind, wanted=wanted)
    view = client.choices()
    if arguments.json:
        print(json.dumps(view))
        return
    show_text(
        f"To {view['address']}:"
        if view["address"]
        else "No mails are sent to users here (MAIL_USER_DOMAIN, MAIL_ADDRESSES)."
    )
    for choice in view["choices"]:
        show_text(f"  {choice['kind']:<8} {'on ' if choice['wanted'] else 'off'}  {choice['says']}")
