"""Measurements that are not here any more: files that the site moved away, and series in an engine that others keep."""

import asyncio
import contextlib
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from oarlock.config import Config
from oarlock.measure.collect.places import SamplePlaces
from oarlock.measure.collect.questions import ImportFetched, JobCurves, JobFile, NodeCurves, Question
from oarlock.measure.collect.series import SeriesRange, SeriesView
from oarlock.measure.remote.range_query import (
    ANSWER_SECONDS,
    EngineAway,
    PrometheusTarget,
    RemoteSubject,
    read_curves,
)
from oarlock.model.errors import OarlockError
from oarlock.server.effects import programs

log = logging.getLogger(__name__)

AGAIN_SECONDS = 600.0
"""How long a job of which no file could be fetched is not tried again."""

_AT_ONCE = 2  # programs that fetch
_THREADS = 4  # for requests to an engine
_MOST_REMEMBERED = 10_000
_DAY = 86_400

Ask = Callable[[Question], Awaitable[bytes]]


class MeasurementsElsewhere:
    """Answers what the collector could not, as the settings allow."""

    def __init__(self, root: Path, config: Config) -> None:
        self._places = SamplePlaces(root)
        self._command: Sequence[str] = config.archive_fetch_cmd
        self._seconds = float(config.archive_fetch_timeout)
        self._engine = _prometheus(config)
        self._fetching: dict[int, asyncio.Task[bool]] = {}
        self._failed: OrderedDict[int, float] = OrderedDict()
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="oarlock-engine")

    async def answer(self, question: Question, ask: Ask) -> bytes | None:
        """Answer a question for which nothing is kept here; None if there is nothing elsewhere either."""
        if isinstance(question, JobCurves | JobFile) and question.ended and await self._fetch(question.job, ask):
            return await ask(question)
        if self._engine is None or not isinstance(question, JobCurves | NodeCurves):
            return None
        view = await self._read(self._engine, question)
        return None if view is None else msgspec.json.encode(view)

    def close(self) -> None:
        """End what is under way."""
        for task in self._fetching.values():
            task.cancel()
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _fetch(self, job: int, ask: Ask) -> bool:
        """Bring the file of a job back, once for all who ask for it now; return whether it is here."""
        if not self._command or time.monotonic() < self._failed.get(job, 0.0):
            return False
        task = self._fetching.get(job)
        if task is None:
            task = self._fetching[job] = asyncio.create_task(self._fetch_file(job, ask))
            task.add_done_callback(lambda _: self._fetching.pop(job, None))
        return await asyncio.shield(task)

    async def _fetch_file(self, job: int, ask: Ask) -> bool:
        wanted = self._places.archived(job)
        target = self._places.temporary / f"{job}.fetched.h5"
        arguments = (str(job), str(wanted.relative_to(self._places.root)), str(target))
        try:
            async with self._slots:
                result = await programs.run((*self._command, *arguments), seconds=self._seconds)
            if result.status == 0:
                await ask(ImportFetched(job, str(target)))
                log.info("a file of measurements was fetched", extra={"job": job})
                return True
            why = result.says
        except OarlockError as refusal:
            why = str(refusal)
        finally:
            with contextlib.suppress(OSError):
                await asyncio.to_thread(target.unlink, missing_ok=True)
        log.info("a file of measurements was not fetched", extra={"job": job, "why": why})
        self._failed[job] = time.monotonic() + AGAIN_SECONDS
        if len(self._failed) > _MOST_REMEMBERED:
            self._failed.popitem(last=False)
        return False

    async def _read(self, engine: PrometheusTarget, question: JobCurves | NodeCurves) -> SeriesView | None:
        """Read curves from the engine, within two seconds."""
        wanted = _wanted(question)
        if wanted is None:
            return None
        subject = _subject(question)
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return await loop.run_in_executor(self._threads, read_curves, engine, subject, wanted)
        except TimeoutError:
            raise EngineAway(engine.url, f"none within {ANSWER_SECONDS:g} s") from None


def _subject(question: JobCurves | NodeCurves) -> RemoteSubject:
    if isinstance(question, NodeCurves):
        return RemoteSubject(node=question.node)
    return RemoteSubject(question.job, cluster=question.cluster, label=question.label)


def _wanted(question: JobCurves | NodeCurves) -> SeriesRange | None:
    """Return the range with both its ends; None if it is empty, or the job has not begun."""
    if isinstance(question, JobCurves):
        first, last = question.began, question.ended
    else:
        first, last = question.now - _DAY, question.now
    since = first if question.since is None else question.since
    until = last if question.until is None else question.until
    if not first or not since < until:
        return None
    return SeriesRange(question.metrics, since, until, question.points)


def _prometheus(config: Config) -> PrometheusTarget | None:
    if not config.prometheus_url:
        return None
    token = "" if config.prometheus_token is None else config.prometheus_token.value
    return PrometheusTarget(
        config.prometheus_url, token, config.remote_write_tenant, config.cluster_name, float(config.sample_period)
    )
