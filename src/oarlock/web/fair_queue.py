"""A fair queue between users: turns go round, and nobody can have them all."""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class FairQueue:
    """So many turns at once, of which one user has at most `most_of_one`.

    While no turn is free, those who wait get them user by user, not in the order they came.
    """

    def __init__(self, turns: int, most_of_one: int | None = None) -> None:
        self._free = turns
        self._most_of_one = most_of_one or turns
        self._held: Counter[str] = Counter()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    @asynccontextmanager
    async def turn(self, user: str) -> AsyncIterator[None]:
        """Wait for a turn, and hold it inside the `with`."""
        if self._free and self._held[user] < self._most_of_one:
            self._take(user)
        else:
            await self._wait(user)
        try:
            yield
        finally:
            self._give_back(user)

    async def _wait(self, user: str) -> None:
        mine = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(user, deque()).append(mine)
        try:
            await mine
        except asyncio.CancelledError:
            if mine.done() and not mine.cancelled():
                self._give_back(user)  # the turn came in the same moment; it must not be lost
            raise

    def _take(self, user: str) -> None:
        self._free -= 1
        self._held[user] += 1

    def _give_back(self, user: str) -> None:
        self._free += 1
        self._held[user] -= 1
        if not self._held[user]:
            del self._held[user]
        if self._waiting:
            self._pass_on()

    def _pass_on(self) -> None:
        """Give the free turn to the next user who may have one more; of one user the longest waiting comes first."""
        for user in list(self._waiting):
            if self._held[user] >= self._most_of_one:
                continue
            waiting = self._waiting.pop(user)
            first = _next(waiting)
            if waiting:
                self._waiting[user] = waiting  # behind all others
            if first is not None:
                self._take(user)
                first.set_result(None)
                return


def _next(waiting: deque[asyncio.Future[None]]) -> asyncio.Future[None] | None:
    """Take the first future out of the queue whose owner has not left meanwhile."""
    while waiting:
        future = waiting.popleft()
        if not future.done():
            return future
    return None
