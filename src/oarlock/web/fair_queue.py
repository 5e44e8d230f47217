"""A fair queue between users: free slots go round the users, and nobody can hold them all."""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class FairQueue:
    """A number of slots, of which one user holds at most `most_of_one`.

    While no slot is free, waiting users are served round robin, not in the order of their requests.
    """

    def __init__(self, slots: int, most_of_one: int | None = None) -> None:
        self._free = slots
        self._most_of_one = most_of_one or slots
        self._held: Counter[str] = Counter()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    @asynccontextmanager
    async def slot(self, user: str) -> AsyncIterator[None]:
        """Wait for a slot, and hold it inside the `with`."""
        if self._free and self._held[user] < self._most_of_one:
            self._take(user)
        else:
            await self._wait(user)
        try:
            yield
        finally:
            self._release(user)

    async def _wait(self, user: str) -> None:
        mine = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(user, deque()).append(mine)
        try:
            await mine
        except asyncio.CancelledError:
            if mine.done() and not mine.cancelled():
                self._release(user)  # the slot was passed in the same moment; it must not be lost
            raise

    def _take(self, user: str) -> None:
        self._free -= 1
        self._held[user] += 1

    def _release(self, user: str) -> None:
        self._free += 1
        self._held[user] -= 1
        if not self._held[user]:
            del self._held[user]
        if self._waiting:
            self._pass_on()

    def _pass_on(self) -> None:
        """Pass the free slot to the next user who may have one more; requests of one user are served in order."""
        for user in list(self._waiting):
            if self._held[user] >= self._most_of_one:
                continue
            waiting = self._waiting.pop(user)
            first = _next(waiting)
            if waiting:
                self._waiting[user] = waiting  # behind all other users
            if first is not None:
                self._take(user)
                first.set_result(None)
                return


def _next(waiting: deque[asyncio.Future[None]]) -> asyncio.Future[None] | None:
    """Remove and return the first future that was not cancelled meanwhile."""
    while waiting:
        future = waiting.popleft()
        if not future.done():
            return future
    return None
