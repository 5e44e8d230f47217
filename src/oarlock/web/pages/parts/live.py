"""Pages that stay up to date: server-sent events, made once for all who look at the same thing.

A viewer who reads slowly gets the newest event only. A stream holds none of the slots of requests, and ends when the
server stops, when its session is over, or when what it shows cannot be made: the browser says so, and tries again.
"""

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable

import msgspec

from oarlock.model.errors import OarlockError
from oarlock.web.core import ServerInterface

log = logging.getLogger(__name__)

LEAST_SECONDS, MOST_SECONDS = 0.7, 10.0
"""Between two events: at least, if something changed, and at most."""

LOOK_SECONDS = 0.2
"""So often it is looked whether something changed: a change is on the screen within a second."""

COST = 30.0
"""What is made again rests for so many times as long as it took, together with what is like it: lists of fifty users,
or fifty charts, take at most a thirtieth of a core all together, and are the less fresh the more there are.
"""

_LAST = 4

CHECK_SECONDS = 60.0
"""So often it is looked whether a viewer is still signed in."""

Produce = Callable[[], Awaitable[dict[str, str]]]
"""Makes the parts of a page, by name, as HTML."""


class Feed:
    """What several viewers look at, made again while somebody looks. `changed_at` is the event that last differed."""

    def __init__(self, core: ServerInterface, produce: Produce, cost_of_all: Callable[[], float]) -> None:
        self._core, self._produce, self._cost_of_all = core, produce, cost_of_all
        self._took: deque[float] = deque(maxlen=_LAST)  # seconds that the last events took to make
        self.viewers = 0
        self.whole = b""
        self.number, self.changed_at = 0, 0
        self.is_over = False
        self.published = asyncio.Condition()

    async def run(self) -> None:
        """Make events until nobody looks, the server stops, or it fails."""
        try:
            while self.viewers and not self._core.stopping.is_set():
                began, changes = time.monotonic(), self._core.changes
                await self._publish(b"data: " + msgspec.json.encode(await self._produce()) + b"\n\n")
                self._took.append(time.monotonic() - began)
                await self._rest(changes, max(LEAST_SECONDS, COST * self._cost_of_all()))
        except OarlockError as refused:
            log.info("a live page ends", extra={"why": str(refused)})
        finally:
            self.is_over = True
            async with self.published:
                self.published.notify_all()

    @property
    def cost(self) -> float:
        """What an event takes to make, in seconds: the least of some, since others use the machine, too.

        The first tells nothing: templates are loaded for it.
        """
        return min(self._took) if len(self._took) > 1 else 0.0

    async def has_more_than(self, seen: int) -> bool:
        """Wait for an event after that one; False if there will be none."""
        async with self.published:
            await self.published.wait_for(lambda: self.number > seen or self.is_over)
        return not self.is_over

    async def _publish(self, whole: bytes) -> None:
        async with self.published:
            self.number += 1
            if whole != self.whole:
                self.whole, self.changed_at = whole, self.number
            self.published.notify_all()

    async def _rest(self, changes: int, seconds: float) -> None:
        """Wait at least so long, and then until something changed, but not for ever."""
        end = time.monotonic() + max(seconds, MOST_SECONDS)
        await self._sleep(seconds)
        while time.monotonic() < end and self._core.changes == changes and not self._core.stopping.is_set():
            await self._sleep(min(LOOK_SECONDS, LEAST_SECONDS))

    async def _sleep(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._core.stopping.wait(), seconds)


_UNCHANGED = b"data: {}\n\n"


class LiveHub:
    """The feeds that somebody looks at."""

    def __init__(self, core: ServerInterface) -> None:
        self._core = core
        self._feeds: dict[Hashable, Feed] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def stream(
        self, key: Hashable, produce: Produce, is_signed_in: Callable[[], Awaitable[bool]]
    ) -> AsyncIterator[bytes]:
        """Yield the events of a feed. Those with the same key share one: a key stands for all that it depends on.

        What has the same first part of the key is alike.
        """
        feed = self._feed(key, produce)
        feed.viewers += 1
        seen, check_at = 0, time.monotonic() + CHECK_SECONDS
        try:
            while True:
                if not await feed.has_more_than(seen):
                    return
                event = feed.whole if feed.changed_at > seen else _UNCHANGED
                seen = feed.number
                yield event
                if time.monotonic() > check_at:
                    check_at = time.monotonic() + CHECK_SECONDS
                    if not await is_signed_in():
                        return
        finally:
            feed.viewers -= 1

    def _feed(self, key: Hashable, produce: Produce) -> Feed:
        feed = self._feeds.get(key)
        if feed is None or feed.is_over:
            feed = self._feeds[key] = Feed(self._core, produce, lambda: self._cost_of(key))
            task = asyncio.get_running_loop().create_task(self._run(key, feed))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return feed

    def _cost_of(self, key: Hashable) -> float:
        """Return how long all feeds of the kind of one take to make."""
        return sum(feed.cost for other, feed in self._feeds.items() if _kind(other) == _kind(key))

    async def _run(self, key: Hashable, feed: Feed) -> None:
        try:
            await feed.run()
        finally:
            if self._feeds.get(key) is feed:
                del self._feeds[key]


def _kind(key: Hashable) -> Hashable:
    """Return the first part of a key: what it shows, without whose it is."""
    while isinstance(key, tuple) and key:
        key = key[0]
    return key
