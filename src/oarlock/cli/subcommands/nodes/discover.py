"""oarlock discover: ask hosts what they are made of, and propose or add their resources."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oarlock.cli.cluster import discovery
from oarlock.cli.output import show_text
from oarlock.client import Client

if TYPE_CHECKING:
    from oarlock.job.cluster.inventory import Machine, Proposal

_ABOUT = (
    "Ask hosts by ssh for their sockets, cores, threads, memory and GPUs, and print the commands that add those "
    "resources which are not there yet. They need sshd and python3, nothing else. With -x the commands are carried "
    "out. What is there already, on the same CPUs of the same node, is never added twice."
)


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to those of `oarlock`."""
    parser = commands.add_parser("discover", help="ask hosts for their cores, and add them", description=_ABOUT)
    parser.add_argument("hosts", metavar="HOSTS", nargs="*", help="names of hosts, also folded: node[1-64],fat1")
    parser.add_argument("-f", "--file", metavar="FILE", help="a file with names of hosts; - is standard input")
    parser.add_argument("-x", "--execute", action="store_true", help="add the resources (administrators)")
    parser.add_argument("-J", "--json", action="store_true", help="what was found and is missing as JSON, for programs")
    parser.add_argument(
        "--threads",
        choices=("together", "threads", "cores"),
        default="together",
        help="a resource is a core with all its threads (together), a thread of a core (threads), or a thread that "
        "counts as a core (cores)",
    )
    parser.add_argument("--user", metavar="NAME", default="root", help="who to log in as (root)")
    parser.add_argument("--config", metavar="FILE", type=Path, help="the settings file, for OPENSSH_CMD and the like")
    parser.add_argument("--server", metavar="ADDRESS", help="the server's socket, or https://NAME:PORT")
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> None:
    from oarlock.config import load

    hosts = discovery.host_names(
        [*arguments.hosts, *([discovery.read_hosts(arguments.file)] if arguments.file is not None else [])]
    )
    client = Client(arguments.server)
    existing, properties = client.resources()["resources"], client.properties()["properties"]
    answers = discovery.ask(hosts, discovery.reach(load(arguments.config).config, user=arguments.user))
    machines, silent = discovery.divided(answers)
    from oarlock.job.cluster.inventory import ThreadUse, propose

    proposal = propose(machines, existing, properties, ThreadUse(arguments.threads))
    if arguments.execute:
        discovery.carry_out(client, proposal, show_text if not arguments.json else _nothing)
    if arguments.json:
        print(json.dumps(_as_json(machines, silent, proposal), indent=2))
    elif not arguments.execute:
        for line in (*discovery.described(machines, proposal), *proposal.commands()):
            show_text(line)
    discovery.refuse_silent(silent, len(hosts))


def _nothing(_line: str) -> None:
    """Print nothing."""


def _as_json(machines: Mapping[str, Machine], silent: Mapping[str, str], proposal: Proposal) -> dict[str, Any]:
    import msgspec

    return {
        "hosts": {
            host: {**msgspec.to_builtins(machine), "present": proposal.present[host]}
            for host, machine in machines.items()
        },
        "unreachable": dict(silent),
        "properties": dict(proposal.properties),
        "resources": [dict(resource) for resource in proposal.resources],
    }
