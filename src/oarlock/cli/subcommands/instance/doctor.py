"""oarlock doctor: what is wrong with the server's machine and its nodes, with the way out."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from oarlock.cli.output import show_text
from oarlock.client import Client, RequestRefused

if TYPE_CHECKING:
    import argparse

    from oarlock.server.doctor.diagnosis import Diagnosis

_ABOUT = (
    "Check the server's machine and its nodes, one line a check with the way out: ssh and its latency, Python, "
    "cgroups, clocks, uids and homes, names both ways, disks, systemd, the kernel's settings, the database, the last "
    "backup, the certificate, mail. It only reads. Without NODE: all nodes that the server has. Ends with 0 if all is "
    "fine, 1 with warnings, 2 if something is broken."
)


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to those of `oarlock`."""
    parser = commands.add_parser("doctor", help="check this machine and the nodes, with ways out", description=_ABOUT)
    parser.add_argument("nodes", metavar="NODE", nargs="*", help="names of nodes, also folded: node[1-64]")
    parser.add_argument(
        "--user", metavar="NAME", action="append", default=[], help="compare these users only (all who may run jobs)"
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="show only what is not fine")
    parser.add_argument("-J", "--json", action="store_true", help="as JSON, for programs")
    parser.add_argument(
        "--state", metavar="DIR", type=Path, help="the state directory (default: that of OARLOCK_SERVER)"
    )
    parser.add_argument("--config", metavar="FILE", type=Path, help="the settings file")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Examine, show what was seen, and return the exit code."""
    from oarlock.config import load
    from oarlock.server.doctor.diagnosis import worst
    from oarlock.server.doctor.doctor import Patient, examine, unknown_users
    from oarlock.server.instance import state_of_commands

    config = load(arguments.config).config
    state_dir = arguments.state or state_of_commands()
    if unknown := unknown_users(arguments.user):
        sentence = f"There is no user `{unknown[0][:40]}` on this machine."
        raise RequestRefused(sentence, kind="BadOption", hint="`getent passwd` lists users.")
    nodes = _nodes(arguments.nodes, state_dir)
    diagnoses = examine(Patient(state_dir, config, nodes, arguments.user))
    code = int(worst(diagnoses))
    if arguments.json:
        print(json.dumps({"exit": code, "checks": [_plain(diagnosis) for diagnosis in diagnoses]}, indent=2))
        return code
    shown = [each for each in diagnoses if each.verdict or not arguments.quiet]
    width = max((len(each.host) for each in shown), default=0)
    for each in shown:
        way_out = f"  → {each.way_out}" if each.way_out else ""
        show_text(f"{each.verdict.name.lower():<7}  {each.host:<{width}}  {each.check:<11}  {each.sentence}{way_out}")
    word = ("all is fine", "there are warnings", "something is broken")[code]
    show_text(f"{len(diagnoses)} checks: {word}.")
    return code


def _nodes(texts: list[str], state_dir: Path) -> list[str]:
    """Return the nodes that are named; without names those of the server, none if it does not answer."""
    from oarlock.cli.cluster.discovery import host_names

    if texts:
        return host_names(texts)
    try:
        resources = Client(str(state_dir / "server.sock")).resources()["resources"]
    except RequestRefused as refused:
        show_text(f"oarlock: the server does not answer, so no node is checked ({refused})", file=sys.stderr)
        return []
    names = (str(row["network_address"]) for row in resources if row.get("network_address"))
    return list(dict.fromkeys(names))


def _plain(diagnosis: Diagnosis) -> dict[str, str]:
    return {
        "host": diagnosis.host,
        "check": diagnosis.check,
        "verdict": diagnosis.verdict.name.lower(),
        "sentence": diagnosis.sentence,
        "way_out": diagnosis.way_out,
    }
