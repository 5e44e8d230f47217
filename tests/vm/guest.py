"""A node program on a virtual node, with its events; files are the guest's."""

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oarlock.node.wire.messages import NodeSettings
from oarlock.server.nodes import ConnectionSlots, NodeClient, Timeouts
from tests.bed import OpenNode
from tests.vm.machine import Machine
from tests.waiting import wait_until

# Emulated: what takes a second elsewhere takes five here.
PATIENCE = Timeouts(connect=60.0, answer=60.0, first_retry=0.5, last_retry=2.0, ping=5.0, idle=300.0)


@dataclass(kw_only=True)
class Guest(OpenNode):
    """A node whose files are read through root's line to the machine."""

    machine: Machine

    def out(self, job: int) -> str:
        return self.machine.run(f"cat {self.home}/{job}.out", check=False)

    def err(self, job: int) -> str:
        return self.machine.run(f"cat {self.home}/{job}.err", check=False)

    async def printed(self, job: int, text: str) -> None:
        await asyncio.to_thread(wait_until, lambda: text in self.out(job), seconds=60, what=f"printing {text}")

    def groups(self) -> list[str]:
        """The cgroups of jobs of this node program."""
        found = self.machine.run("find /sys/fs/cgroup -type d -name '*_[0-9]*'").split()
        return [path for path in found if self.settings.node in path]

    def processes(self, user: str = "") -> list[str]:
        """What runs as the user, without logind's own helpers."""
        mine = f"grep -lsE '^Uid:[[:space:]]*'$(id -u {user or self.user})'[[:space:]]' /proc/[0-9]*/status"
        names = self.machine.run(f"for file in $({mine}); do head -1 $file; done", check=False).split()
        return sorted(set(names) - {"Name:", "systemd", "(sd-pam)"})


@contextlib.asynccontextmanager
async def guest(machine: Machine, user: str = "alice", *, node: str = "", **more: Any) -> AsyncIterator[Guest]:
    """Open a node program on a machine, with a spool of its own; leave nothing of it."""
    name = node or f"{machine.name}-{secrets.token_hex(3)}"
    settings = NodeSettings(node=name, spool=f"/var/spool/oarlock/{name}", runtime=f"/run/oarlock/{name}", **more)
    post: Guest
    way = machine.way()
    made = NodeClient(settings, way, lambda event: post.hear(event), ConnectionSlots(), PATIENCE)
    post = Guest(made, settings, user, Path(f"/home/{user}"), machine=machine)
    try:
        post.boot = (await made.hello()).boot
        yield post
    except BaseException:
        if machine.process is not None:  # a test that failed ended before its jobs did
            await asyncio.to_thread(machine.run, f"systemctl stop oarlock-{name}.scope", check=False)
            await asyncio.to_thread(machine.run, "rm -f /var/lib/systemd/linger/*")
        raise
    finally:
        await made.close()
        if machine.process is not None:
            gone = f"rm -rf {settings.spool} {settings.runtime} {post.home}/*.out {post.home}/*.err"
            await asyncio.to_thread(machine.run, gone)
