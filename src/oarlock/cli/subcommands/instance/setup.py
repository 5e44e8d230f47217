"""oarlock setup: make a server, a login host or a node of this machine, and take that back."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from oarlock.client import RequestRefused

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from oarlock.server.setup.plan import SetupPlan

_ABOUT = (
    "Write what this machine needs for its role. Run again, it does what is left and changes nothing else; a file that "
    "an administrator wrote or changed is kept and named. What was written is noted in /var/lib/oarlock-setup."
)


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `oarlock setup` to the commands."""
    setup = commands.add_parser("setup", help="make a server, a login host or a node of this machine")
    roles = setup.add_subparsers(title="roles", metavar="ROLE", required=True)
    server = roles.add_parser("server", help="settings, ssh key, unit of systemd", description=_ABOUT)
    server.add_argument("nodes", metavar="NODE", nargs="*", help="nodes whose host keys are fetched")
    server.add_argument(
        "--account", metavar="NAME", default="", help="the server runs as this account, not as root; it is made"
    )
    server.add_argument(
        "--standby", action="store_true", help="one of two servers of a PostgreSQL database: it waits for its turn"
    )
    server.set_defaults(run=_server)
    login = roles.add_parser("login", help="where commands find the server", description=_ABOUT)
    login.add_argument("--server", metavar="ADDRESS", default="", help="https://NAME:PORT; two with a comma between")
    login.add_argument("--ca", metavar="FILE", type=Path, help="the certificate of the site's own authority")
    login.add_argument("--relay", action="store_true", help="users need no token: `oarlock relay` asks for them")
    login.add_argument("--key", metavar="FILE", type=Path, help="with --relay: what `oarlock token add --relay` made")
    login.set_defaults(run=_login)
    node = roles.add_parser("node", help="the installed node program; nothing for NODE_ACCESS=push", description=_ABOUT)
    node.add_argument("--from", dest="folder", metavar="DIR", type=Path, help="what `oarlock node install` wrote")
    node.set_defaults(run=_node)
    for role in (server, login, node):
        role.add_argument("--dry-run", action="store_true", help="show the diff of every file, write nothing")
        role.add_argument("--undo", action="store_true", help="remove exactly what setup wrote")
        role.add_argument("--root", metavar="DIR", type=Path, default=Path("/"), help="below DIR instead of /")


def _server(arguments: argparse.Namespace) -> None:
    from oarlock.server.setup import roles

    def planned() -> SetupPlan:
        return roles.server(arguments.root, arguments.nodes, arguments.account, standby=arguments.standby)

    _carry_out("server", arguments, planned)


def _login(arguments: argparse.Namespace) -> None:
    from oarlock.server.setup import roles

    if arguments.key is not None and not arguments.relay:
        raise RequestRefused("--key is for --relay.", kind="BadOption", hint="Add --relay, or leave --key out.")
    if arguments.relay and arguments.key is None and not arguments.undo:
        raise RequestRefused(
            "A relay needs the key of this host.",
            kind="BadOption",
            hint="On the server: `oarlock token add --relay HOST -o FILE`; here: --key FILE.",
        )

    def planned() -> SetupPlan:
        if arguments.relay:
            return roles.relay(arguments.server, arguments.ca, arguments.key)
        return roles.login(arguments.server, arguments.ca)

    _carry_out("login", arguments, planned)


def _node(arguments: argparse.Namespace) -> None:
    from oarlock.server.setup import roles

    _carry_out("node", arguments, lambda: roles.node(arguments.folder))


def _carry_out(role: str, arguments: argparse.Namespace, planned: Callable[[], SetupPlan]) -> None:
    from oarlock.server.setup import plan

    root = arguments.root = arguments.root.resolve()
    if not arguments.dry_run and root == Path("/") and os.geteuid() != 0:
        raise RequestRefused(
            "Setup writes below /etc, which only root may.", kind="Forbidden", hint="Use sudo, or look with --dry-run."
        )
    if arguments.undo:
        _finish("stays", plan.take_back(role, root, _say), "Remove it yourself if nobody needs it.")
        return
    setup = planned()
    if arguments.dry_run:
        sys.stdout.writelines(f"{line}\n" for line in plan.show(setup, root))
        return
    left = plan.carry_out(setup, root, _say)
    if setup.next_steps:
        print("Next:")
        for step in setup.next_steps:
            print(f"  {step}")
    _finish("was kept: it is not as setup wrote it", left, "Compare with --dry-run; move it away and run setup again.")


def _say(line: str) -> None:
    print(line, flush=True)


def _finish(what: str, left: list[str], hint: str) -> None:
    if left:
        raise RequestRefused(f"{'; '.join(left)}: this {what}.", kind="Conflict", hint=hint)
