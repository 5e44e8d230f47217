"""Measurements that are not here any more: files that the site moved away, and series in an engine that others keep."""

import asyncio
import contextlib
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from oarlock.config import Config
from oarlock.measure.collect.files.places import SamplePlaces, is_node_name
from oarlock.measure.collect.questions import ImportFetched, ImportFetchedDay, JobCurves, JobFile, NodeCurves, Question
from oarlock.measure.names import OURS
from oarlock.measure.remote.engine import PrometheusTarget
from oarlock.model.errors import OarlockError
from oarlock.server.collecting.engine_curves import EngineCurves, wanted_range
from oarlock.server.effects import programs

log = logging.getLogger(__name__)

AGAIN_SECONDS = 600.0
"""How long a job or a day of which no file could be fetched is not tried again."""

_AT_ONCE = 2  # programs that fetch
_MOST_REMEMBERED = 10_000
_DAY = 86_400
_MARGIN_SECONDS = 10.0  # for the collector to read what was fetched
_MOST_DAYS = 31  # of a node that are fetched for one question

Ask = Callable[[Question], Awaitable[bytes]]


class _MissingFile(NamedTuple):
    """A file to fetch: what the program is sent, and what the collector does with it."""

    subject: str
    path: Path
    import_from: Callable[[str], Question]


class MeasurementsElsewhere:
    """Answers what the collector could not, as the settings allow."""

    def __init__(self, root: Path, config: Config) -> None:
        self._places = SamplePlaces(root)
        self._command: Sequence[str] = config.archive_fetch_cmd
        self._seconds = float(config.archive_fetch_timeout)
        target = prometheus_target(config)
        self._engine = None if target is None else EngineCurves(target)
        self._fetching: dict[Path, asyncio.Task[bool]] = {}
        self._failed: OrderedDict[Path, float] = OrderedDict()
        self._slots = asyncio.Semaphore(_AT_ONCE)

    async def answer(self, question: Question, ask: Ask) -> bytes | None:
        """Answer a question for which nothing is kept here; None if there is nothing elsewhere either."""
        if self._command and await self._fetch_all(self._missing_files(question), ask):
            return await ask(question)
        if self._engine is None or not isinstance(question, JobCurves | NodeCurves):
            return None
        view = await self._engine.read(question)
        return None if view is None else msgspec.json.encode(view)

    def close(self) -> None:
        """End what is under way."""
        for task in self._fetching.values():
            task.cancel()
        if self._engine is not None:
            self._engine.close()

    def _missing_files(self, question: Question) -> list[_MissingFile]:
        """Return the files that would answer a question."""
        if isinstance(question, JobCurves | JobFile) and question.ended:
            job = question.job
            return [_MissingFile(str(job), self._places.archived(job), lambda target: ImportFetched(job, target))]
        return self._missing_days(question) if isinstance(question, NodeCurves) else []

    def _missing_days(self, question: NodeCurves) -> list[_MissingFile]:
        # The folder of a node stays when its files are moved: a name that somebody made up starts no program.
        node, wanted = question.node, wanted_range(question)
        if wanted is None or not is_node_name(node) or not (self._places.nodes / node).is_dir():
            return []
        since, until = float(wanted.since or 0), min(float(wanted.until or 0), question.now)
        days = [float(day) for day in range(int(since // _DAY) * _DAY, int(until) + 1, _DAY)[: _MOST_DAYS + 1]]
        return [self._missing_day(node, day) for day in days] if len(days) <= _MOST_DAYS else []

    def _missing_day(self, node: str, day: float) -> _MissingFile:
        path = self._places.node_log(node, day).with_suffix(".h5")
        return _MissingFile(node, path, lambda target: ImportFetchedDay(node, day, target))

    async def _fetch_all(self, files: Sequence[_MissingFile], ask: Ask) -> bool:
        """Bring files back; return whether one of them is here in the end. Those that take too long come later."""
        tasks = [task for file in files if (task := self._begin_fetching(file, ask)) is not None]
        if not tasks:
            return False
        done, _ = await asyncio.wait(tasks, timeout=self._seconds + _MARGIN_SECONDS)
        return any(task.result() for task in done if not task.cancelled())

    def _begin_fetching(self, file: _MissingFile, ask: Ask) -> "asyncio.Task[bool] | None":
        """Return what brings a file back, one for all who ask for it now; None if it failed a short while ago."""
        if time.monotonic() < self._failed.get(file.path, 0.0):
            return None
        task = self._fetching.get(file.path)
        if task is None:
            task = self._fetching[file.path] = asyncio.create_task(self._fetch(file, ask))
            task.add_done_callback(lambda _: self._fetching.pop(file.path, None))
        return task

    async def _fetch(self, file: _MissingFile, ask: Ask) -> bool:
        about = {"of": file.subject, "file": str(file.path.relative_to(self._places.root))}
        target = self._places.temporary / f"{file.subject}.{file.path.stem}.fetched.h5"
        try:
            async with self._slots:
                command = (*self._command, file.subject, about["file"], str(target))
                result = await programs.run(command, seconds=self._seconds)
            if result.status == 0:
                await ask(file.import_from(str(target)))
                log.info("a file of measurements was fetched", extra=about)
                return True
            why = result.says
        except OarlockError as refusal:
            why = str(refusal)
        finally:
            with contextlib.suppress(OSError):
                await asyncio.to_thread(target.unlink, missing_ok=True)
        log.info("a file of measurements was not fetched", extra={**about, "why": why})
        self._failed[file.path] = time.monotonic() + AGAIN_SECONDS
        if len(self._failed) > _MOST_REMEMBERED:
            self._failed.popitem(last=False)
        return False


def prometheus_target(config: Config, names: tuple[str, ...] = (OURS,)) -> PrometheusTarget | None:
    """Return the engine that the settings name, and under which `names` it has what is measured; None without one."""
    if not config.prometheus_url:
        return None
    token = "" if config.prometheus_token is None else config.prometheus_token.value
    return PrometheusTarget(
        config.prometheus_url,
        token,
        config.remote_write_tenant,
        config.cluster_name,
        float(config.sample_period),
        names,
    )
