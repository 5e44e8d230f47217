"""Ask nodes, by the way that jobs take to them, what they are like."""

import asyncio
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from oarlock.node.program import loader
from oarlock.node.sources.host import host_facts
from oarlock.server.nodes.command import NodeCommand

_LINE = "import sys;exec(sys.stdin.read())"
_MARK = "oarlock-facts:"  # what a login prints before is not the answer
_AT_ONCE = 64
_LONGEST_ANSWER = 4 << 20
_BEYOND_CONNECTION = 20  # seconds for Python to start, and for slow directory services


class CgroupFacts(msgspec.Struct, frozen=True):
    """The version of the cgroups that jobs get (0: none), and its controllers."""

    version: int
    controllers: tuple[str, ...] = ()


class NodeFacts(msgspec.Struct, frozen=True):
    """What a node answered; the fields are those of `node/sources/host/host_facts.py`."""

    python: tuple[int, int, int]
    uid: int
    host: str
    now: float
    cgroups: CgroupFacts
    boot: str = ""
    systemd: bool = False
    systemd_run: bool = False
    users: dict[str, tuple[int, str, bool] | None] = {}
    disks: dict[str, tuple[int, int] | None] = {}
    hosts: dict[str, tuple[str, ...]] = {}
    paranoid: int | None = None
    pid_max: int | None = None
    threads_max: int | None = None


@dataclass(frozen=True, slots=True)
class NodeAnswer:
    """The facts of a node, or why there are none; between which two instants of this host they were read."""

    facts: NodeFacts | None
    problem: str = ""
    began: float = 0.0
    ended: float = 0.0


Clock = Callable[[], float]


def ask_nodes(
    ways: Mapping[str, NodeCommand], request: Mapping[str, Sequence[str]], *, seconds: int, clock: Clock = time.time
) -> dict[str, NodeAnswer]:
    """Ask all nodes at once; return their answers in the order given."""
    return asyncio.run(_ask_all(ways, dict(request), seconds, clock))


async def _ask_all(
    ways: Mapping[str, NodeCommand], request: dict[str, Sequence[str]], seconds: int, clock: Clock
) -> dict[str, NodeAnswer]:
    slots = asyncio.Semaphore(_AT_ONCE)

    async def ask(way: NodeCommand) -> NodeAnswer:
        async with slots:
            return await _ask(way, request, seconds, clock)

    answers = await asyncio.gather(*map(ask, ways.values()))
    return dict(zip(ways, answers, strict=True))


async def _ask(way: NodeCommand, request: dict[str, Sequence[str]], seconds: int, clock: Clock) -> NodeAnswer:
    began = clock()
    pipe = asyncio.subprocess.PIPE
    try:
        process = await asyncio.create_subprocess_exec(
            *way.arguments(_LINE), stdin=pipe, stdout=pipe, stderr=pipe, limit=_LONGEST_ANSWER
        )
    except OSError as error:
        return NodeAnswer(None, f"{way.command[0]} cannot be run: {os.strerror(error.errno or 0)}")
    try:
        async with asyncio.timeout(seconds + _BEYOND_CONNECTION):
            out, err = await process.communicate(_question(request, is_installed=way.installed))
    except TimeoutError:
        process.kill()
        await process.wait()
        return NodeAnswer(None, f"it did not answer within {seconds + _BEYOND_CONNECTION} s")
    return _parse_answer(out, err, process.returncode or 0, began, clock())


def _question(request: dict[str, Sequence[str]], *, is_installed: bool) -> bytes:
    """Return what is sent: a program, or a line for the program that is there already."""
    if is_installed:
        return json.dumps({loader.QUESTION: request}).encode() + b"\n"
    text = Path(host_facts.__file__).read_text(encoding="utf-8")
    return f"{text}\nimport json\nprint({_MARK!r} + json.dumps(describe({request!r})))\n".encode()


def _parse_answer(out: bytes, err: bytes, status: int, began: float, ended: float) -> NodeAnswer:
    text = out.decode("utf-8", "replace")
    _, mark, answer = text.rpartition(_MARK)
    if not mark:  # an installed program prints its marker, and the answer on the next line
        _, mark, rest = text.rpartition(loader.installed_marker().decode())
        answer = rest.partition("\n")[2]
    if not answer.strip():
        says = [line.strip() for line in err.decode("utf-8", "replace").splitlines() if line.strip()]
        return NodeAnswer(None, says[-1][:200] if says else f"ssh ended with {status} and without an answer")
    try:
        facts: Any = msgspec.json.decode(answer.partition("\n")[0], type=NodeFacts)
    except msgspec.DecodeError as error:
        return NodeAnswer(None, f"its answer cannot be read: {error}")
    return NodeAnswer(facts, "", began, ended)
