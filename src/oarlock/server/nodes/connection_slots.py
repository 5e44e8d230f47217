"""How many connections to nodes are open at once, who gives one up for another, and how long is waited for each."""

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

MOST = 1000
"""Connections that are open at once, unless the settings say otherwise."""


class Need(Enum):
    """What an open connection is needed for."""

    NONE = 0  # nothing, or measurements alone
    REPORTS = 1  # jobs are on the node; what they report can be read later as well
    REQUEST = 2  # somebody waits for an answer, or is in a session


class SlotHolder(Protocol):
    """A client of a node whose connection may be closed for another's."""

    @property
    def need(self) -> Need: ...

    async def leave(self) -> None:
        """Close the connection at once; the slot is released."""
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
    revisit: float = 5.0  # before a node with jobs that was left for another asks for a connection again


@dataclass(slots=True)
class _OpenConnection:
    since: float  # on the monotonic clock


class ConnectionSlots:
    """Limits how many connections are open, and how many are being opened, over all nodes.

    Where there is none left, whoever needs one gets that of the node that was not used for longest, of those without
    jobs first. Nodes with jobs that were left for others come back in turn (`patient`): each keeps its connection
    for `stay` seconds before another one of their kind may have it, so that connecting does not become all the work.

    Nodes without jobs may stay connected, to be measured, as long as a quarter is free for others.
    """

    def __init__(
        self,
        *,
        open_: int = MOST,
        opening: int = 25,
        idle_opening: int = 4,
        pinging: int = 20,
        stay: float = 60.0,
        retry: float = 1.0,
    ) -> None:
        self.opening, self.idle_opening = asyncio.Semaphore(opening), asyncio.Semaphore(idle_opening)
        # Fewer than may be opened at once: while thousands of nodes are checked, jobs start on others.
        self.pinging = asyncio.Semaphore(pinging)
        self._most, self._stay, self._retry = open_, stay, retry
        self._used = self._closing = 0
        self._open: dict[SlotHolder, _OpenConnection] = {}  # the one that was not used for longest comes first
        self._urgent: dict[SlotHolder, asyncio.Future[None]] = {}
        self._patient: dict[SlotHolder, asyncio.Future[None]] = {}

    @property
    def has_room_for_idle(self) -> bool:
        """Whether a quarter of the connections is free."""
        return self._used - self._closing <= self._most * 3 // 4

    async def acquire(self, node: SlotHolder, *, patient: bool = False) -> None:
        """Wait for a connection that may be opened."""
        if self._used < self._most:
            self._used += 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        (self._patient if patient else self._urgent)[node] = turn
        try:
            await self._make_room(node, turn)
        except BaseException:
            if turn.done():
                self._pass_on()
            raise
        finally:
            self._urgent.pop(node, None)
            self._patient.pop(node, None)

    def hurry(self, node: SlotHolder) -> None:
        """Note that a node which waits for its turn to come back is needed now."""
        if (turn := self._patient.pop(node, None)) is not None:
            self._urgent[node] = turn

    async def _make_room(self, node: SlotHolder, turn: asyncio.Future[None]) -> None:
        while not turn.done():
            victim = next(self._victims(patient=node in self._patient), None)
            if victim is not None:
                await victim.leave()
            else:
                await asyncio.wait([turn], timeout=self._retry)

    def _victims(self, *, patient: bool) -> Iterator[SlotHolder]:
        """Yield who may give up its connection, the best first."""
        yield from (node for node in self._open if node.need is Need.NONE)
        latest = time.monotonic() - self._stay
        for node, connection in self._open.items():
            if node.need is Need.REPORTS and (not patient or connection.since <= latest):
                yield node

    def opened(self, node: SlotHolder) -> None:
        """Note that a connection is open, which may be closed for another's."""
        self._open[node] = _OpenConnection(time.monotonic())

    def note_use(self, node: SlotHolder) -> None:
        """Note that a connection was used."""
        if (connection := self._open.pop(node, None)) is not None:
            self._open[node] = connection

    def leave(self, node: SlotHolder) -> None:
        """Note that a connection is about to be closed; `release` follows."""
        self._open.pop(node, None)
        self._closing += 1

    def release(self) -> None:
        """Note that a connection is closed: the next one that waits has its place."""
        self._closing -= 1
        self._pass_on()

    def _pass_on(self) -> None:
        for waiting in (self._urgent, self._patient):
            while waiting:
                turn = waiting.pop(next(iter(waiting)))
                if not turn.done():
                    turn.set_result(None)
                    return
        self._used -= 1
