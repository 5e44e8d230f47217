"""What the facts of nodes mean: pure functions from answers to diagnoses."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from oarlock.server.doctor.diagnosis import Diagnosis, broken, disk, fine, warning
from oarlock.server.doctor.node_facts import NodeAnswer, NodeFacts

OLDEST_PYTHON = (3, 9)
_SLOW_SECONDS = 5.0
_CLOCK_WARNING, _CLOCK_BROKEN = 1.0, 30.0
_WANTED = ("cpuset", "cpu", "memory", "pids")
_WANTED_V1 = ("cpuset", "cpu", "memory", "freezer")
_FEW_PROCESSES = 32_768
_MOST_NAMED = 5


@dataclass(frozen=True, slots=True)
class LocalView:
    """What this host says: uid and home of users (and whether that is there), its own name, names of nodes."""

    name: str
    users: Mapping[str, tuple[int, str, bool]] = field(default_factory=dict)
    addresses: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    spool: str = "/var/lib/oarlock/node"
    counts_events: bool = False  # whether the settings want the counters of `perf`


def check_node(node: str, answer: NodeAnswer, here: LocalView) -> Iterator[Diagnosis]:
    """Yield what can be said of a node."""
    facts = answer.facts
    if facts is None:
        yield broken(node, "ssh", f"is not reached: {answer.problem}", _way_in(answer.problem, node))
        return
    yield _latency(node, answer.ended - answer.began)
    yield _python(node, facts)
    yield _clock(node, answer, facts)
    yield from _cgroups(node, facts)
    yield _users(node, facts, here)
    yield from _homes(node, facts, here)
    yield from _names(node, facts, here)
    yield from (disk(node, "disk", path, room) for path, room in facts.disks.items())
    yield from _kernel(node, facts, here)


def _way_in(problem: str, node: str) -> str:
    if "verification failed" in problem:
        return (
            f"compare the host key, then `ssh-keygen -f /etc/oarlock/known_hosts -R {node}` "
            f"and `oarlock setup server {node}`"
        )
    if "Permission denied" in problem:
        return "put the server's public key into the node's authorized_keys"
    if "resolve" in problem:
        return f"give {node} an address in DNS or /etc/hosts"
    return f"try OPENSSH_CMD by hand: `ssh {node} true`; is sshd running, and python3 installed?"


def _latency(node: str, seconds: float) -> Diagnosis:
    sentence = f"answers in {seconds:.2f} s"
    if seconds > _SLOW_SECONDS:
        return warning(node, "ssh", sentence, "slow DNS is the usual cause: `UseDNS no` in the node's sshd_config")
    return fine(node, "ssh", sentence)


def _python(node: str, facts: NodeFacts) -> Diagnosis:
    version = ".".join(map(str, facts.python))
    if facts.python[:2] < OLDEST_PYTHON:
        return broken(node, "python", f"python3 is {version}", "install Python 3.9 or newer on the node")
    return fine(node, "python", f"python3 is {version}")


def _clock(node: str, answer: NodeAnswer, facts: NodeFacts) -> Diagnosis:
    """Judge by how much the node's clock lies outside of the time that the question took."""
    offset = min(0.0, facts.now - answer.began) or max(0.0, facts.now - answer.ended)
    direction = "ahead" if offset > 0 else "behind"
    sentence = f"its clock is {abs(offset):.1f} s {direction}" if abs(offset) >= _CLOCK_WARNING else "its clock agrees"
    way_out = "run chrony or systemd-timesyncd on both: `timedatectl set-ntp true`"
    if abs(offset) >= _CLOCK_BROKEN:
        return broken(node, "clock", sentence, way_out)
    if abs(offset) >= _CLOCK_WARNING:
        return warning(node, "clock", sentence, way_out)
    return fine(node, "clock", sentence)


def _cgroups(node: str, facts: NodeFacts) -> Iterator[Diagnosis]:
    version, there = facts.cgroups.version, set(facts.cgroups.controllers)
    missing = [name for name in (_WANTED if version == 2 else _WANTED_V1) if name not in there]
    if not version:
        way_out = "mount cgroup2 at /sys/fs/cgroup; until then jobs are not confined to their cores"
        yield warning(node, "cgroups", "there are no cgroups with controllers", way_out)
    elif missing:
        way_out = "boot the kernel with `cgroup_enable=memory` or without `cgroup_disable`; that part is not confined"
        yield warning(node, "cgroups", f"version {version}, without {', '.join(missing)}", way_out)
    else:
        yield fine(
            node, "cgroups", f"version {version} with {', '.join(sorted(there & {*_WANTED, *_WANTED_V1, 'io'}))}"
        )
    if facts.systemd and version == 2 and facts.uid == 0:
        if facts.systemd_run:
            yield fine(node, "delegation", "systemd can delegate a scope to jobs")
        else:
            way_out = "install systemd's own programs; logind may end jobs with the ssh session otherwise"
            yield warning(node, "delegation", "systemd runs, but there is no systemd-run", way_out)


def _users(node: str, facts: NodeFacts, here: LocalView) -> Diagnosis:
    unknown = [name for name, account in facts.users.items() if account is None and name in here.users]
    other = [
        f"{name} is {account[0]} there and {here.users[name][0]} here"
        for name, account in facts.users.items()
        if account is not None and name in here.users and account[0] != here.users[name][0]
    ]
    if other:
        return broken(node, "users", _few(other), "give them one uid everywhere: a directory (LDAP), or usermod -u")
    if unknown:
        return broken(node, "users", f"unknown there: {_few(unknown)}", "make the accounts with the same uid there")
    return fine(node, "users", f"{len(facts.users)} users have the same uid")


def _homes(node: str, facts: NodeFacts, here: LocalView) -> Iterator[Diagnosis]:
    accounts = {name: account for name, account in facts.users.items() if account is not None and name in here.users}
    elsewhere = [f"{name} ({account[1]})" for name, account in accounts.items() if account[1] != here.users[name][1]]
    absent = [f"{name} ({account[1]})" for name, account in accounts.items() if here.users[name][2] > account[2]]
    if absent:
        yield broken(node, "homes", f"not there: {_few(absent)}", "mount the home directories: `findmnt`, /etc/fstab")
    elif elsewhere:
        yield warning(node, "homes", f"another path than here: {_few(elsewhere)}", "use one path on all machines")
    elif accounts:
        yield fine(node, "homes", "the home directories are there")


def _names(node: str, facts: NodeFacts, here: LocalView) -> Iterator[Diagnosis]:
    short = node.partition(".")[0]
    if not here.addresses.get(node, ("unasked",)):
        way_out = f"give {node} an address in DNS or /etc/hosts; `ssh` may know it from its own file, others do not"
        yield warning(node, "names", f"{here.name} knows no address of {node}", way_out)
    elif (reverse := here.names.get(node)) is not None and short not in {name.partition(".")[0] for name in reverse}:
        sentence = f"its address leads back to {', '.join(reverse) or 'no name'}"
        yield warning(node, "names", sentence, "make the PTR record, or the order of names in /etc/hosts, agree")
    elif facts.host.partition(".")[0] != short and node not in {"localhost", "127.0.0.1", "::1"}:
        sentence = f"calls itself {facts.host}"
        yield warning(node, "names", sentence, f"`hostnamectl set-hostname {node}`, or name the node as it does")
    elif silent := [name for name, addresses in facts.hosts.items() if not addresses]:
        sentence = f"does not know {', '.join(silent)}"
        yield warning(node, "names", sentence, "give the server an address in DNS or in the node's /etc/hosts")
    else:
        yield fine(node, "names", "names agree both ways")


def _kernel(node: str, facts: NodeFacts, here: LocalView) -> Iterator[Diagnosis]:
    processes = min(facts.pid_max or _FEW_PROCESSES, facts.threads_max or _FEW_PROCESSES)
    if processes < _FEW_PROCESSES:
        way_out = "sysctl -w kernel.pid_max=4194304 kernel.threads-max=4194304, and in /etc/sysctl.d"
        yield warning(node, "processes", f"all together may have {processes} processes", way_out)
    else:
        yield fine(node, "processes", f"room for {processes} processes")
    if here.counts_events and facts.uid and facts.paranoid is not None and facts.paranoid > 0:
        sentence = f"perf_event_paranoid is {facts.paranoid}: events of jobs are not counted"
        yield warning(
            node, "perf", sentence, "sysctl -w kernel.perf_event_paranoid=0, or take `perf` out of SAMPLE_SOURCES"
        )
    elif here.counts_events:
        yield fine(node, "perf", "events of jobs can be counted")


def check_twins(answers: Mapping[str, NodeAnswer]) -> Iterator[Diagnosis]:
    """Yield nodes that are one machine under two names: its cores would be given away twice."""
    by_boot: dict[str, list[str]] = {}
    for node, answer in answers.items():
        if answer.facts is not None and answer.facts.boot:
            by_boot.setdefault(answer.facts.boot, []).append(node)
    for nodes in by_boot.values():
        if len(nodes) > 1:
            way_out = "remove the resources of all but one (`oarnodesetting -h NODE -s Dead`, `oarremoveresource`)"
            yield broken(nodes[0], "twins", f"{' and '.join(nodes)} are one machine", way_out)


def _few(items: Iterable[str]) -> str:
    names = list(items)
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more
