"""A fair queue between users: nobody is limited while nobody else waits."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class FairQueue:
    """So many turns at once. While all are taken, those who wait get them user by user, not in the order they came."""

    def __init__(self, turns: int) -> None:
        self._free = turns
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    @asynccontextmanager
    async def turn(self, user: str) -> AsyncIterator[None]:
        """Wait for a turn, and hold it inside the `with`."""
        if self._free:
            self._free -= 1
        else:
            await self._wait(user)
        try:
            yield
        finally:
            self._pass_on()

    async def _wait(self, user: str) -> None:
        mine = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(user, deque()).append(mine)
        try:
            await mine
        except asyncio.CancelledError:
            if mine.done() and not mine.cancelled():
                self._pass_on()  # the turn came in the same moment; it must not be lost
            raise

    def _pass_on(self) -> None:
        """Give a turn to the next user; users go round, and of one user the longest waiting comes first."""
        while self._waiting:
            user, asked = next(iter(self._waiting.items()))
            del self._waiting[user]
            first = asked.popleft()
            if asked:
                self._waiting[user] = asked  # behind all others
            if not first.done():
                first.set_result(None)
                return
        self._free += 1
