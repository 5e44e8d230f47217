"""oarlock discover: ask hosts what they are made of, and propose or add their resources."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oarlock.cli.output import show_text
from oarlock.client import Client, RequestRefused
from oarlock.model.nodeset import fold, unfold
from oarlock.model.resource import NODE_NAME

if TYPE_CHECKING:
    from oarlock.config import Config
    from oarlock.job.cluster.inventory import Machine, Proposal
    from oarlock.server.nodes.discover import HostReach

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

    hosts = host_names([*arguments.hosts, *([read_hosts(arguments.file)] if arguments.file is not None else [])])
    client = Client(arguments.server)
    existing, properties = client.resources()["resources"], client.properties()["properties"]
    answers = ask(hosts, reach(load(arguments.config).config, user=arguments.user))
    machines, silent = divided(answers)
    from oarlock.job.cluster.inventory import ThreadUse, propose

    proposal = propose(machines, existing, properties, ThreadUse(arguments.threads))
    if arguments.execute:
        carry_out(client, proposal, show_text if not arguments.json else _nothing)
    if arguments.json:
        print(json.dumps(_as_json(machines, silent, proposal), indent=2))
    elif not arguments.execute:
        for line in (*described(machines, proposal), *proposal.commands()):
            show_text(line)
    refuse_silent(silent, len(hosts))


def _nothing(_line: str) -> None:
    """Print nothing."""


def host_names(texts: Iterable[str]) -> list[str]:
    """Return the hosts that texts name, each once; refuse what cannot be the name of one."""
    names: dict[str, None] = {}
    for text in texts:
        try:
            names |= dict.fromkeys(unfold(text))
        except ValueError as error:
            raise RequestRefused(str(error), kind="BadOption", hint="Write names as in node[1-64],fat1.") from None
    for name in names:
        if not NODE_NAME.fullmatch(name) or len(name) > 255:
            raise RequestRefused(
                f"`{name[:40]}` cannot be the name of a host.", kind="BadOption", hint="Write names as in node[1-64]."
            )
    if not names:
        raise RequestRefused("No host is named.", kind="BadOption", hint="oarlock discover node[1-64]")
    return list(names)


def read_hosts(path: str) -> str:
    """Read a file with names of hosts; lines that begin with # are remarks."""
    try:
        data = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
        text = data.decode()
    except OSError as error:
        sentence = f"The list of hosts {path} cannot be read: {error.strerror}."
        raise RequestRefused(sentence, kind="BadFile", hint="Name a file with a host a line, or -.") from None
    except UnicodeDecodeError as error:
        sentence = f"The list of hosts {path} cannot be read: byte {error.start + 1} is not valid UTF-8."
        raise RequestRefused(sentence, kind="BadFile", hint="Name a file with a host a line, or -.") from None
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))


def reach(config: Config, *, user: str = "root", ssh: Sequence[str] = ()) -> HostReach:
    """Return how the settings say that hosts are reached; `ssh` is another command for it."""
    from oarlock.server.nodes.discover import HostReach
    from oarlock.settings.kinds import NodeTransport

    here = config.node_transport is NodeTransport.LOCAL
    return HostReach(tuple(ssh) or config.openssh_cmd, user, config.oar_ssh_connection_timeout, here)


def ask(hosts: Sequence[str], how: HostReach) -> Mapping[str, Machine | str]:
    """Ask hosts; on a terminal, count them as they answer."""
    from oarlock.server.nodes.discover import describe_hosts

    answered = 0

    def count(_host: str, _answer: Machine | str) -> None:
        nonlocal answered
        answered += 1
        if sys.stderr.isatty():
            end = "\n" if answered == len(hosts) else ""
            sys.stderr.write(f"\r{answered} of {len(hosts)} hosts have answered{end}")
            sys.stderr.flush()

    return describe_hosts(hosts, how, count)


def divided(answers: Mapping[str, Machine | str]) -> tuple[dict[str, Machine], dict[str, str]]:
    """Divide the answers into machines, and hosts of which nothing is known with the reason."""
    machines = {host: answer for host, answer in answers.items() if not isinstance(answer, str)}
    return machines, {host: answer for host, answer in answers.items() if isinstance(answer, str)}


def described(machines: Mapping[str, Machine], proposal: Proposal) -> list[str]:
    """Describe machines as remarks of a script; those that are alike share a line."""
    groups: dict[tuple[str, str], list[str]] = {}
    new = dict.fromkeys(machines, 0)
    for resource in proposal.resources:
        new[str(resource["network_address"])] += 1
    for host, machine in machines.items():
        there = f"; {proposal.present[host]} resources are there" if proposal.present[host] else ""
        what = f"{new[host]} to add{there}" if new[host] else "nothing to add"
        groups.setdefault((str(machine), what), []).append(host)
    return [f"# {fold(hosts)}: {machine}; {what}" for (machine, what), hosts in groups.items()]


def carry_out(client: Client, proposal: Proposal, show: Callable[[str], None]) -> None:
    """Add what is proposed, and show it; whatever stops it, a second run adds the rest."""
    for name, kind in proposal.properties:
        client.add_property(name, kind)
        show(f"Added property: {name}")
    counts: dict[str, int] = {}
    for resource in proposal.resources:
        values = dict(resource)
        host = str(values.pop("network_address"))
        client.add_resource({"host": host, "properties": values})
        counts[host] = counts.get(host, 0) + 1
    for host, count in counts.items():
        show(f"{host}: {count} resources added")
    if not proposal.resources:
        show("Nothing is to be added.")


def refuse_silent(silent: Mapping[str, str], count: int) -> None:
    """Name the hosts of which nothing is known, each with the reason, and end with a refusal."""
    if not silent:
        return
    for host, why in silent.items():
        show_text(f"{host}: {why}", file=sys.stderr)
    were = "was" if len(silent) == 1 else "were"
    raise RequestRefused(
        f"{len(silent)} of {count} hosts {were} not reached: {fold(silent)}.",
        kind="HostsSilent",
        hint="Try `ssh HOST python3 -V` as the user who runs this; what is there already is not added twice.",
    )


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
