"""Doctor: ask the server's machine and its nodes, and judge the answers."""

import os
import pwd
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from oarlock.config import Config
from oarlock.server.doctor.diagnosis import Diagnosis
from oarlock.server.doctor.node_checks import LocalView, check_node, check_twins
from oarlock.server.doctor.node_facts import ask_nodes
from oarlock.server.doctor.server_checks import DiskRoom, check_server
from oarlock.server.nodes.command import NodeCommand, installed, local, ssh
from oarlock.server.nodes.fleet import node_directories, own_names
from oarlock.settings.kinds import NodeAccess, NodeTransport

_MOST_USERS = 500
_NOBODY = 60_000  # numbers from here on are the system's again
_NAME_THREADS = 16


@dataclass(frozen=True, slots=True)
class Patient:
    """What is examined: an instance, its nodes, and the users who must be the same everywhere (default: all here)."""

    state_dir: Path
    config: Config
    nodes: Sequence[str] = ()
    users: Sequence[str] = ()


def examine(
    patient: Patient, *, clock: Callable[[], float] = time.time, room: DiskRoom = os.statvfs
) -> list[Diagnosis]:
    """Run all checks; `clock` and `room` (of a disk) are this machine's."""
    config, nodes = patient.config, list(dict.fromkeys(patient.nodes))
    host = socket.gethostname()
    diagnoses = list(check_server(host, patient.state_dir, config, clock=clock, room=room))
    here = _local_view(host, patient)
    ways = {node: _way(node, config) for node in nodes}
    request = {"users": list(here.users), "paths": [here.spool], "hosts": [host]}
    answers = ask_nodes(ways, request, seconds=config.oar_ssh_connection_timeout, clock=clock)
    for node, answer in answers.items():
        diagnoses += check_node(node, answer, here)
    if config.node_transport is not NodeTransport.LOCAL:  # pretended nodes share this machine on purpose
        diagnoses += check_twins(answers)
    return diagnoses


def _way(node: str, config: Config) -> NodeCommand:
    """Return the way that jobs take to a node."""
    is_here = config.node_transport is NodeTransport.LOCAL
    if is_here or (config.node_transport is NodeTransport.AUTO and node in own_names()):
        return local()
    reach = installed if config.node_access is NodeAccess.INSTALLED else ssh
    return reach(node, command=config.openssh_cmd, connect_seconds=config.oar_ssh_connection_timeout)


def _local_view(host: str, patient: Patient) -> LocalView:
    config, nodes = patient.config, patient.nodes
    is_remote = config.node_transport is not NodeTransport.LOCAL
    with ThreadPoolExecutor(_NAME_THREADS) as threads:
        addresses = dict(zip(nodes, threads.map(_addresses, nodes), strict=True)) if is_remote else {}
        reverse = dict(zip(nodes, threads.map(_reverse, map(addresses.get, nodes)), strict=True))
    return LocalView(
        name=host,
        users=_users(patient.users, config.job_min_uid),
        addresses=addresses,
        names={node: names for node, names in reverse.items() if names is not None},
        spool=str(node_directories(config)[0] if is_remote else patient.state_dir / "spool"),
        counts_events="perf" in config.sample_sources,
    )


def _users(names: Iterable[str], lowest: int) -> dict[str, tuple[int, str, bool]]:
    """Return uid and home of users; those who may run jobs, if none are named."""
    wanted = set(names)
    accounts = [
        account
        for account in pwd.getpwall()
        if (account.pw_name in wanted if wanted else lowest <= account.pw_uid < _NOBODY)
    ]
    for name in wanted - {account.pw_name for account in accounts}:  # directories are not always listed
        try:
            accounts.append(pwd.getpwnam(name))
        except KeyError:
            continue
    return {
        account.pw_name: (account.pw_uid, account.pw_dir, Path(account.pw_dir).is_dir())
        for account in accounts[:_MOST_USERS]
    }


def unknown_users(names: Iterable[str]) -> list[str]:
    """Return those of names that have no account here."""
    there = _users(names, 0)
    return sorted(name for name in names if name not in there)


def _addresses(name: str) -> tuple[str, ...]:
    try:
        return tuple(sorted({str(entry[4][0]) for entry in socket.getaddrinfo(name, None)}))
    except (OSError, UnicodeError):
        return ()


def _reverse(addresses: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """Return the names to which the first address leads back; None where there is no address."""
    if not addresses:
        return None
    try:
        name, others, _ = socket.gethostbyaddr(addresses[0])
    except (OSError, UnicodeError):
        return ()
    return (name, *others)
