"""The relay between the client of a session and its node: passes frames on, and holds both sides to the window.

It keeps no bytes: client and node each keep what the other has not acknowledged. So a session costs the server what is
on its way at most, and one that sends more than its window allows is ended.
"""

import asyncio
from enum import Enum

from oarlock.node.wire.stream import ACKNOWLEDGE, CONTROL, DATA, WINDOW, StreamBroken, acknowledged
from oarlock.server.nodes.node import NodeSession
from oarlock.web.core import SessionConnection

_MOST_TO_CLIENT = 4 * WINDOW  # the last output of a shell may exceed the window
_MOST_TO_NODE = 2 * WINDOW


class RelayEnd(Enum):
    """Why a relay ended."""

    DONE = "the client has everything"
    CLIENT_GONE = "the client is gone"
    NODE_LOST = "the channel of the node ended"
    BROKEN = "one side broke the rules"


class SessionRelay:
    """One connection of a client to a session."""

    def __init__(self, client: SessionConnection, *, received: int) -> None:
        self._client = client
        self._to_client = self._client_took = received  # places in the stream to the client
        self._to_node = self._node_took = 0
        self._broken = asyncio.Event()
        self._held: list[bytes] | None = []  # what came before the client knew of its session
        self.why = ""

    def from_node(self, frame: bytes) -> None:
        """Pass a frame of the node to the client."""
        if self._broken.is_set():
            return
        try:
            self._check_from_node(frame)
        except StreamBroken as broken:
            self._break(broken)
            return
        if self._held is None:
            self._client.send(frame)
        else:
            self._held.append(frame)

    def _check_from_node(self, frame: bytes) -> None:
        kind = frame[:1]
        if kind == ACKNOWLEDGE:
            self._node_took = max(self._node_took, acknowledged(frame))
            return
        if kind != DATA:
            raise StreamBroken(f"the node sent a frame that begins with {kind!r}")
        self._to_client += len(frame) - 1
        if self._to_client - self._client_took > _MOST_TO_CLIENT:
            raise StreamBroken(f"the node sent {self._to_client - self._client_took} bytes at once")

    def _break(self, broken: StreamBroken) -> None:
        self.why = str(broken)
        self._broken.set()

    async def run(self, node: NodeSession) -> RelayEnd:
        """Pass frames on until one side is gone."""
        self._to_node = self._node_took = node.received
        held, self._held = self._held or [], None
        for frame in held:
            self._client.send(frame)
        from_client = asyncio.create_task(self._from_client(node))
        others = [asyncio.create_task(event.wait()) for event in (node.lost, self._broken)]
        try:
            await asyncio.wait([from_client, *others], return_when=asyncio.FIRST_COMPLETED)
            if self._broken.is_set():
                return RelayEnd.BROKEN
            if from_client.done():
                return from_client.result()
            return RelayEnd.NODE_LOST
        finally:
            node.leave()
            for task in (from_client, *others):
                task.cancel()
            await asyncio.gather(from_client, *others, return_exceptions=True)

    async def _from_client(self, node: NodeSession) -> RelayEnd:
        try:
            while (frame := await self._client.receive()) is not None:
                if frame[:1] == CONTROL:
                    return RelayEnd.DONE  # the one word that a client says in the middle of a session
                self._pass_to_node(frame, node)
        except StreamBroken as broken:
            self._break(broken)
            return RelayEnd.BROKEN
        return RelayEnd.CLIENT_GONE

    def _pass_to_node(self, frame: bytes, node: NodeSession) -> None:
        if frame[:1] == DATA:
            self._to_node += len(frame) - 1
            if self._to_node - self._node_took > _MOST_TO_NODE:
                raise StreamBroken(f"the client sent {self._to_node - self._node_took} bytes at once")
        elif frame[:1] == ACKNOWLEDGE:
            self._client_took = max(self._client_took, min(acknowledged(frame), self._to_client))
        else:
            raise StreamBroken(f"the client sent a frame that begins with {frame[:1]!r}")
        node.send(frame)
