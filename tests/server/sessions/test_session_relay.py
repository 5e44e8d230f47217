"""The relay of a session: what it passes on, and where it stops a side that breaks the rules."""

import asyncio

import pytest

from oarlock.node.wire.stream import CONTROL, DATA, WINDOW, acknowledgement
from oarlock.server.sessions.relay import RelayEnd, SessionRelay
from tests.bed import run_async


class MemoryConnection:
    """A client's connection in memory; None ends it."""

    is_local = True

    def __init__(self):
        self.lost, self.sent, self.frames = asyncio.Event(), [], asyncio.Queue()

    async def receive(self):
        return await self.frames.get()

    def send(self, payload):
        self.sent.append(payload)

    async def close(self):
        self.lost.set()


class MemorySession:
    """A node's end in memory."""

    received, why = 0, "closed"

    def __init__(self):
        self.lost, self.sent, self.is_left = asyncio.Event(), [], False

    def send(self, frame):
        self.sent.append(frame)

    def leave(self):
        self.is_left = True


@run_async
async def test_frames_before_the_client_knows_of_its_session_come_after_it():
    client, node = MemoryConnection(), MemorySession()
    relay = SessionRelay(client, received=0)
    relay.from_node(DATA + b"early")
    assert client.sent == []
    client.frames.put_nowait(CONTROL + b"{}")
    assert await relay.run(node) is RelayEnd.DONE
    assert (client.sent, node.is_left) == ([DATA + b"early"], True)


@run_async
async def test_a_node_that_sends_without_end_is_cut_off_and_costs_no_memory():
    client, node = MemoryConnection(), MemorySession()
    relay = SessionRelay(client, received=0)
    piece = DATA + bytes(WINDOW // 2)
    for _ in range(1000):
        relay.from_node(piece)
    assert await relay.run(node) is RelayEnd.BROKEN
    assert len(client.sent) == 8  # four windows
    assert "the node sent" in relay.why


@run_async
async def test_what_the_client_has_taken_makes_room_for_more():
    client, node = MemoryConnection(), MemorySession()
    relay = SessionRelay(client, received=0)
    running = asyncio.create_task(relay.run(node))
    await asyncio.sleep(0)
    for total in range(WINDOW, 20 * WINDOW, WINDOW):
        relay.from_node(DATA + bytes(WINDOW))
        client.frames.put_nowait(acknowledgement(total))
        await _until(lambda total=total: acknowledgement(total) in node.sent)
    client.frames.put_nowait(None)
    assert await running is RelayEnd.CLIENT_GONE


async def _until(done):
    while not done():  # noqa: ASYNC110 - the relay has its turns meanwhile
        await asyncio.sleep(0)


@pytest.mark.parametrize("frame", [b"", b"x", CONTROL + b"{}", b"a123"])
@run_async
async def test_a_node_that_sends_what_is_not_a_frame_is_cut_off(frame):
    client, node = MemoryConnection(), MemorySession()
    relay = SessionRelay(client, received=0)
    relay.from_node(frame)
    assert (await relay.run(node), client.sent) == (RelayEnd.BROKEN, [])


@run_async
async def test_a_client_that_acknowledges_the_future_gains_nothing():
    client, node = MemoryConnection(), MemorySession()
    relay = SessionRelay(client, received=0)
    running = asyncio.create_task(relay.run(node))
    client.frames.put_nowait(acknowledgement(1 << 60))
    await _until(lambda: node.sent)
    for _ in range(5):
        relay.from_node(DATA + bytes(WINDOW))
    assert await running is RelayEnd.BROKEN


@run_async
async def test_a_lost_channel_ends_the_relay():
    client, node = MemoryConnection(), MemorySession()
    node.lost.set()
    assert await SessionRelay(client, received=0).run(node) is RelayEnd.NODE_LOST
