"""How requests share the server: fair slots between users, batches of calls, a lock a name."""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from itertools import zip_longest
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

SHARED_SECONDS = 5.0
"""For how long a user who asked counts as being there, beside the others."""

_LEAST_PAUSE = 0.01


class TokenBucket:
    """How many requests a user may begin at once: `burst`, refilled by `rate` a second."""

    __slots__ = ("_at", "_burst", "_rate", "_tokens")

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self._rate, self._burst = rate, burst
        self._tokens, self._at = burst, now

    def seconds_until_one(self, now: float) -> float:
        """Return how long it takes until there is one; 0 if there is one now."""
        self._tokens = min(self._burst, self._tokens + (now - self._at) * self._rate)
        self._at = now
        return max(0.0, (1.0 - self._tokens) / self._rate)

    def take(self) -> None:
        """Take one, if there is one."""
        self._tokens = max(0.0, self._tokens - 1.0)


class FairQueue:
    """A number of slots, of which one user holds at most `most_of_one`, or `alone` while nobody else asks.

    While no slot is free, waiting users are served round robin, not in the order of their requests. With a `rate`, one
    user begins at most so many requests a second, after a `burst`; that, too, counts only while others ask.
    """

    def __init__(
        self,
        slots: int,
        most_of_one: int | None = None,
        *,
        alone: int | None = None,
        rate: float | None = None,
        burst: float = 1.0,
    ) -> None:
        self._free = slots
        self._rate, self._burst = rate, burst
        self._buckets: dict[str, TokenBucket] = {}
        self._timer: asyncio.TimerHandle | None = None
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
        if self._free and user not in self._waiting and self._may_take(user):
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
        held, now = self._held[user], asyncio.get_running_loop().time()
        if now >= self._shared_until:
            return held < self._alone
        return held < self._most_of_one and not self._pause_of(user, now)

    def _pause_of(self, user: str, now: float) -> float:
        """Return for how long a user who asked too often has to wait."""
        bucket = self._buckets.get(user)
        return 0.0 if bucket is None else bucket.seconds_until_one(now)

    async def _wait(self, user: str) -> None:
        mine = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(user, deque()).append(mine)
        self._look_again()
        try:
            await mine
        except asyncio.CancelledError:
            if mine.done() and not mine.cancelled():
                self._release(user)  # the slot was passed in the same moment; it must not be lost
            raise

    def _take(self, user: str) -> None:
        self._free -= 1
        self._held[user] += 1
        if self._rate is not None:
            if user not in self._buckets:
                self._buckets[user] = TokenBucket(self._rate, self._burst, asyncio.get_running_loop().time())
            self._buckets[user].take()

    def _release(self, user: str) -> None:
        self._free += 1
        self._held[user] -= 1
        if not self._held[user]:
            del self._held[user]
        if self._waiting and not self._pass_on():
            self._look_again()

    def _look_again(self) -> None:
        """Set a timer for those who wait for nothing but their rate: no slot that is released would wake them."""
        if self._rate is None or self._timer is not None or not self._waiting:
            return
        loop = asyncio.get_running_loop()
        pauses = [self._pause_of(user, loop.time()) for user in self._waiting if self._held[user] < self._most_of_one]
        if pauses:
            self._timer = loop.call_later(max(min(pauses), _LEAST_PAUSE), self._timed_out)

    def _timed_out(self) -> None:
        self._timer = None
        while self._free and self._pass_on():
            pass
        self._look_again()

    def _pass_on(self) -> bool:
        """Pass a free slot to the next user who may have one more; requests of one user are served in order."""
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
                return True
        return False


def _next(waiting: deque[asyncio.Future[None]]) -> asyncio.Future[None] | None:
    """Remove and return the first future that was not cancelled meanwhile."""
    while waiting:
        future = waiting.popleft()
        if not future.done():
            return future
    return None


A = TypeVar("A")
R = TypeVar("R")

LARGEST_GROUP = 100


class Batcher(Generic[A, R]):
    """Batches calls: `work` receives the items of several callers and returns a result or an error for each.

    One group is under way at a time; what `work` itself raises is raised to its whole group.
    """

    def __init__(self, work: Callable[[Sequence[A]], Awaitable[Sequence[R | Exception]]]) -> None:
        self._work = work
        self._waiting: list[tuple[A, asyncio.Future[R]]] = []
        self._one_at_a_time = asyncio.Lock()

    async def __call__(self, brought: A) -> R:
        """Process an item in the next batch; return its result or raise its error."""
        mine: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._waiting.append((brought, mine))
        async with self._one_at_a_time:
            # Whoever comes first works for those behind; these find theirs done when they get here.
            if not mine.done():
                await self._do_group()
        return await mine

    async def _do_group(self) -> None:
        group, self._waiting = self._waiting[:LARGEST_GROUP], self._waiting[LARGEST_GROUP:]
        answers: Sequence[R | Exception] = ()
        try:
            answers = await self._work([brought for brought, _ in group])
        except Exception as problem:  # noqa: BLE001  (it belongs to those who asked)
            answers = [problem] * len(group)
        finally:
            for (_, future), answer in zip_longest(group, answers):
                _tell(future, answer)


class KeyedLocks:
    """A lock for each name, there only as long as somebody holds it or waits for it."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def of(self, name: str) -> asyncio.Lock:
        """Return the lock of a name."""
        # Weak values: the lock lives while a caller holds a reference to it, so idle names cost nothing.
        return self._locks.setdefault(name, asyncio.Lock())


def _tell(future: asyncio.Future[R], answer: R | Exception | None) -> None:
    """Resolve a future with a result or an error; None: the work was cancelled before there was one."""
    if answer is None:
        future.cancel()
    elif not future.done():
        if isinstance(answer, Exception):
            future.set_exception(answer)
        else:
            future.set_result(answer)
