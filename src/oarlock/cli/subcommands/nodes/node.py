"""oarlock node: install its program so that the server sends messages only; clean up after a server that is gone."""

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oarlock.cli.output import show_text
from oarlock.model.submission_errors import BadPath

if TYPE_CHECKING:
    from oarlock.server.nodes.leftovers import Leftovers

_ABOUT = (
    "Write the node program, a line for authorized_keys with its forced command, and a sudoers line into a folder, and "
    "say where each goes on a node. With NODE_ACCESS=installed the server then needs no root key: it sends messages, "
    "never code. Where files lie on the node, who may run jobs and which programs of the site may run there is taken "
    "from the settings and fixed in the program."
)

_ABOUT_CLEAN = (
    "Find and end what is left on this machine of jobs whose server is gone: supervisors whose spool was removed with "
    "what runs below them, cgroups of jobs that no supervisor works on, files written for such jobs. Only what Oarlock "
    "made is touched, and no job whose server is there or may come back. Run it as root on the node. Ends with 0, "
    "with 1 if something could not be ended, with 2 if it is refused."
)


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `oarlock node` to the commands."""
    node = commands.add_parser("node", help="prepare nodes that are sent messages only, and clean them")
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
    clean = verbs.add_parser("clean", help="end what servers that are gone left here", description=_ABOUT_CLEAN)
    clean.add_argument("--dry-run", action="store_true", help="only show what would be ended")
    clean.add_argument(
        "--gone",
        metavar="DIR",
        type=Path,
        help="the server of this spool, or of this state directory, will not come back: end its jobs as well, and look "
        "at nothing else",
    )
    clean.add_argument("-J", "--json", action="store_true", help="as JSON, for programs")
    clean.set_defaults(run=_clean)


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


def _clean(arguments: argparse.Namespace) -> int:
    from oarlock.server.nodes import clean, leftovers

    gone = arguments.gone.resolve() if arguments.gone else None
    if gone:
        clean.check_gone(gone)
    left = leftovers.find(gone)
    problems = [] if arguments.dry_run else clean.end(left)
    if arguments.json:
        plain = {"ended": not arguments.dry_run, "left": _plain(left), "kept": left.living, "problems": problems}
        print(json.dumps(plain, indent=2))
    else:
        _show(left, problems, dry_run=arguments.dry_run)
    return 1 if problems else 0


def _plain(left: "Leftovers") -> list[dict[str, Any]]:
    """Describe each thing: its kind, its name, and the job."""
    supervisors = [
        {"kind": "supervisor", "name": f"{process.spool}/{process.name}", "pid": process.pid, "job": process.key[0]}
        for process in left.supervisors
    ]
    groups = [{"kind": "cgroup", "name": group.path} for group in left.groups]
    files = [{"kind": "file", "name": str(path)} for path in left.files]
    lines = [{"kind": "linger", "name": str(path), "line": line} for path, line in left.lingering]
    return [*supervisors, *groups, *files, *lines]


def _show(left: "Leftovers", problems: list[str], *, dry_run: bool) -> None:
    things = _plain(left)
    for thing in things:
        show_text(f"{thing['kind']:<10}  {thing['name']}" + (f"  (process {thing['pid']})" if "pid" in thing else ""))
    for problem in problems:
        show_text(f"problem     {problem}")
    word = "would be ended" if dry_run else "ended"
    kept = f"; {left.living} jobs are left alone, their servers are there or may come back" if left.living else ""
    show_text(f"{len(things) - len(problems)} things {word}{kept}.")


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
