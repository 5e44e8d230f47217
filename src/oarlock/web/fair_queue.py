"""A fair queue between users: free slots go round the users, and nobody can hold them all."""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

SHARED_SECONDS = 5.0
"""For how long a user who asked counts as being there, beside the others."""


class FairQueue:
    """A number of slots, of which one user holds at most `most_of_one`, or `alone` while nobody else asks.

    While no slot is free, waiting users are served round robin, not in the order of their requests.
    """

    def __init__(self, slots: int, most_of_one: int | None = None, *, alone: int | None = None) -> None:
        self._free = slots
        self._most_of_one = most_of_one or slots
        self._alone = alone or self._most_of_one
        self._last_user = ""
        self._shared_until = 0.0  # until then two users count as working side by side
        self._held: Counter[str] = Counter()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    @asynccontextmanager
    async def slot(self, user: str) -> AsyncIterator[None]:
        """Wait for a slot, and hold it inside the `with`."""
        self._note(user)
        if self._free and self._may_take(user):
            self._take(user)
        else:
            await self._wait(user)
        try:
            yield
        finally:
            self._release(user)

    def _note(self, user: str) -> None:
        """Remember that a user asks: whoever comes after another one shares the slots with them for a moment."""
        if user != self._last_user:
            if self._last_user:
                self._shared_until = asyncio.get_running_loop().time() + SHARED_SECONDS
            self._last_user = user

    def _may_take(self, user: str) -> bool:
        """Return whether a user may hold one slot more."""
        held = self._held[user]
        if held < self._most_of_one:
            return True
        return held < self._alone and asyncio.get_running_loop().time() >= self._shared_until

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
            if not self._may_take(user):
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
