"""A connection that was upgraded from HTTP to frames: a session's way to its client."""

import asyncio
import contextlib
import socket
import struct

from oarlock.node.wire.stream import LENGTH_BYTES, SWITCHED, StreamBroken, decode_length, encode_frame

_PARTING_SECONDS = 5.0  # for the last frames to be read
_BUFFER = 1 << 16


class UpgradedConnection:
    """Frames in both directions. `lost` is set when the connection is closed, whichever side did it."""

    def __init__(self, transport: asyncio.Transport, *, is_local: bool) -> None:
        self._transport, self.is_local = transport, is_local
        self._reader = asyncio.StreamReader(limit=_BUFFER)
        self._reader.set_transport(transport)  # it stops reading of the socket while its buffer is full
        self.lost = asyncio.Event()
        if not is_local:
            _keep_alive(transport.get_extra_info("socket"))
        transport.write(SWITCHED)

    def feed(self, data: bytes) -> None:
        """Take received bytes."""
        self._reader.feed_data(data)

    def end(self) -> None:
        """Note that the connection is closed."""
        self._reader.feed_eof()
        self.lost.set()

    async def receive(self) -> bytes | None:
        """Return the next frame; None at the end. Raise `StreamBroken` for what cannot be a frame."""
        try:
            return await self._reader.readexactly(decode_length(await self._reader.readexactly(LENGTH_BYTES)))
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        except struct.error as error:
            raise StreamBroken(str(error)) from error

    def send(self, payload: bytes) -> None:
        """Send a frame; what the client does not read waits in memory, so callers bound what is under way."""
        if not self._transport.is_closing():
            self._transport.write(encode_frame(payload))

    async def close(self) -> None:
        """Close the connection once the client has read everything, or after a moment."""
        self._transport.close()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.lost.wait(), _PARTING_SECONDS)
        if not self.lost.is_set():
            self._transport.abort()
            await self.lost.wait()


def _keep_alive(sock: socket.socket) -> None:
    """Make the kernel notice a client's machine that is gone without a word."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in ((socket.TCP_KEEPIDLE, 30), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 3)):
        sock.setsockopt(socket.IPPROTO_TCP, option, value)
