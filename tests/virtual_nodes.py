"""Thousands of nodes in one process: each speaks a node program's part of the channel, and only pretends to run jobs.

A server reaches them with `OPENSSH_CMD="PYTHON -I -S tests/virtual_ssh.py SOCKET"`: it starts a process for each
connection, sends the node program, and cannot tell them from others. A job that is `sleep N` lasts N seconds, any other
one no time. Each connection is a line of the journal: when, and which node.
"""

import ast
import asyncio
import contextlib
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from oarlock.node.program import loader
from oarlock.node.wire.channel import ANSWER, EVENT, PROTOCOL, REQUEST, Body, ChannelClosed, Endpoint, Frame, read_some
from oarlock.node.wire.messages import (
    BAD,
    CLEANED,
    EXITED,
    KILLED,
    OTHER,
    UNKNOWN,
    NodeRequestRefused,
    Report,
    fingerprint,
    sign_report,
)
from tests.waiting import wait_until

_SILENT_SECONDS = 3.0  # before the connection to a dead node ends, as ssh's own timeout would end it
_TERM = 15
_CREDENTIALS = struct.Struct("3i")
_SIZES = re.compile(rb"i\.read\((\d+)\)")
_SETTINGS = re.compile(rb"^start\(i\.read\(\d+\), (\{.*\}), '[0-9a-f]*'\)$", re.MULTILINE)
_SLEEP = re.compile(r"sleep ([0-9.]+)")


@dataclass(eq=False)
class VirtualAttempt:
    """A job that is pretended to run."""

    launch: Body
    report: Report
    started: float
    end: asyncio.TimerHandle | None = None
    signed: Body | None = None

    def describe(self) -> Body:
        """Say what a node program says of it."""
        secret = str(self.launch["secret"])
        about = {name: self.launch.get(name) for name in ("job", "attempt", "generation", "user", "walltime", "role")}
        about.update(tag=fingerprint(secret), state="ended" if self.signed else "running", started=self.started)
        about["resources"] = [row["resource_id"] for row in self.launch["resources"]]
        return {**about, "report": self.signed} if self.signed else about


@dataclass(eq=False)
class VirtualNode:
    """A node: what is there while nobody is connected, too."""

    name: str
    attempts: dict[tuple[int, int], VirtualAttempt] = field(default_factory=dict)
    connection: "NodeConnection | None" = None

    @property
    def boot(self) -> str:
        return f"boot-of-{self.name}"

    def hello(self) -> Body:
        """Describe a machine of four CPUs."""
        return {
            "event": "hello",
            "protocol": PROTOCOL,
            "node": self.name,
            "boot": self.boot,
            "cgroups": "v2",
            "missing": [],
            "cpus": 4,
            "processes": 30_000,
            "memory": 8 << 30,
            "python": "3.11.2",
            "uid": 0,
            "now": time.time(),
            "unusable": {},
            "instance": "",
            "highest_job": 0,
        }

    def do(self, body: Body) -> Body:
        """Carry a request out, and return its answer; events follow it."""
        match body.get("verb"):
            case "ping":
                return {"now": time.time(), "boot": self.boot}
            case "status":
                return {"attempts": [attempt.describe() for attempt in self.attempts.values()]}
            case "forget":
                for job, number in body["attempts"]:
                    self.attempts.pop((job, number), None)
                return {}
            case "launch":
                return self._launch(body)
            case "kill":
                return self._end(self._named(body), KILLED, _TERM)
            case "end":
                return self._end(self._named(body), CLEANED, None)
            case verb:
                raise NodeRequestRefused(BAD, f"a virtual node has no verb {verb!r}")

    def _named(self, body: Body) -> VirtualAttempt:
        try:
            return self.attempts[body["job"], body["attempt"]]
        except KeyError:
            raise NodeRequestRefused(UNKNOWN, "it is not here") from None

    def _launch(self, body: Body) -> Body:
        key, now = (body["job"], body["attempt"]), time.time()
        report = Report(*key, self.name, self.boot, EXITED, started=now)
        attempt = self.attempts[key] = VirtualAttempt(body, report, now)
        loop = asyncio.get_running_loop()
        loop.call_soon(self.send, {"event": "started", **attempt.describe()})
        if body["role"] != OTHER:
            asked = _SLEEP.match(body["command"])
            attempt.end = loop.call_later(float(asked[1]) if asked else 0.0, self._end, attempt, EXITED, 0)
        return {"state": "launching"}

    def _end(self, attempt: VirtualAttempt, outcome: str, status: int | None) -> Body:
        if attempt.signed is None:
            if attempt.end is not None:
                attempt.end.cancel()
            now = time.time()
            report = attempt.report._replace(outcome=outcome, status=status, ended=now, ran=now - attempt.started)
            attempt.signed = sign_report(report, str(attempt.launch["secret"]))
            asyncio.get_running_loop().call_soon(self.send, {"event": "exited", **attempt.signed})
        return {"state": "ended"}

    def send(self, event: Body) -> None:
        """Send an event, if a server is connected."""
        if self.connection is not None:
            self.connection.send(EVENT, 0, event)


class NodeConnection:
    """The node's end of a connection, from the marker on."""

    def __init__(self, nodes: "VirtualNodes", node: VirtualNode, pid: int, line: str, fds: Sequence[int]) -> None:
        self._nodes, self._node, self._pid = nodes, node, pid
        self._channel, self._sent = Endpoint(*fds), b""
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(fds[0], self._receive_program)
        nonce = re.search(rf"{loader.WORD} ([0-9a-f]+) ", line)
        assert nonce is not None, line
        os.write(fds[1], loader.marker(nonce[1]) + loader.python_build().encode() + b"\n")

    def _receive_program(self) -> None:
        try:
            self._sent += read_some(self._channel.read_fd)
        except ChannelClosed:
            self.close()
            return
        if (length := _program_length(self._sent)) is None or len(self._sent) < length:
            return
        self._loop.remove_reader(self._channel.read_fd)
        self._loop.add_reader(self._channel.read_fd, self._receive)
        if (before := self._node.connection) is not None:
            before.close()
        self._node.connection, self._sent = self, b""
        self._nodes.note(self._node)
        self.send(EVENT, 0, self._node.hello())

    def _receive(self) -> None:
        try:
            for frame in self._channel.receive():
                self._answer(frame)
        except ChannelClosed:
            self.close()

    def _answer(self, frame: Frame) -> None:
        if frame.kind != REQUEST:
            return
        try:
            answer = self._node.do(frame.body())
        except NodeRequestRefused as refusal:
            answer = refusal.body()
        self.send(ANSWER, frame.number, answer)

    def send(self, kind: int, number: int, body: Body) -> None:
        """Send a frame; a server that has gone is noticed when it is read from."""
        with contextlib.suppress(ChannelClosed):
            self._channel.send(kind, number, body)
            assert not self._channel.pending, "a virtual node sends little, and its server reads"

    def close(self) -> None:
        """Hang up, and end the process that stands for ssh."""
        if self._node.connection is self:
            self._node.connection = None
        self._loop.remove_reader(self._channel.read_fd)
        self._channel.close()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)


def _program_length(sent: bytes) -> int | None:
    """Return of how many bytes the node program is; None: it is not known yet."""
    first, newline, rest = sent.partition(b"\n")
    if not newline or len(rest) < int(first):
        return None
    text = zlib.decompress(rest[: int(first)])
    settings = _SETTINGS.search(text)
    assert settings is not None, text
    assert ast.literal_eval(settings[1].decode())["node"]
    return len(first) + 1 + int(first) + sum(int(size) for size in _SIZES.findall(text))


class VirtualNodes:
    """All nodes of a process. Those that are dead never answer."""

    def __init__(self, path: Path, journal: Path, dead: Sequence[str]) -> None:
        self._nodes: dict[str, VirtualNode] = {}
        self._dead, self._journal = frozenset(dead), journal.open("a", buffering=1)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.bind(str(path))
        self._socket.listen(4096)
        self._socket.setblocking(False)

    async def serve(self) -> None:
        """Take connections until the process is ended."""
        loop = asyncio.get_running_loop()
        loop.add_reader(self._socket, self._accept)
        await asyncio.Event().wait()

    def _accept(self) -> None:
        with contextlib.suppress(BlockingIOError):
            connection, _ = self._socket.accept()
            connection.setblocking(False)
            asyncio.get_running_loop().add_reader(connection, self._connect, connection)

    def _connect(self, connection: socket.socket) -> None:
        asyncio.get_running_loop().remove_reader(connection)
        with connection:
            words, fds, _, _ = socket.recv_fds(connection, 1 << 16, 2)
            pid = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
        if not words:
            return
        arguments = words.decode().split("\0")
        name = arguments[arguments.index("--") + 1]
        if name in self._dead:
            asyncio.get_running_loop().call_later(_SILENT_SECONDS, _hang_up, pid[0], fds)
            return
        node = self._nodes.setdefault(name, VirtualNode(name))
        NodeConnection(self, node, pid[0], arguments[-1], fds)

    def note(self, node: VirtualNode) -> None:
        """Note in the journal that a server is connected to a node."""
        self._journal.write(f"{time.time():.3f} {node.name}\n")


def _hang_up(pid: int, fds: Sequence[int]) -> None:
    for fd in fds:
        os.close(fd)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


@dataclass(frozen=True)
class VirtualCluster:
    """Where a server finds the virtual nodes, and what they note."""

    command: str
    journal: Path
    pid: int

    def contacts(self) -> list[tuple[float, str]]:
        """Return which nodes were connected, and when, in this order."""
        lines = [line.split() for line in self.journal.read_text().splitlines()]
        return [(float(when), name) for when, name in lines]


@contextlib.contextmanager
def virtual_nodes(folder: Path, *, dead: Sequence[str] = ()) -> Iterator[VirtualCluster]:
    """Run the process of the virtual nodes; they have any name that a server asks for."""
    path, journal = folder / "nodes.sock", folder / "contacts"
    journal.touch()
    process = subprocess.Popen([sys.executable, "-m", "tests.virtual_nodes", str(path), str(journal), *dead])
    relay = Path(__file__).with_name("virtual_ssh.py")
    try:
        wait_until(path.exists, "the process of virtual nodes")
        yield VirtualCluster(f"{sys.executable} -I -S {relay} {path}", journal, process.pid)
    finally:
        process.terminate()
        process.wait()


if __name__ == "__main__":
    from oarlock.server.process import reserves

    reserves.raise_limit()
    asyncio.run(VirtualNodes(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]).serve())
