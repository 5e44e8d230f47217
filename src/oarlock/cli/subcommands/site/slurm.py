"""oarlock slurm: put the commands of Slurm's users into a directory, and take them away again."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from pathlib import Path

from oarlock.cli.output import show_text
from oarlock.cli.slurm import COMMANDS
from oarlock.client import RequestRefused

_MARK = "# Oarlock's translation of Slurm's command; `oarlock slurm remove` takes it away."
_ABOUT = (
    "Install sbatch, squeue and the others that translate Slurm's options into jobs of Oarlock. Where a command of "
    "one of these names is in PATH already, nothing is installed."
)


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to those of `oarlock`."""
    parser = commands.add_parser("slurm", help="install the commands for users of Slurm", description=_ABOUT)
    verbs = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, run, says in (
        ("install", _install, "put the commands into a directory"),
        ("remove", _remove, "remove the commands that were put there"),
    ):
        verb = verbs.add_parser(name, help=says, description=_ABOUT)
        verb.add_argument("directory", metavar="DIR", type=Path, help="such as /usr/local/bin")
        verb.add_argument("--dry-run", action="store_true", help="say what would be done, and do nothing")
        verb.set_defaults(run=run)


def _install(arguments: argparse.Namespace) -> None:
    folder: Path = arguments.directory
    if not folder.is_dir():
        raise RequestRefused(f"{folder} is not a directory.", kind="BadOption", hint=f"mkdir -p {folder}")
    for name in COMMANDS:
        for other in filter(None, {shutil.which(name), str(folder / name)}):
            if os.path.lexists(other) and not _is_ours(Path(other)):
                raise RequestRefused(
                    f"There is a {name} already: {other}. Nothing was installed.", kind="BadOption",
                    hint="Slurm's own commands and ours cannot both be in PATH.",
                )  # fmt: skip
    for name in COMMANDS:
        lines = [f"#!{sys.executable} -sP", _MARK, "import sys", "", f"from oarlock.cli.slurm.{name} import main", ""]
        text = "\n".join([*lines, "sys.exit(main())", ""])
        show_text(f"{'would write' if arguments.dry_run else 'wrote'} {folder / name}")
        if not arguments.dry_run:
            _write(folder / name, text)


def _write(path: Path, text: str) -> None:
    """Write a file in one step: whoever runs it meanwhile has the older one, or the newer."""
    new = path.with_name(f".{path.name}.new")
    try:
        new.write_text(text)
        new.chmod(0o755)
        new.replace(path)
    except OSError as error:
        raise RequestRefused(
            f"{path} cannot be written: {error.strerror}.",
            kind="BadOption",
            hint="Name a directory of yours, or be root.",
        ) from error


def _remove(arguments: argparse.Namespace) -> None:
    for name in COMMANDS:
        path: Path = arguments.directory / name
        if _is_ours(path):
            show_text(f"{'would remove' if arguments.dry_run else 'removed'} {path}")
            if not arguments.dry_run:
                path.unlink()


def _is_ours(path: Path) -> bool:
    try:
        with path.open(errors="replace") as file:
            return _MARK in (file.readline(), file.readline().rstrip("\n"))
    except OSError:
        return False
