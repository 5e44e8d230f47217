"""oarlock import-slurm: bring the nodes, partitions and history of a Slurm cluster into an instance."""

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from oarlock.cli.output import show_text
from oarlock.client import RequestRefused

if TYPE_CHECKING:
    from oarlock.store.queries.site.imported_rows import ImportCounts

_ABOUT = (
    "Bring what a Slurm cluster declares and remembers into an instance whose server is stopped: nodes with their "
    "cores, memory, GPUs and features and a queue for each partition (--conf), jobs that are over (--sacct or "
    "--database). All is taken over or nothing; a second run continues."
)


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to those of `oarlock`."""
    parser = commands.add_parser("import-slurm", help="take over nodes and history of Slurm", description=_ABOUT)
    parser.add_argument("--conf", metavar="FILE", type=Path, help="slurm.conf: nodes and partitions")
    history = parser.add_mutually_exclusive_group()
    history.add_argument("--sacct", metavar="FILE", type=Path, help="the output of the command that --show-sacct shows")
    history.add_argument(
        "--database", metavar="URL",
        help="slurmdbd's: mysql://USER@HOST/DATABASE, with the views of `oarlock sources slurm --grant`",
    )  # fmt: skip
    parser.add_argument("--password-file", metavar="FILE", type=Path, help="the password of the account in URL")
    parser.add_argument("--show-sacct", action="store_true", help="show the command whose output --sacct reads")
    parser.add_argument("--rules", metavar="FILE", type=Path,
                        help="write rules that keep jobs of a queue on the nodes of its partition")  # fmt: skip
    parser.add_argument(
        "--state", metavar="DIR", type=Path, help="the state directory (default: that of OARLOCK_SERVER)"
    )
    parser.add_argument("--config", metavar="FILE", type=Path, help="the settings file")
    parser.add_argument("-J", "--json", action="store_true", help="the report as JSON, for programs")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Import, and tell what had a place and what had none."""
    from oarlock.config import load
    from oarlock.lang.sacct import COMMAND
    from oarlock.server.imports import import_slurm, partition_rules
    from oarlock.server.instance import state_of_commands

    if arguments.show_sacct:
        print(COMMAND)
        return
    if not (arguments.conf or arguments.sacct or arguments.database):
        raise RequestRefused(
            "There is nothing to import.", kind="BadOption", hint="Give --conf, --sacct or --database."
        )
    report = import_slurm(
        arguments.state or state_of_commands(),
        load(arguments.config).config,
        conf=arguments.conf,
        sacct=arguments.sacct,
        database=arguments.database,
        password=arguments.password_file.read_text().strip() if arguments.password_file else "",
        say=lambda line: print(f"oarlock: {line}", file=sys.stderr, flush=True),
    )
    if arguments.rules and arguments.conf:
        arguments.rules.write_text(partition_rules(arguments.conf))
    _show(report, as_json=arguments.json)


def _show(report: "ImportCounts", *, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"copied": report.copied, "present": report.present, "no_place": report.no_place}, indent=2))
        return
    show_text("Taken over from Slurm:")
    for name in sorted(report.copied | report.present):
        here = report.present[name]
        show_text(f"  {name:<12}{report.copied[name]:>10}" + (f"   {here} were here already" if here else ""))
    if report.no_place:
        show_text("Without a place here:")
        for line in report.no_place:
            show_text(f"  {line}")
