"""Follow another cluster: ask its source every few seconds, write what changed, and remember how the source fares.

Each question has a thread, a deadline, and a line in the health of the source. One that fails costs what it would have
brought; the others are asked all the same.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar

from oarlock.config import Config
from oarlock.job.cluster_copy import ClusterCopy
from oarlock.model.errors import OarlockError, Unavailable
from oarlock.model.source import QUESTION_SECONDS, ClusterSource, EndedJobs, SourceAway, SourceHealth
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.cluster import cluster_copy

log = logging.getLogger(__name__)

DAY = 86_400
_JOBS_AT_ONCE = 1000
_EVENTS_AT_ONCE = 1000
_THREADS = 3
T = TypeVar("T")


class FollowedCore(Protocol):
    """What following needs of a server."""

    @property
    def config(self) -> Config: ...
    @property
    def now(self) -> int: ...
    async def write(self, change: Callable[[Tx], T]) -> T: ...
    async def read(self, question: Callable[[Tx], T]) -> T: ...


@dataclass
class QuestionLog:
    """How one kind of question fared so far."""

    name: str
    gives: str
    asked_at: int = 0
    answered: int = 0
    seconds: float | None = None
    says: str = ""

    @property
    def health(self) -> SourceHealth:
        """What is shown of it."""
        return SourceHealth(
            name=self.name, gives=self.gives, answers=bool(self.answered) and not self.says, says=self.says,
            asked=self.asked_at, answered=self.answered, seconds=self.seconds,
        )  # fmt: skip

    @contextlib.contextmanager
    def timed(self, now: int) -> Iterator[None]:
        """Note how a question fares; a refusal is remembered, logged once, and goes on to the caller."""
        began = time.monotonic()
        self.asked_at = now
        try:
            yield
        except OarlockError as error:
            self.seconds = time.monotonic() - began
            says = error.for_administrators if isinstance(error, Unavailable) else str(error)
            if not self.says:
                log.warning("a source does not answer", extra={"source": self.name, "why": says})
            self.says = says
            raise
        self.seconds = time.monotonic() - began
        if self.says:
            log.info("a source answers again", extra={"source": self.name})
        self.answered, self.says = now, ""


class SourceFollower:
    """Asks one source, and keeps the copy of its cluster."""

    def __init__(self, core: FollowedCore, source: ClusterSource) -> None:
        self._core, self._source = core, source
        self._copy = ClusterCopy()
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="oarlock-source")
        self._logs = {
            key: QuestionLog(f"{source.name}: {key}", gives)
            for key, gives in (
                ("nodes", "nodes, their states, queues"),
                ("jobs", "jobs that wait and run"),
                ("ended jobs", "jobs that are over"),
                ("events", "events"),
            )
        }
        self._restored = False
        self.seen_until = 0
        """The instant up to which all that the source knows of jobs is in the copy."""

    @property
    def health(self) -> list[SourceHealth]:
        """How each kind of question fares."""
        return [entry.health for entry in self._logs.values()]

    async def run(self) -> None:
        """Follow until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(self._core.config.source_period)

    async def look(self) -> None:
        """Ask everything once."""
        if not self._restored:
            await self._core.write(self._copy.restore)
            self._restored = True
        began, failed = self._core.now, False
        for step in (self._nodes, self._live, self._ended, self._events):
            try:
                await step()
            except SourceAway:
                failed = True  # remembered and logged where it was asked
            except OarlockError as error:
                failed = True
                self._copy.forget()
                log.warning("the copy of another cluster cannot be written", extra={"why": str(error)})
        if not failed:
            self.seen_until = began

    async def close(self) -> None:
        """End what is under way."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        await asyncio.to_thread(self._source.close)

    async def _ask(self, key: str, question: Callable[[], T]) -> T:
        with self._logs[key].timed(self._core.now):
            try:
                async with asyncio.timeout(QUESTION_SECONDS):
                    return await asyncio.get_running_loop().run_in_executor(self._threads, question)
            except TimeoutError:
                raise SourceAway(self._source.name, f"nothing within {QUESTION_SECONDS:g} s") from None

    @property
    def _since(self) -> int:
        return self._core.now - self._core.config.source_history * DAY

    async def _nodes(self) -> None:
        answer = await self._ask("nodes", lambda: self._source.nodes(since=self._since))
        refused = await self._core.write(lambda tx: self._copy.take_nodes(tx, answer))
        if refused:
            log.warning("properties have names that are words of SQL, and are left out", extra={"names": refused})

    async def _live(self) -> None:
        answer = await self._ask("jobs", self._source.live)
        gone = await self._core.write(lambda tx: self._copy.take_live(tx, answer))
        if gone:
            over = await self._ask("jobs", lambda: self._source.jobs(gone))
            await self._core.write(lambda tx: self._copy.take_gone(tx, gone, over, now=self._core.now))

    async def _ended(self) -> None:
        cursor, complete = await self._core.read(lambda tx: self._copy.cursor(tx, self._since)), False
        while not complete:
            answer = await self._ask("ended jobs", partial(self._source.ended, cursor, _JOBS_AT_ONCE))
            await self._core.write(partial(self._take_ended, answer))
            cursor, complete = answer.cursor, answer.complete

    def _take_ended(self, answer: EndedJobs, tx: Tx) -> None:
        self._copy.take_ended(tx, answer.jobs, answer.cursor, now=self._core.now)

    async def _events(self) -> None:
        last = await self._core.read(cluster_copy.last_event)
        answer = await self._ask("events", lambda: self._source.events(last, _EVENTS_AT_ONCE, since=self._since))
        await self._core.write(lambda tx: self._copy.take_events(tx, answer))
