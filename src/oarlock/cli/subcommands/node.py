"""oarlock node install: what to put on nodes so that the server sends them messages only, never code."""

import argparse
import sys
from pathlib import Path
from typing import Any

from oarlock.model.submission_errors import BadPath

_ABOUT = (
    "Write the node program, a line for authorized_keys with its forced command, and a sudoers line into a folder, and "
    "say where each goes on a node. With NODE_ACCESS=installed the server then needs no root key: it sends messages, "
    "never code. Where files lie on the node, who may run jobs and which programs of the site may run there is taken "
    "from the settings and fixed in the program."
)


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `oarlock node` to the commands."""
    node = commands.add_parser("node", help="prepare nodes that are sent messages only")
    verbs = node.add_subparsers(title="commands", metavar="COMMAND", required=True)
    install = verbs.add_parser("install", help="write what to put on nodes, and say where it goes", description=_ABOUT)
    install.add_argument("--key", metavar="FILE", type=Path, required=True, help="the public key of the server's user")
    install.add_argument("--to", metavar="DIR", type=Path, default=Path("oarlock-node"), help="where to (oarlock-node)")
    install.add_argument("--config", metavar="FILE", type=Path, help="the settings file")
    install.add_argument(
        "--program", metavar="PATH", type=Path, help="its place on nodes (/usr/local/lib/oarlock/node)"
    )
    install.add_argument("--account", metavar="NAME", help="who the server is on nodes (oarlock)")
    install.set_defaults(run=_install)


def _install(arguments: argparse.Namespace) -> None:
    from oarlock.config import load
    from oarlock.server.nodes.command import ACCOUNT
    from oarlock.server.nodes.fleet import fixed_settings
    from oarlock.server.nodes.install import PROGRAM, node_files

    program, account = arguments.program or PROGRAM, arguments.account or ACCOUNT
    made = node_files(
        fixed_settings(load(arguments.config).config), key=_read(arguments.key), program=program, account=account
    )
    written = {"node": made.program, "authorized_keys": made.authorized_keys, "sudoers": made.sudoers}
    _write(arguments.to, written)
    sys.stdout.write(_STEPS.format(dir=arguments.to, program=program, account=account))


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as problem:
        raise _unusable(f"The key {path} cannot be read", problem) from problem


def _write(folder: Path, texts: dict[str, str]) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (folder / name).write_text(text)
    except OSError as problem:
        raise _unusable(f"The folder {folder} cannot be written", problem) from problem


def _unusable(what: str, problem: Any) -> BadPath:
    return BadPath(f"{what}: {getattr(problem, 'strerror', None) or 'it is not text'}.", hint="Name another.")


_STEPS = """\
On every node, as root:

  id {account} || useradd --system --create-home --shell /bin/sh {account}
  install -D -o root -g root -m 755 {dir}/node {program}
  install -D -o root -g root -m 644 {dir}/authorized_keys ~{account}/.ssh/authorized_keys
  install -o root -g root -m 440 {dir}/sudoers /etc/sudoers.d/oarlock

Then NODE_ACCESS="installed" in the server's settings. After an upgrade of the server: the second line again.
"""
