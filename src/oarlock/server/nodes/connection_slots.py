"""How many connections to nodes are open at once, and how long is waited for each."""

import asyncio
from dataclasses import dataclass
from typing import Protocol


class SlotHolder(Protocol):
    """A client of a node whose connection may be closed for another's."""

    async def leave(self) -> None:
        """Close the connection if nothing but measurements needs it."""
        ...


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Deadlines, in seconds."""

    connect: float = 20.0  # from the start of ssh to the node's hello
    answer: float = 30.0
    program: float = 0.0  # more, where a program of the site runs before the answer
    first_retry: float = 1.0
    last_retry: float = 60.0
    ping: float = 30.0  # between two pings of a silent connection
    pong: float = 30.0  # for the answer to a ping
    idle: float = 300.0  # an unused connection is closed after this


class ConnectionSlots:
    """Limits how many connections are open, and how many are being opened, over all nodes.

    Nodes without jobs may stay connected, to be measured, as long as a quarter is free for others; whoever needs a
    connection when there is none left gets that of such a node.
    """

    def __init__(self, *, open_: int = 1000, opening: int = 25, idle_opening: int = 4) -> None:
        self._open, self.opening = asyncio.Semaphore(open_), asyncio.Semaphore(opening)
        self.idle_opening = asyncio.Semaphore(idle_opening)
        self._most, self._used = open_, 0
        self._idle: dict[SlotHolder, None] = {}

    @property
    def has_room_for_idle(self) -> bool:
        """Whether a quarter of the connections is free."""
        return self._used <= self._most * 3 // 4

    async def acquire(self) -> None:
        """Wait for a connection that may be opened."""
        if self._open.locked() and self._idle:
            await self._idle.popitem()[0].leave()
        await self._open.acquire()
        self._used += 1

    def leave(self, node: SlotHolder) -> None:
        """Note that a connection is about to be closed; `release` follows."""
        self._used -= 1
        self._idle.pop(node, None)

    def release(self) -> None:
        """Return a connection."""
        self._open.release()

    def is_idle(self, node: SlotHolder, *, idle: bool) -> None:
        """Note whether a node is connected for its measurements alone."""
        if idle:
            self._idle[node] = None
        else:
            self._idle.pop(node, None)
