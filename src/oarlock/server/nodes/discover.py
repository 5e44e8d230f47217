"""Discovery: ask hosts by ssh what they are made of. They need sshd and python3, and nothing of ours."""

import asyncio
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from oarlock.job.cluster.inventory import Machine
from oarlock.node.sources.host import topology
from oarlock.server.nodes.command import NodeCommand, local, ssh

_LOADER = "import sys;exec(sys.stdin.read())"
_AT_ONCE = 64
_LONGEST_ANSWER = 4 << 20
_MARK = "oarlock-topology:"  # what a login prints before is not the answer


@dataclass(frozen=True, slots=True)
class HostReach:
    """How hosts are reached. `here`: on this machine, without ssh."""

    command: Sequence[str] = ("ssh",)
    user: str = "root"
    seconds: int = 10
    here: bool = False

    def to(self, host: str) -> NodeCommand:
        """Return the command that runs Python on a host."""
        if self.here:
            return local()
        return ssh(host, command=self.command, user=self.user, connect_seconds=self.seconds)


Progress = Callable[[str, Machine | str], None]
"""Takes a host as soon as it has answered: the machine, or why it is not known."""


def describe_hosts(hosts: Sequence[str], reach: HostReach, progress: Progress) -> Mapping[str, Machine | str]:
    """Ask all hosts at once; return each with its machine, or with why it is not known, in the order given."""
    return asyncio.run(_describe_all(hosts, reach, progress))


async def _describe_all(hosts: Sequence[str], reach: HostReach, progress: Progress) -> dict[str, Machine | str]:
    slots = asyncio.Semaphore(_AT_ONCE)

    async def describe(host: str) -> tuple[str, Machine | str]:
        async with slots:
            answer = await _describe(host, reach)
        progress(host, answer)
        return host, answer

    return dict(await asyncio.gather(*map(describe, hosts)))


async def _describe(host: str, reach: HostReach) -> Machine | str:
    try:
        process = await asyncio.create_subprocess_exec(
            *reach.to(host).arguments(_LOADER),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=_LONGEST_ANSWER,
        )
    except OSError as error:
        return (
            f"{reach.command[0] if not reach.here else sys.executable} cannot be run: {os.strerror(error.errno or 0)}"
        )
    try:
        # Python needs a moment beyond the connection; a host that hangs behind it must not hold up the others.
        async with asyncio.timeout(reach.seconds + 20):
            out, err = await process.communicate(_program())
    except TimeoutError:
        process.kill()
        await process.wait()
        return f"it did not answer within {reach.seconds + 20} s"
    return _machine(out, err, process.returncode or 0)


def _program() -> bytes:
    """Return the program that a host runs: the text of a module, and a line that prints what it finds."""
    text = Path(topology.__file__).read_text(encoding="utf-8")
    return f"{text}\nimport json\nprint({_MARK!r} + json.dumps(describe()))\n".encode()


def _machine(out: bytes, err: bytes, status: int) -> Machine | str:
    _, mark, answer = out.decode("utf-8", "replace").rpartition(_MARK)
    if not mark:
        says = [line.strip() for line in err.decode("utf-8", "replace").splitlines() if line.strip()]
        return says[-1][:200] if says else f"ssh ended with {status} and without an answer"
    try:
        machine = msgspec.json.decode(answer.partition("\n")[0], type=Machine)
    except msgspec.DecodeError as error:
        return f"its answer cannot be read: {error}"
    return machine if any(machine.sockets) else "it names no CPU"
