"""Hosts that are asked what they are made of, for the commands that add their resources."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from oarlock.cli.output import show_text
from oarlock.client import Client, RequestRefused
from oarlock.model.nodeset import fold, unfold
from oarlock.model.resource import NODE_NAME

if TYPE_CHECKING:
    from oarlock.config import Config
    from oarlock.job.cluster.inventory import Machine, Proposal
    from oarlock.server.nodes.discover import HostReach


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
