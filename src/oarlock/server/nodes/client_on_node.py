"""The connection of a process on a node, such as `oarsh` in a job, that comes over the channel of its node.

It looks to a session like a connection to the server's own socket. Only the node vouches for its user, so a session
takes from it no more than a node has anyway: the jobs that run there.
"""

import asyncio
from collections.abc import Callable

from oarlock.node.wire.stream import LENGTH_BYTES, WINDOW, StreamBroken, decode_length, encode_frame

_MOST_WAITING = 4 * WINDOW  # bytes that were not taken yet; a client that keeps to its window sends less


class ClientOnNode:
    """Frames in both directions. `lost` is set when the connection is closed, whichever side did it.

    `is_local` until the channel ends: then the client may live, and comes back over the next channel.
    """

    def __init__(self, uid: int, send: Callable[[bytes], None]) -> None:
        self.uid, self._send = uid, send
        self.is_local = True
        self.lost = asyncio.Event()
        self._reader = asyncio.StreamReader()
        self._waiting = 0

    def feed(self, data: bytes) -> None:
        """Take received bytes; close the connection if the client sends more than it may."""
        self._waiting += len(data)
        if self._waiting > _MOST_WAITING:
            self._hang_up()
        elif not self.lost.is_set():
            self._reader.feed_data(data)

    def end(self, *, with_channel: bool = False) -> None:
        """Note that the connection is closed: by the client, or because the channel ended."""
        if not self.lost.is_set():
            self.is_local = not with_channel
            self._reader.feed_eof()
            self.lost.set()

    async def receive(self) -> bytes | None:
        """Return the next frame; None at the end. Raise `StreamBroken` for what cannot be a frame."""
        try:
            length = decode_length(await self._reader.readexactly(LENGTH_BYTES))
            frame = await self._reader.readexactly(length)
        except asyncio.IncompleteReadError:
            return None
        except StreamBroken:
            self._hang_up()
            raise
        self._waiting -= LENGTH_BYTES + length
        return frame

    def send(self, payload: bytes) -> None:
        """Send a frame; how much may be under way is up to the caller."""
        if not self.lost.is_set():
            self._send(encode_frame(payload))

    async def close(self) -> None:
        """Close the connection; the node does so once the client has everything."""
        self._hang_up()

    def _hang_up(self) -> None:
        if not self.lost.is_set():
            self._send(b"")
            self.end()
