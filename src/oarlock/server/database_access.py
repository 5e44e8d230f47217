"""Reads and writes of the database that do not block the event loop, and the threads in which they run.

Users' queries share their threads by the CPU time that they take. The scheduler, steps and look-ups have threads of
their own. One interpreter runs them all, so whoever reads much slows everything: each user has a budget of CPU seconds,
which counts only while somebody else, or the server, has work.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Hashable, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

from oarlock.store.engine.database import Database
from oarlock.store.engine.tx import Tx

T = TypeVar("T")

THREADS, MOST_OF_ONE = 6, 2
"""How many queries run at once, and how many of them may be of one user."""

MOST_HEAVY = 2
"""How many of them may be of users whose last queries took long: the rest stays free for quick ones."""

HEAVY_SECONDS = 0.1
BURST_SECONDS = 1.0
"""CPU seconds that a user may take at once, before the budget limits it."""

MOST_DEBT_SECONDS = 5.0
"""What one long query costs at most: the wait after it is bounded."""

SHARE, SHARE_OF_ALL = 0.15, 0.25
"""Cores that one user who is over its budget may go on using, and all such users together."""

_MEMORY_SECONDS = 1.0  # a user that had work this long ago still counts as active
_MOST_KEPT = 1000
_OWN_THREADS = 4  # for steps and look-ups: what users read has others


@dataclass(slots=True)
class _Reader:
    """A user: the CPU seconds left, the expected cost of the next query, and the queries that wait."""

    name: str
    tokens: float
    refilled: float
    expected: float = 0.0
    running: int = 0
    waiting: "deque[_Waiting]" = field(default_factory=deque)

    @property
    def is_heavy(self) -> bool:
        return self.expected > HEAVY_SECONDS

    @property
    def is_idle(self) -> bool:
        return not self.running and not self.waiting and self.tokens >= BURST_SECONDS


@dataclass(slots=True, eq=False)
class _Waiting:
    """A query that waits. Its future gets a turn, or the result of another query with the same key."""

    future: "asyncio.Future[_Turn | _Result]"
    key: Hashable


@dataclass(slots=True)
class _Turn:
    """The cost charged in advance, and the queries that share the result."""

    expected: float
    sharing: Set[_Waiting] = frozenset()

    def answer(self, result: "_Result") -> None:
        for waiting in self.sharing:
            if not waiting.future.done():
                waiting.future.set_result(result)


@dataclass(slots=True)
class _Result:
    """The result of a query, and the CPU seconds it took."""

    value: Any = None
    error: BaseException | None = None
    cost: float = 0.0

    def get(self) -> Any:
        if self.error is not None:
            raise self.error
        return self.value


class ReaderPool:
    """Runs queries in threads. Users get them in rotation; those over their budget wait until it is refilled."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="oarlock-reader")
        self._free, self._heavy = THREADS, 0
        self._readers: dict[str, _Reader] = {}
        self._queue: dict[str, _Reader] = {}  # users with waiting queries, in the order of their turns
        self._keyed: dict[Hashable, set[_Waiting]] = {}
        nobody: tuple[str | None, float] = (None, float("-inf"))
        self._active = self._active_before = nobody
        self._timer: asyncio.TimerHandle | None = None

    async def run(self, user: str, work: Callable[[], T], key: Hashable = None) -> T:
        """Run `work` in a thread, on the budget of a user.

        Those who wait with the same `key` (None: nobody does) when it begins get its answer as well: it is as new as
        one of their own would be. So a key must stand for everything that the answer depends on.
        """
        reader = self._reader(user)
        self.note(user)
        if self._has_room(reader) and self._is_within_budget(reader):
            turn: _Turn | _Result = self._begin(reader, key)
        else:
            turn = await self._wait(reader, key)
        if isinstance(turn, _Result):
            return turn.get()  # type: ignore[no-any-return]
        result = _Result(error=asyncio.CancelledError())
        try:
            result = await asyncio.get_running_loop().run_in_executor(self._threads, _measured, work)
        finally:
            self._end(reader, turn, result)
        return result.get()  # type: ignore[no-any-return]

    def note(self, user: str | None = None) -> None:
        """Record that a user, or the server itself (None), has work now."""
        name, _ = self._active
        if name != user:
            self._active_before = self._active
        self._active = user, self._clock()

    def others_have_work(self, user: str) -> bool:
        """Return whether somebody else, or the server itself, had work within the last second."""
        _, at = self._active if self._active[0] != user else self._active_before
        return at >= self._clock() - _MEMORY_SECONDS

    def close(self) -> None:
        """Finish what is being read."""
        if self._timer is not None:
            self._timer.cancel()
        self._threads.shutdown(cancel_futures=True)

    def _reader(self, user: str) -> _Reader:
        reader = self._readers.get(user)
        if reader is None:
            if len(self._readers) >= _MOST_KEPT:
                for idle in [reader_kept for reader_kept in self._readers.values() if reader_kept.is_idle]:
                    del self._readers[idle.name]
            reader = self._readers[user] = _Reader(user, BURST_SECONDS, self._clock())
        self._refill(reader)
        return reader

    def _refill(self, reader: _Reader) -> None:
        now = self._clock()
        if reader.tokens < BURST_SECONDS:
            reader.tokens = min(BURST_SECONDS, reader.tokens + (now - reader.refilled) * self._rate())
        reader.refilled = now

    def _rate(self) -> float:
        over = sum(reader.tokens <= 0 for reader in self._readers.values())
        return min(SHARE, SHARE_OF_ALL / over) if over else SHARE

    def _has_room(self, reader: _Reader) -> bool:
        heavy = reader.is_heavy and self._heavy >= MOST_HEAVY
        return bool(self._free) and reader.running < MOST_OF_ONE and not heavy

    def _is_within_budget(self, reader: _Reader) -> bool:
        return reader.tokens > 0 or not self.others_have_work(reader.name)

    def _begin(self, reader: _Reader, key: Hashable) -> _Turn:
        """Take a thread for a user's query; all who wait with the same key share its result."""
        self._free -= 1
        self._heavy += reader.is_heavy
        reader.running += 1
        reader.tokens -= reader.expected  # so that several at once do not each find the budget untouched
        return _Turn(reader.expected, self._keyed.pop(key, frozenset()) if key is not None else frozenset())

    def _end(self, reader: _Reader, turn: _Turn, result: _Result) -> None:
        self._free += 1
        self._heavy -= turn.expected > HEAVY_SECONDS
        reader.running -= 1
        reader.tokens = max(reader.tokens + turn.expected - result.cost, -MOST_DEBT_SECONDS)
        reader.expected = max(result.cost, reader.expected / 2)
        turn.answer(result)
        self.note(reader.name)
        if self._queue:
            self._start_waiting()

    async def _wait(self, reader: _Reader, key: Hashable) -> _Turn | _Result:
        mine = _Waiting(asyncio.get_running_loop().create_future(), key)
        reader.waiting.append(mine)
        self._queue.setdefault(reader.name, reader)
        if key is not None:
            self._keyed.setdefault(key, set()).add(mine)
        if self._timer is None:
            self._look_again()  # perhaps no query runs whose end would start this one
        try:
            return await mine.future
        except asyncio.CancelledError as cancelled:
            self._forget(mine)
            if mine.future.done() and not mine.future.cancelled() and isinstance(turn := mine.future.result(), _Turn):
                self._end(reader, turn, _Result(error=cancelled))  # the turn came in the same moment
            raise

    def _start_waiting(self) -> None:
        """Start the queries that may start; set a timer if some wait for nothing but their budget."""
        for reader in list(self._queue.values()):
            self._refill(reader)
            first = self._first(reader)
            if first is not None and self._has_room(reader) and self._is_within_budget(reader):
                reader.waiting.popleft()
                del self._queue[reader.name]
                if reader.waiting:
                    self._queue[reader.name] = reader  # behind all others
                self._forget(first)
                first.future.set_result(self._begin(reader, first.key))
        self._look_again()

    def _first(self, reader: _Reader) -> _Waiting | None:
        """Return the query of a user that waits longest; drop those that were answered or cancelled."""
        while reader.waiting:
            first = reader.waiting[0]
            if not first.future.done() and (first.key is None or first in self._keyed.get(first.key, ())):
                return first
            reader.waiting.popleft()
        self._queue.pop(reader.name, None)
        return None

    def _forget(self, waiting: _Waiting) -> None:
        same = self._keyed.get(waiting.key, set()) if waiting.key is not None else set()
        same.discard(waiting)
        if not same:
            self._keyed.pop(waiting.key, None)

    def _look_again(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        debts = [-reader.tokens for reader in self._queue.values() if self._has_room(reader)]
        if debts:
            pause = min(max(min(debts) / self._rate(), 0.01), _MEMORY_SECONDS)
            self._timer = asyncio.get_running_loop().call_later(pause, self._timed_out)

    def _timed_out(self) -> None:
        self._timer = None
        self._start_waiting()


def _measured(work: Callable[[], Any]) -> _Result:
    began = time.thread_time()
    try:
        value = work()
    except Exception as error:  # noqa: BLE001  (it belongs to the caller)
        return _Result(error=error, cost=time.thread_time() - began)
    return _Result(value, cost=time.thread_time() - began)


class DatabaseAccess:
    """The database of a server of any kind, for its event loop."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.changes = 0  # how often the database was changed
        self.readers = ReaderPool()
        self._own_threads = ThreadPoolExecutor(_OWN_THREADS, thread_name_prefix="oarlock-own")

    async def write(self, change: Callable[[Tx], T]) -> T:
        """Run a change in the writer's next transaction; what it raises is raised here."""
        try:
            return await asyncio.wrap_future(self.database.submit(change))
        finally:
            self.changes += 1  # only now: what is read and kept under the new count has to hold the change

    async def read(self, question: Callable[[Tx], T], *, user: str | None = None, key: Hashable = None) -> T:
        """Run a query in a thread, on one instant of the database.

        For a `user` it runs among those of all users (`ReaderPool.run`, which explains `key`); without one, at once.
        """

        def ask() -> T:
            with self.database.read() as tx:
                return question(tx)

        if user is None:
            return await asyncio.get_running_loop().run_in_executor(self._own_threads, ask)
        return await self.readers.run(user, ask, key)

    async def ask(self, question: Callable[[Tx], T], *, user: str, key: Hashable = None) -> T:
        """Run a query with a condition that a user wrote, in a guarded transaction (`Database.ask`)."""

        def ask() -> T:
            with self.database.ask() as tx:
                return question(tx)

        return await self.readers.run(user, ask, key)

    async def compute(self, work: Callable[[], T], *, user: str) -> T:
        """Run a long computation of a user in a thread, on that user's budget."""
        return await self.readers.run(user, work)

    async def close_threads(self) -> None:
        """Finish what is being read."""
        await asyncio.to_thread(self.readers.close)
        await asyncio.to_thread(self._own_threads.shutdown, cancel_futures=True)
