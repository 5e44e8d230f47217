"""The test bed: accounts, nodes behind pipes, and nodes behind a real sshd in namespaces of their own."""

import asyncio
import contextlib
import fcntl
import os
import secrets
import shutil
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from oarlock.node.messages import Launch, Report, Settings
from oarlock.server.transports import Back, Doors, Exited, Node, NodeEvent, Patience, Started, local
from oarlock.server.transports.way import Way

PYTHON = "/usr/bin/python3" if Path("/usr/bin/python3").exists() else shutil.which("python3") or "python3"

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="accounts and cgroups need root")
needs_v1 = pytest.mark.skipif(not Path("/sys/fs/cgroup/memory").is_dir(), reason="no v1 memory controller here")

QUICK = Patience(connect=15.0, answer=15.0, first_retry=0.1, last_retry=0.5, ping=5.0, idle=300.0)


def eventually(done: Callable[[], Any], *, seconds: float = 20.0, what: str = "it") -> Any:
    """Ask until the answer is true, and give it; fail when time is over."""
    end = time.monotonic() + seconds
    while not (answer := done()):
        assert time.monotonic() < end, f"{what} did not happen within {seconds} s"
        time.sleep(0.005)
    return answer


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
def accounts(*, shell: str = "/bin/sh") -> Iterator[tuple[str, str]]:
    """Make two unprivileged accounts and remove them; one process at a time writes the password file."""
    names = tuple(f"oarlk{os.getpid() % 100000}{letter}" for letter in "ab")
    try:
        for name in names:
            _alone("useradd", "-M", "-s", shell, name)
            _alone("usermod", "-p", "*", name)
        yield names[0], names[1]
    finally:
        for name in names:
            _alone("userdel", name)


def _alone(*command: str) -> None:
    with Path("/tmp/.oarlock-test-accounts").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        subprocess.run(command, check=False, capture_output=True)


def remove_roots(*nodes: str) -> None:
    """Remove what the nodes of a test left in the cgroup hierarchies: empty roots, or a failed test's groups."""
    for node in nodes:
        for root in Path("/sys/fs/cgroup").glob(f"*/oarlock/{node}"):
            for group in [*root.glob("*/"), root]:
                with contextlib.suppress(OSError):
                    for pid in (group / "cgroup.procs").read_text().split():
                        os.kill(int(pid), 9)
                eventually(lambda group=group: _removed(group), seconds=5, what=f"removing {group}")
    for top in Path("/sys/fs/cgroup").glob("*/oarlock"):
        with contextlib.suppress(OSError):
            top.rmdir()


def _removed(group: Path) -> bool:
    with contextlib.suppress(OSError):
        group.rmdir()
    return not group.exists()


@dataclass
class Outpost:
    """A node under test with its events, and launches made for it."""

    node: Node
    settings: Settings
    user: str
    home: Path
    boot: str = ""
    events: list[NodeEvent] = field(default_factory=list)
    news: asyncio.Event = field(default_factory=asyncio.Event)

    def hear(self, event: NodeEvent) -> None:
        self.events.append(event)
        self.news.set()

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

    async def until(self, wanted: Callable[[NodeEvent], bool], *, seconds: float = 30.0) -> Any:
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

    async def back(self, *, after: int = 0) -> Back:
        return await self.until(lambda event: isinstance(event, Back) and self.events.index(event) >= after)

    async def run(self, job: int, command: str, **more: Any) -> Report:
        """Launch and wait for the report."""
        await self.node.launch(self.launch(job, command, **more))
        return await self.report(job)

    async def printed(self, job: int, text: str) -> None:
        """Wait until the job has printed something: its own code runs, its traps are set."""
        out = self.home / f"{job}.out"
        await asyncio.to_thread(eventually, lambda: out.exists() and text in out.read_text(), what=f"printing {text}")

    def out(self, job: int) -> str:
        return (self.home / f"{job}.out").read_text()

    def err(self, job: int) -> str:
        return (self.home / f"{job}.err").read_text()


@contextlib.asynccontextmanager
async def outpost(
    ground: Path, user: str, *, name: str = "", way: Way | None = None, patience: Patience = QUICK, **more: Any
) -> AsyncIterator[Outpost]:
    """Open a node; leave it, and remove what it left in the cgroup hierarchies, at the end."""
    name = name or f"t{secrets.token_hex(4)}"
    settings = Settings(**{"node": name, "spool": str(ground / "spool"), "runtime": str(ground / "run"), **more})
    home = ground / "home"
    if not home.exists():
        home.mkdir(parents=True)
        if os.geteuid() == 0:
            shutil.chown(home, user)
    post: Outpost
    node = Node(settings, way or local(PYTHON), lambda event: post.hear(event), Doors(), patience)
    post = Outpost(node, settings, user, home)
    try:
        post.boot = (await node.hello()).boot
        yield post
    finally:
        await node.close()
        await asyncio.to_thread(remove_roots, name)
