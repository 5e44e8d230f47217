"""oarlock token: make, list and revoke the tokens with which a server is reached over the network."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oarlock.cli.layout import readable
from oarlock.cli.output import show_text
from oarlock.client import Client, RequestRefused
from oarlock.client_connection import TOKEN_VARIABLE, token_file

if TYPE_CHECKING:
    import argparse

_ABOUT = (
    "Make, list and revoke your tokens. Commands on other machines and programs that use the API send one to say who "
    "they are; on the server's own machine none is needed. A token is made where the server's socket is, is shown "
    "once, and is good until it expires or is revoked."
)


class _Tokens(Client):
    """The client, with the verbs of tokens."""

    def add_token(self, arguments: argparse.Namespace, name: str) -> str:
        """Make a token; with `node` or `scripts`, one that is good for that alone."""
        about = {"name": name, "days": arguments.days}
        about |= {key: value for key in ("node", "relay", "scripts", "cluster") if (value := getattr(arguments, key))}
        return str(self._change("POST", "/tokens", about)["token"])

    def tokens(self) -> list[dict[str, Any]]:
        """List the tokens of the caller."""
        return list(self._get("/tokens")["tokens"])

    def revoke_token(self, name: str) -> None:
        """Make a token worthless."""
        from urllib.parse import quote

        self._change("DELETE", f"/tokens/{quote(name, safe='')}")


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to those of `oarlock`."""
    parser = commands.add_parser("token", help="make, list and revoke tokens for the network", description=_ABOUT)
    verbs = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    adding = verbs.add_parser("add", help="make a token and print it, this once")
    adding.add_argument("name", metavar="NAME", nargs="?", help="a name for it, such as the machine that will use it")
    adding.add_argument(
        "--node", metavar="NODE", help="good for this node and nothing else; NAME is then the node's if it is left out"
    )
    adding.add_argument("--relay", metavar="HOST", help="the key of `oarlock relay` on this login host")
    adding.add_argument("--scripts", action="store_true", help="good for sending scripts of jobs and nothing else")
    adding.add_argument(
        "--cluster", metavar="CLUSTER", help="with --node or --scripts: of that cluster, not of the server's own"
    )
    adding.add_argument(
        "--days", metavar="N", type=int, help="for how long it is good, at most 366 (30; of a relay 366)"
    )
    adding.add_argument("--save", action="store_true", help="write it where commands look for it, and do not print it")
    adding.add_argument("-o", "--output", metavar="FILE", type=Path, help="write it to a new file, and do not print it")
    adding.set_defaults(run=_add)
    listing = verbs.add_parser("list", help="list your tokens, not what they are")
    listing.add_argument("-J", "--json", action="store_true", help="as JSON, for programs")
    listing.set_defaults(run=_list)
    revoking = verbs.add_parser("revoke", help="make a token worthless, at once")
    revoking.add_argument("name", metavar="NAME", help="its name")
    revoking.set_defaults(run=_revoke)
    for verb in (adding, listing, revoking):
        verb.add_argument("--server", metavar="ADDRESS", help="the server's socket, or https://NAME:PORT")


def _add(arguments: argparse.Namespace) -> None:
    name = _name(arguments)
    if arguments.days is None:
        arguments.days = 366 if arguments.relay is not None else 30
    path = Path(token_file()) if arguments.save else arguments.output
    if path is None:
        print(_Tokens(arguments.server).add_token(arguments, name))
        return
    # The file comes first: a token that cannot be kept must not be made, since it is shown only once.
    early = path.with_name(f"{path.name}.new")
    _make_private_file(early, keep=None if arguments.save else path)
    try:
        early.write_text(_Tokens(arguments.server).add_token(arguments, name) + "\n")
    except BaseException:
        early.unlink(missing_ok=True)
        raise
    early.replace(path)
    show_text(f"The token `{name}` is in {path}, for {arguments.days} days.")


def _name(arguments: argparse.Namespace) -> str:
    """Return the name of a new token; one for a node is named after it, and never kept as the user's own."""
    is_own = arguments.node is None and arguments.relay is None and not arguments.scripts
    if not is_own and arguments.save:
        raise RequestRefused(
            "--save is for a token of your own.", kind="BadOption", hint="Write this one with -o FILE."
        )
    if arguments.name is None and arguments.scripts:
        return f"scripts.{arguments.cluster}" if arguments.cluster else "scripts"
    if arguments.name is None and arguments.relay is not None:
        return f"relay.{arguments.relay.replace(':', '.')}"
    if arguments.name is None and arguments.node is None:
        raise RequestRefused("The token needs a name.", kind="BadOption", hint="oarlock token add NAME")
    return str(arguments.node.replace(":", ".")) if arguments.name is None else str(arguments.name)


def _make_private_file(early: Path, *, keep: Path | None) -> None:
    """Make a file that only its owner can read, never through a link; a file to `keep` must not be there."""
    try:
        if keep is None:
            early.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        elif os.path.lexists(keep):
            raise FileExistsError(17, "it is there already", str(keep))
        early.unlink(missing_ok=True)
        os.close(os.open(early, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600))
    except OSError as problem:
        raise RequestRefused(
            f"{keep or early} cannot be made: {problem.strerror}.", kind="BadFile", hint="Name another file."
        ) from None


def _list(arguments: argparse.Namespace) -> None:
    tokens = _Tokens(arguments.server).tokens()
    if arguments.json:
        print(json.dumps(tokens, indent=2))
    elif not tokens:
        show_text(f"You have no token. `oarlock token add NAME` makes one; ${TOKEN_VARIABLE} hands it to commands.")
    for token in [] if arguments.json else tokens:
        dates = f"made {readable.date(token['created'])}, good until {readable.date(token['expires'])}"
        show_text(f"{token['name']:24} {dates}{_scope(token)}")


def _scope(token: dict[str, Any]) -> str:
    if token.get("relay"):
        return f", only for the relay of {token['relay']}"
    what = token["node"] or ("scripts" if token["scripts"] else "")
    of_cluster = f" of {token['cluster']}" if token["cluster"] else ""
    return f", only for {what}{of_cluster}" if what else ""


def _revoke(arguments: argparse.Namespace) -> None:
    _Tokens(arguments.server).revoke_token(arguments.name)
    show_text(f"The token `{arguments.name}` is worthless now.")
