"""The test bed: accounts, nodes behind pipes, and nodes behind a real sshd in namespaces of their own."""

import asyncio
import contextlib
import fcntl
import functools
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from oarlock.node.wire.messages import Launch, NodeSettings, Report
from oarlock.server.nodes import (
    ConnectionSlots,
    Exited,
    NodeClient,
    NodeReachable,
    NodeReport,
    Started,
    Timeouts,
    local,
    ssh,
)
from oarlock.server.nodes.command import NodeCommand
from tests.waiting import wait_until

PYTHON = "/usr/bin/python3" if Path("/usr/bin/python3").exists() else shutil.which("python3") or "python3"

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="accounts and cgroups need root")
needs_v1 = pytest.mark.skipif(not Path("/sys/fs/cgroup/memory").is_dir(), reason="no v1 memory controller here")

QUICK = Timeouts(connect=15.0, answer=15.0, first_retry=0.1, last_retry=0.5, ping=5.0, idle=300.0)


def run_async(function: Callable[..., Any]) -> Callable[..., None]:
    """Run an `async` test to its end."""

    def test(*args: Any, **kwargs: Any) -> None:
        asyncio.run(function(*args, **kwargs))

    return functools.wraps(function)(test)


@contextlib.contextmanager
def open_directory() -> Iterator[Path]:
    """Make a directory that every account can enter, and remove it with everything in it."""
    path = Path(tempfile.mkdtemp(prefix="oarlock-test-"))
    path.chmod(0o755)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def site_directory() -> Iterator[Path]:
    """Make a directory that root alone can write, with every directory above it: where a site keeps its scripts."""
    path = Path(tempfile.mkdtemp(prefix="oarlock-test-", dir="/root" if os.geteuid() == 0 else Path.home()))
    path.chmod(0o755)
    try:
        yield path
    finally:
        shutil.rmtree(path)


def script(path: Path, text: str) -> str:
    """Write a shell script that can be executed; give its path."""
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


@contextlib.contextmanager
def accounts(*, shell: str = "/bin/sh", names: tuple[str, ...] = ()) -> Iterator[tuple[str, str]]:
    """Make two unprivileged accounts and remove them; one process at a time writes the password file."""
    names = names or tuple(f"oarlk{os.getpid() % 100000}{letter}" for letter in "ab")
    try:
        for name in names:
            _alone("useradd", "-M", "-s", shell, name)
            _alone("usermod", "-p", "*", name)
        yield names[0], names[1]
    finally:
        for name in names:
            _end_processes(name)
            _alone("userdel", name)


@contextlib.contextmanager
def account(name: str, uid: int) -> Iterator[None]:
    """Make an account with this number, and remove it."""
    try:
        _alone("useradd", "-M", "-u", str(uid), name)
        yield
    finally:
        _alone("userdel", name)


def _end_processes(name: str) -> None:
    """End what a failed test left of an account that is ours alone."""
    with contextlib.suppress(KeyError):
        uid = pwd.getpwnam(name).pw_uid
        wait_until(lambda: not [_end(pid) for pid in _processes_of(uid)], what=f"the end of {name}")


def _end(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _processes_of(uid: int) -> list[int]:
    """Find the processes of an account; those that ended and only wait to be noticed by their parent do not count."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if path.stat().st_uid == uid and (path / "stat").read_text().rpartition(")")[2].split()[0] != "Z":
                found.append(int(path.name))
    return found


def _alone(*command: str) -> None:
    with Path("/tmp/.oarlock-test-accounts").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        subprocess.run(command, check=False, capture_output=True)


def remove_roots(*nodes: str) -> None:
    """Remove what the nodes of a test left in the cgroup hierarchies: empty roots, or a failed test's groups."""
    for node in nodes:
        for root in Path("/sys/fs/cgroup").glob(f"*/oarlock/{node}"):
            for group in [*_below(root), root]:
                with contextlib.suppress(OSError):
                    for pid in (group / "cgroup.procs").read_text().split():
                        os.kill(int(pid), 9)
                wait_until(lambda group=group: _removed(group), seconds=5, what=f"removing {group}")
    for top in Path("/sys/fs/cgroup").glob("*/oarlock"):
        with contextlib.suppress(OSError):
            top.rmdir()


def _below(root: Path) -> list[Path]:
    """Give the groups of a node; a program that leaves may remove the root in this moment."""
    try:
        return list(root.glob("*/"))
    except FileNotFoundError:
        return []


def _removed(group: Path) -> bool:
    with contextlib.suppress(OSError):
        group.rmdir()
    return not group.exists()


@dataclass
class OpenNode:
    """A node under test with its events, and launches made for it."""

    node: NodeClient
    settings: NodeSettings
    user: str
    home: Path
    boot: str = ""
    events: list[NodeReport] = field(default_factory=list)
    news: asyncio.Event = field(default_factory=asyncio.Event)

    def hear(self, event: NodeReport) -> None:
        self.events.append(event)
        self.news.set()

    async def status(self) -> list[dict[str, Any]]:
        """Return every attempt that the node remembers, as the server asks for them when it connects."""
        assert self.node._channel is not None
        return (await self.node._channel.ask("status", seconds=10))["attempts"]

    def launch(self, job: int, command: str, **more: Any) -> Launch:
        """A launch with outputs `<job>.out` and `<job>.err` in the user's directory."""
        given = {
            "job": job,
            "attempt": 1,
            "secret": secrets.token_hex(32),
            "boot": self.boot,
            "user": self.user,
            "command": command,
            "directory": str(self.home),
            "stdout": f"{job}.out",
            "stderr": f"{job}.err",
            "walltime": 60,
            "grace": 5,
        }
        return Launch(**{**given, **more})

    async def until(self, wanted: Callable[[NodeReport], bool], *, seconds: float = 30.0) -> Any:
        """Wait for an event, one that came already included."""
        async with asyncio.timeout(seconds):
            while True:
                self.news.clear()
                for event in self.events:
                    if wanted(event):
                        return event
                await self.news.wait()

    async def started(self, job: int) -> Started:
        return await self.until(lambda event: isinstance(event, Started) and event.job == job)

    async def report(self, job: int, attempt: int = 1) -> Report:
        event = await self.until(
            lambda event: isinstance(event, Exited) and (event.report.job, event.report.attempt) == (job, attempt)
        )
        return event.report

    async def back(self, *, after: int = 0) -> NodeReachable:
        return await self.until(lambda event: isinstance(event, NodeReachable) and self.events.index(event) >= after)

    async def run(self, job: int, command: str, **more: Any) -> Report:
        """Launch and wait for the report."""
        await self.node.launch(self.launch(job, command, **more))
        return await self.report(job)

    async def printed(self, job: int, text: str) -> None:
        """Wait until the job has printed something: its own code runs, its traps are set."""
        out = self.home / f"{job}.out"
        await asyncio.to_thread(wait_until, lambda: out.exists() and text in out.read_text(), what=f"printing {text}")

    def out(self, job: int) -> str:
        return (self.home / f"{job}.out").read_text()

    def err(self, job: int) -> str:
        return (self.home / f"{job}.err").read_text()


@contextlib.asynccontextmanager
async def open_node(
    workspace: Path,
    user: str,
    *,
    name: str = "",
    way: NodeCommand | None = None,
    patience: Timeouts = QUICK,
    **more: Any,
) -> AsyncIterator[OpenNode]:
    """Open a node; leave it, and remove what it left in the cgroup hierarchies, at the end."""
    name = name or f"t{secrets.token_hex(4)}"
    settings = NodeSettings(
        **{"node": name, "spool": str(workspace / "spool"), "runtime": str(workspace / "run"), **more}
    )
    home = workspace / "home"
    if not home.exists():
        home.mkdir(parents=True)
        if os.geteuid() == 0:
            shutil.chown(home, user)
    post: OpenNode
    node = NodeClient(settings, way or local(PYTHON), lambda event: post.hear(event), ConnectionSlots(), patience)
    post = OpenNode(node, settings, user, home)
    try:
        post.boot = (await node.hello()).boot
        yield post
    finally:
        await node.close()
        await asyncio.to_thread(remove_roots, name)


# Nodes behind ssh, in namespaces. The client lives in one as well, so nothing of this machine's network is touched.

_SSHD = """\
Port 22
ListenAddress {address}
HostKey {home}/hostkey
AuthorizedKeysFile {home}/authorized
PidFile none
UsePAM no
StrictModes no
UseDNS no
PermitRootLogin yes
{more}
"""

# A new /proc for the new process ids, a boot id and a disk of its own, and no start-up file of this machine's root,
# which may take long; then sshd, which ends with the namespace.
_BOOT = """\
mount -t proc proc /proc
mount --bind {home}/boot_id /proc/sys/kernel/random/boot_id
mount --bind {home}/disk {disk}
{mounts}[ ! -e /root/.bashrc ] || mount --bind /dev/null /root/.bashrc
hostname {name}
exec {sshd} -D -e -f {home}/sshd_config
"""


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=20)


@dataclass
class Rack:
    """A switch in a namespace of its own; machines are plugged into it."""

    home: Path
    name: str
    machines: list["Machine"] = field(default_factory=list)

    def machine(self, *, sshd: str = "", over: Mapping[str, Path] | None = None) -> "Machine":
        """Plug in a machine and start it; `sshd` is added to its sshd's settings, `over` are files of its own."""
        made = Machine(self, f"m{len(self.machines) + 1}{self.name}", len(self.machines) + 2, sshd, over or {})
        self.machines.append(made)
        made.plug()
        made.boot()
        return made

    @property
    def disk(self) -> Path:
        """A path that is another directory on each machine, as a local disk is; it outlives a power cut."""
        return self.home / "disk"

    def named(self) -> tuple[str, ...]:
        """OPENSSH_CMD for machines that are called by their names; a link that is cut is noticed in 3 s."""
        hosts = "".join(f"Host {one.name}\n  HostName {one.address}\n" for one in self.machines)
        (self.home / "ssh_config").write_text(hosts)
        words = [f"{self.home}/ssh_config" if word == "none" else word for word in self.ssh()]
        return *words, "-o", "ServerAliveInterval=1"

    def ssh(self) -> tuple[str, ...]:
        """OPENSSH_CMD for the machines of this rack, called by their addresses."""
        files = ("-i", f"{self.home}/key", "-o", f"UserKnownHostsFile={self.home}/known_hosts")
        fast = ("-o", "IdentitiesOnly=yes", "-o", "KexAlgorithms=curve25519-sha256")
        return "nsenter", f"--net=/run/netns/{self.name}", "ssh", "-F", "none", *files, *fast


@dataclass
class Machine:
    """A machine as far as a network, a host name, processes and a boot id make one."""

    rack: Rack
    name: str
    number: int
    more: str
    over: Mapping[str, Path]
    process: subprocess.Popen[bytes] | None = None

    @property
    def home(self) -> Path:
        return self.rack.home / self.name

    @property
    def address(self) -> str:
        return f"10.213.0.{self.number}"

    def plug(self) -> None:
        (self.home / "disk").mkdir(parents=True)
        _run("ip", "netns", "add", self.name)
        _run(
            "ip",
            "-n",
            self.rack.name,
            "link",
            "add",
            f"p{self.number}",
            "type",
            "veth",
            "peer",
            "eth0",
            "netns",
            self.name,
        )
        _run("ip", "-n", self.rack.name, "link", "set", f"p{self.number}", "master", "sw", "up")
        _run("ip", "-n", self.name, "addr", "add", f"{self.address}/24", "dev", "eth0")
        _run("ip", "-n", self.name, "link", "set", "eth0", "up")
        (self.home / "authorized").write_text((self.rack.home / "key.pub").read_text())
        config = _SSHD.format(address=self.address, home=self.home, more=self.more)
        (self.home / "sshd_config").write_text(config)
        self.new_host_key()
        self.trust()

    def new_host_key(self) -> None:
        for name in ("hostkey", "hostkey.pub"):
            (self.home / name).unlink(missing_ok=True)
        _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", f"{self.home}/hostkey")

    def trust(self) -> None:
        with (self.rack.home / "known_hosts").open("a") as known:
            known.write(f"{self.address} {(self.home / 'hostkey.pub').read_text()}")

    def boot(self) -> None:
        """Start it, with a new boot id."""
        (self.home / "boot_id").write_text(f"{secrets.token_hex(8)}\n")
        sshd = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin") or "sshd"
        mounts = "".join(f"mount --bind {file} {path}\n" for path, file in self.over.items())
        inside = _BOOT.format(home=self.home, disk=self.rack.disk, name=self.name, sshd=sshd, mounts=mounts)
        spaces = ("unshare", "--uts", "--pid", "--mount", "--fork", "--kill-child=KILL")
        command = ["nsenter", f"--net=/run/netns/{self.name}", *spaces, "sh", "-c", inside]
        log = (self.home / "sshd.log").open("wb")
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        log.close()
        wait_until(lambda: b"Server listening" in (self.home / "sshd.log").read_bytes(), what="sshd")

    def cut_power(self) -> None:
        """End every process of it at once."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def link(self, state: str) -> None:
        """Pull the cable (`down`) or put it back (`up`)."""
        _run("ip", "-n", self.rack.name, "link", "set", f"p{self.number}", state)

    def listener(self) -> int:
        """The process of sshd that takes new connections."""
        children = (
            Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text() if self.process else ""
        )
        return int(children.split()[0])

    def way(self, **more: Any) -> NodeCommand:
        return ssh(
            self.address, command=self.rack.ssh(), python=PYTHON, **{"connect_seconds": 3, "alive_seconds": 1, **more}
        )


@contextlib.contextmanager
def rack(workspace: Path) -> Iterator[Rack]:
    """Build a rack; take everything down at the end."""
    made = Rack(workspace, f"r{secrets.token_hex(3)}")
    made.disk.mkdir()
    Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", f"{workspace}/key")
    _run("ip", "netns", "add", made.name)
    try:
        _run("ip", "-n", made.name, "link", "add", "sw", "type", "bridge")
        _run("ip", "-n", made.name, "addr", "add", "10.213.0.1/24", "dev", "sw")
        _run("ip", "-n", made.name, "link", "set", "sw", "up")
        yield made
    finally:
        for machine in made.machines:
            machine.cut_power()
            subprocess.run(["ip", "netns", "delete", machine.name], check=False, capture_output=True)
        _run("ip", "netns", "delete", made.name)
