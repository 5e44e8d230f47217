"""Curves from an engine that others keep, for pages: at most two seconds, and what was answered holds for a minute.

So does a failure: an engine that is away costs one page two seconds, not every page.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

from oarlock.measure.collect.questions import JobCurves, NodeCurves
from oarlock.measure.collect.series import SeriesRange, SeriesView
from oarlock.measure.remote.engine import ANSWER_SECONDS, EngineAway, PrometheusTarget
from oarlock.measure.remote.range_query import RemoteSubject, read_curves
from oarlock.model.errors import OarlockError, Unavailable

CACHE_SECONDS = 60.0

_THREADS = 4
_MOST_REMEMBERED = 200
_DAY = 86_400

Answer = TypeVar("Answer")


class _Remembered(NamedTuple):
    until: float
    answer: Any
    away: OarlockError | None


class AnswerCache:
    """Asks a source in threads: for at most two seconds, and what it answered, or its failure, holds for a minute.

    Whoever asks the same meanwhile waits for the one answer. `late` makes the refusal of a source that is too slow. For
    one event loop.
    """

    def __init__(self, late: Callable[[], OarlockError]) -> None:
        self._late = late
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="oarlock-engine")
        self._remembered: OrderedDict[Hashable, _Remembered] = OrderedDict()
        self._asking: dict[Hashable, asyncio.Task[_Remembered]] = {}

    async def ask(self, key: Hashable, work: Callable[[], Answer]) -> Answer:
        """Return the answer to a question; raise the refusal if there is none."""
        remembered = self._remembered.get(key)
        if remembered is None or remembered.until < time.monotonic():
            task = self._asking.get(key)
            if task is None:
                task = self._asking[key] = asyncio.create_task(self._ask(work))
                task.add_done_callback(lambda _: self._asking.pop(key, None))
            remembered = await asyncio.shield(task)
            self._remember(key, remembered)
        if remembered.away is not None:
            raise remembered.away
        answer: Answer = remembered.answer
        return answer

    def close(self) -> None:
        """End what is under way."""
        for task in self._asking.values():
            task.cancel()
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _ask(self, work: Callable[[], object]) -> _Remembered:
        answer: object = None
        away: OarlockError | None = None
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                answer = await asyncio.get_running_loop().run_in_executor(self._threads, work)
        except TimeoutError:
            away = self._late()
        except Unavailable as error:
            away = error
        return _Remembered(time.monotonic() + CACHE_SECONDS, answer, away)

    def _remember(self, key: Hashable, answer: _Remembered) -> None:
        self._remembered[key] = answer
        self._remembered.move_to_end(key)
        if len(self._remembered) > _MOST_REMEMBERED:
            self._remembered.popitem(last=False)


class EngineCurves:
    """Asks one engine. For one event loop. `now` is the clock for jobs that run; without one they are not asked for."""

    def __init__(self, target: PrometheusTarget, *, now: Callable[[], float] | None = None) -> None:
        self.target = target
        self._now = now
        self._cache = AnswerCache(lambda: EngineAway(target.url, f"none within {ANSWER_SECONDS:g} s"))

    async def read(self, question: JobCurves | NodeCurves) -> SeriesView | None:
        """Return the curves that answer a question; None if the engine has none. `EngineAway` if it fails."""
        wanted = wanted_range(question, now=0.0 if self._now is None else self._now())
        if wanted is None:
            return None
        subject = _subject(question)
        key = subject, tuple(wanted.metrics), _minute(wanted.since), _minute(wanted.until), wanted.points
        return await self.ask(key, lambda target: read_curves(target, subject, wanted))

    async def ask(self, key: Hashable, question: Callable[[PrometheusTarget], Answer]) -> Answer:
        """Answer a question in a thread, or as it was answered less than a minute ago; `EngineAway` if it fails."""
        return await self._cache.ask(key, lambda: question(self.target))

    def close(self) -> None:
        """End what is under way."""
        self._cache.close()


def _minute(instant: float | None) -> int:
    return int((instant or 0) // 60)


def _subject(question: JobCurves | NodeCurves) -> RemoteSubject:
    if isinstance(question, NodeCurves):
        return RemoteSubject(node=question.node)
    return RemoteSubject(question.job, cluster=question.cluster, label=question.label)


def wanted_range(question: JobCurves | NodeCurves, *, now: float = 0.0) -> SeriesRange | None:
    """Return the range with both its ends; None if it is empty, or the job has not begun.

    A job that runs ends `now`, which may be 0: its range is empty then.
    """
    if isinstance(question, JobCurves):
        first, last = question.began, question.ended or now
    else:
        first, last = question.now - _DAY, question.now
    since = first if question.since is None else question.since
    until = last if question.until is None else question.until
    if not first or not since < until:
        return None
    return SeriesRange(question.metrics, since, until, question.points)
