"""The node program as the server sees it: a process behind pipes, or one on a desktop that connected by itself."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from oarlock import __version__
from oarlock.node.wire.channel import BadFrame
from oarlock.node.wire.stream import CONTROL, DATA, StreamBroken
from oarlock.server.process.reserves import lower_again

_CHUNK = 1 << 16
_PARTING = 1.0  # seconds for the other side to end by itself


class NodeProcess(Protocol):
    """Bytes to and from a node program. `way_to_update`: how it becomes the one of this server."""

    way_to_update: str

    def write(self, data: bytes) -> None: ...

    async def drain(self) -> None:
        """Wait until what was written is on its way."""
        ...

    async def read(self) -> bytes:
        """Return some bytes; none at the end."""
        ...

    async def read_line(self) -> bytes:
        """Return a line of what is printed besides (ssh's own messages come this way); none at the end."""
        ...

    async def close(self) -> None:
        """End the program; what it has started goes on."""
        ...


class LocalNodeProcess:
    """A process of this machine: the node program itself, or an ssh that leads to it."""

    way_to_update = "run `oarlock node install` and put the new file on the node"

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._stdin, self._stdout, self._stderr = process.stdin, process.stdout, process.stderr

    @classmethod
    async def start(cls, arguments: Sequence[str]) -> "LocalNodeProcess":
        """Start a process."""
        process = await asyncio.create_subprocess_exec(
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,  # a signal to the server's process group must not reach the node program
        )
        lower_again(process.pid)  # before anything is sent: its jobs inherit the limit
        return cls(process)

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self._process.pid

    async def wait(self) -> int:
        """Wait for its end."""
        return await self._process.wait()

    def write(self, data: bytes) -> None:
        """Write to its standard input."""
        if self._stdin is not None:
            self._stdin.write(data)

    async def drain(self) -> None:
        """Wait until it has read enough."""
        if self._stdin is not None:
            await self._stdin.drain()

    async def read(self) -> bytes:
        """Read from its standard output."""
        return b"" if self._stdout is None else await self._stdout.read(_CHUNK)

    async def read_line(self) -> bytes:
        """Read a line of its standard error."""
        return b"" if self._stderr is None else await self._stderr.readline()

    async def close(self) -> None:
        """End it, if need be by force."""
        if self._stdin is not None:
            self._stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), _PARTING)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._close_pipes()  # `wait` also waits for the pipes, and a full one would never be closed
            await self._process.wait()
        self._close_pipes()
        if self._stdin is not None:  # asyncio logs the error of a broken pipe unless somebody asks for it
            with contextlib.suppress(OSError, TimeoutError):
                await asyncio.wait_for(self._stdin.wait_closed(), _PARTING)

    def _close_pipes(self) -> None:
        transport: Any = getattr(self._process, "_transport", None)
        if transport is not None:
            transport.close()


class FrameConnection(Protocol):
    """Frames to and from a desktop."""

    async def receive(self) -> bytes | None: ...
    def send(self, payload: bytes) -> None: ...
    async def close(self) -> None: ...


class DesktopNodeProcess:
    """The node program of a desktop, at the other end of a connection that the desktop made.

    A frame of the connection holds bytes of the program (`DATA` before them), or a message of the desktop itself
    (`CONTROL`), which goes to `on_message`.
    """

    way_to_update = f"install Oarlock {__version__} on that machine"

    def __init__(self, connection: FrameConnection, on_message: Callable[[bytes], None]) -> None:
        self._connection, self._on_message = connection, on_message

    def write(self, data: bytes) -> None:
        """Send bytes, in frames of the size that the connection takes."""
        for at in range(0, len(data), _CHUNK):
            self._connection.send(DATA + data[at : at + _CHUNK])

    async def drain(self) -> None:
        """Wait for nothing: what is under way is bounded by whoever sends it."""

    async def read(self) -> bytes:
        """Receive bytes."""
        try:
            while (frame := await self._connection.receive()) is not None:
                if frame[:1] == DATA and len(frame) > 1:
                    return frame[1:]
                if frame[:1] != CONTROL:
                    raise BadFrame(f"a frame of the kind {frame[:1]!r}")
                self._on_message(frame[1:])
        except StreamBroken as error:
            raise BadFrame(str(error)) from error
        return b""

    async def read_line(self) -> bytes:
        """Return nothing: what the program prints stays on the desktop."""
        return b""

    async def close(self) -> None:
        """Hang up."""
        await self._connection.close()
