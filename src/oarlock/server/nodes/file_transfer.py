"""Files on their way to a node, or back: raw frames of a stream of their own on its channel, a few of them at a time.

What is under way bounds how long a launch or a signal on the same channel waits, however large the file is.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import BinaryIO

from oarlock.model.errors import NodeRefused, NodeUnreachable
from oarlock.model.event import EventType
from oarlock.node.wire.channel import Body
from oarlock.server.nodes.channel import NodeChannel

log = logging.getLogger(__name__)

PIECE = 64 << 10
WINDOW = 4 * PIECE
"""Bytes that were sent and not acknowledged."""

STALLED_SECONDS = 60.0
"""How long the node may take for a piece."""

_CLOSE_SECONDS = 60.0


class _Acknowledgements:
    """How many bytes of a file the node has written; whoever sends waits for them."""

    def __init__(self, node: str) -> None:
        self._node, self._acknowledged = node, 0
        self._changed = asyncio.Event()

    def receive(self, frame: bytes) -> None:
        """Note an acknowledgement."""
        self._acknowledged = max(self._acknowledged, int.from_bytes(frame[:8], "big"))
        self._changed.set()

    async def wait_for(self, total: int, lost: asyncio.Event) -> None:
        """Wait until so many bytes are acknowledged, or until the connection is lost."""
        while self._acknowledged < total and not lost.is_set():
            self._changed.clear()
            waits = [asyncio.ensure_future(event.wait()) for event in (self._changed, lost)]
            await asyncio.wait(waits, timeout=STALLED_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            is_stalled = not any(wait.done() for wait in waits)
            for wait in waits:
                wait.cancel()
            if is_stalled:
                says = f"an archive did not go on for {STALLED_SECONDS:.0f} s, at byte {self._acknowledged}"
                raise NodeRefused(self._node, EventType.SSH_TRANSFER_TIMEOUT, says)


async def send(channel: NodeChannel, path: Path, size: int) -> None:
    """Send a file that is named by its content, unless the node has it.

    `NodeRefused`: the node has no room for it, or took too long; nothing of it is left there.
    """
    acknowledged = _Acknowledgements(channel.node)
    async with _stream(channel, acknowledged) as stream:
        about = {"stream": stream, "sha256": path.name, "size": size}
        if (await channel.ask("file-open", about, seconds=_CLOSE_SECONDS)).get("have"):
            return
        try:
            await _send_pieces(channel, stream, path, acknowledged)
            await channel.ask("file-close", {"stream": stream}, seconds=_CLOSE_SECONDS)
        except BaseException as error:
            if not isinstance(error, NodeUnreachable):
                channel.tell("file-close", {"stream": stream, "abort": True})
            raise
    log.info("archive sent", extra={"node": channel.node, "bytes": size})


async def receive(channel: NodeChannel, about: Body, size: int, write: Callable[[bytes], Awaitable[None]]) -> None:
    """Receive an archive of so many bytes, piece by piece; `NodeRefused` if the node does not have it so."""
    pieces: deque[bytes] = deque()
    stream = channel.add_stream(pieces.append)
    try:
        for offset in range(0, size, WINDOW):
            wanted = min(WINDOW, size - offset)
            request = {**about, "stream": stream, "offset": offset, "size": wanted}
            await channel.ask("file-read", request, seconds=STALLED_SECONDS)
            piece = pieces.popleft() if pieces else b""  # it comes before its answer
            if len(piece) != wanted or pieces:
                says = f"{len(piece)} bytes came from byte {offset} on, where {wanted} should"
                raise NodeRefused(channel.node, EventType.STAGE_OUT_ERROR, says)
            await write(piece)
    finally:
        channel.remove_stream(stream)
    log.info("archive fetched", extra={"node": channel.node, "bytes": size})


@asynccontextmanager
async def _stream(channel: NodeChannel, acknowledged: _Acknowledgements) -> AsyncIterator[int]:
    stream = channel.add_stream(acknowledged.receive)
    try:
        yield stream
    finally:
        channel.remove_stream(stream)


async def _send_pieces(channel: NodeChannel, stream: int, path: Path, acknowledged: _Acknowledgements) -> None:
    sent = 0
    file = await asyncio.to_thread(_opened, path, channel.node)
    try:
        while data := await asyncio.to_thread(file.read, PIECE):
            await acknowledged.wait_for(sent + len(data) - WINDOW, channel.ended)
            channel.send_raw(stream, data)
            sent += len(data)
    finally:
        file.close()


def _opened(path: Path, node: str) -> BinaryIO:
    try:
        return path.open("rb")
    except OSError as error:
        raise NodeRefused(node, EventType.STAGE_IN_ERROR, f"its archive is gone: {error.strerror}") from error
