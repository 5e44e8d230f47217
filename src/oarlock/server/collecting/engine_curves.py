"""Curves from an engine that others keep, for pages: at most two seconds, and what was answered holds for a minute.

So does a failure: an engine that is away costs one page two seconds, not every page.
"""

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

from oarlock.measure.collect.questions import JobCurves, NodeCurves
from oarlock.measure.collect.series import SeriesRange, SeriesView
from oarlock.measure.remote.engine import ANSWER_SECONDS, EngineAway, PrometheusTarget, QueryRefused
from oarlock.measure.remote.range_query import RemoteSubject, read_curves
from oarlock.model.errors import OarlockError, Unavailable

log = logging.getLogger(__name__)

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

    Whoever asks the same meanwhile waits for the one answer. After a failure other questions are refused at once for a
    minute; one of them at a time is asked nevertheless, and its answer ends that. `late` makes the refusal of a source
    that is too slow. For one event loop.
    """

    def __init__(self, late: Callable[[], OarlockError]) -> None:
        self._late = late
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="oarlock-engine")
        self._remembered: OrderedDict[Hashable, _Remembered] = OrderedDict()
        self._asking: dict[Hashable, asyncio.Task[_Remembered]] = {}
        self._away: OarlockError | None = None
        self._away_until = 0.0

    async def ask(self, key: Hashable, work: Callable[[], Answer]) -> Answer:
        """Return the answer to a question; raise the refusal if there is none."""
        now = time.monotonic()
        remembered = self._remembered.get(key)
        if remembered is None or remembered.until < now:
            is_away = self._away_until >= now
            task = None if is_away and self._asking else self._begin(key, work)
            if is_away or task is None:
                raise self._away or self._late()
            remembered = await asyncio.shield(task)
        if remembered.away is not None:
            raise remembered.away
        answer: Answer = remembered.answer
        return answer

    def close(self) -> None:
        """End what is under way."""
        for task in self._asking.values():
            task.cancel()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _begin(self, key: Hashable, work: Callable[[], object]) -> "asyncio.Task[_Remembered]":
        """Return what asks a question, one for all who want to know now."""
        task = self._asking.get(key)
        if task is None:
            task = self._asking[key] = asyncio.create_task(self._ask(key, work))
            task.add_done_callback(lambda _: self._asking.pop(key, None))
        return task

    async def _ask(self, key: Hashable, work: Callable[[], object]) -> _Remembered:
        answer: object = None
        away: OarlockError | None = None
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                answer = await asyncio.get_running_loop().run_in_executor(self._threads, work)
        except TimeoutError:
            away = self._late()
        except Unavailable as error:
            away = error
        remembered = _Remembered(time.monotonic() + CACHE_SECONDS, answer, away)
        self._remember(key, remembered)
        return remembered

    def _remember(self, key: Hashable, answer: _Remembered) -> None:
        """Keep an answer, also when whoever asked has gone; one that fails for all stands for the other questions."""
        away = None if isinstance(answer.away, QueryRefused) else answer.away
        if self._away is None and isinstance(away, Unavailable):
            log.warning("a source is left alone for a minute", extra={"why": away.for_administrators})
        self._away, self._away_until = away, answer.until if away else 0.0
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
