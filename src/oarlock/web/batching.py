"""Batching: calls that arrive while one is under way are processed together by the next."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from itertools import zip_longest
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

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
