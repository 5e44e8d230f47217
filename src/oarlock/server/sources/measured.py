"""Measurements of a cluster that others run, from an engine that others keep: curves for pages, and a summary a job.

The summaries are what findings, reports and mails are made of. A job that is over gets one as soon as the engine has
all its samples; one that runs gets a new one every few minutes. Of a job that the engine does not know, the summary
says only how long it ran.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import msgspec

from oarlock.job import summaries
from oarlock.measure.collect.questions import (
    JobCurves,
    JobFile,
    NodeCurves,
    Question,
    SchedulerFigures,
    no_figures,
)
from oarlock.measure.collect.series import NoSamples, no_curves
from oarlock.measure.remote.engine import EngineAway, PrometheusTarget, QueryRefused
from oarlock.measure.remote.job_samples import RemoteRun, read_measured
from oarlock.measure.remote.range_query import RemoteSubject
from oarlock.measure.remote.slurm_exporter import read_figures
from oarlock.model.source import SourceHealth
from oarlock.model.summary import MeasuredJob
from oarlock.server.collecting.engine_curves import EngineCurves
from oarlock.server.sources.follow import DAY, FollowedCore, QuestionLog
from oarlock.server.sources.node_energy import NodeEnergy
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.usage import unmeasured
from oarlock.store.queries.usage.unmeasured import UnmeasuredJob

log = logging.getLogger(__name__)

_SETTLED = 60  # seconds after which the last sample of a job has come
_RENEWED = 300
_AT_ONCE, _THREADS = 100, 2
_SHORTEST = 30  # a job of fewer seconds was hardly sampled


class EngineMeasurements:
    """The measurements of a portal: what the engine has. It takes the place of a collector."""

    figures: Mapping[str, float] = {}
    refused: Mapping[str, int] = {}

    def __init__(self, target: PrometheusTarget, core: FollowedCore, seen_until: Callable[[], int]) -> None:
        self._core = core
        self._curves = EngineCurves(target, now=lambda: float(core.now))
        self._curve_log = QuestionLog("Prometheus: curves", "curves of jobs and nodes")
        self._scheduler_log = QuestionLog("Prometheus: slurm-exporter", "cores, GPUs, nodes by state, shares")
        self._summary_log = QuestionLog("Prometheus: summaries", "totals of jobs, findings, reports")
        self.energy = NodeEnergy(target, core, seen_until)
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="oarlock-summaries")

    @property
    def health(self) -> Sequence[SourceHealth]:
        """How the engine fares, by what it is asked for."""
        return [self._curve_log.health, self._summary_log.health, self._scheduler_log.health, self.energy.health]

    async def ask(self, question: Question) -> bytes:
        """Answer with curves; raise `NoSamples` where the engine has none."""
        if isinstance(question, JobCurves | NodeCurves):
            with self._curve_log.timed(self._core.now):
                view = await self._curves.read(question)
            if view is not None:
                return msgspec.json.encode(view)
        if isinstance(question, SchedulerFigures):
            with self._scheduler_log.timed(self._core.now):
                figures = await self._curves.ask("slurm-exporter", partial(read_figures, question=question))
            if figures is None:
                raise no_figures()
            return msgspec.json.encode(figures)
        if isinstance(question, JobCurves | JobFile):
            raise no_curves(question.job)
        if isinstance(question, NodeCurves):
            raise NoSamples(f"Nothing measures {question.node}.", hint="PROMETHEUS_URL names where curves are.")
        return b"{}"

    async def look(self) -> int:
        """Write summaries that are missing or old, some at once; return how many there were."""
        due = await self._core.read(self._due)
        measured: dict[int, MeasuredJob] = {}
        try:
            with self._summary_log.timed(self._core.now):
                for first in range(0, len(due), _THREADS):
                    jobs = due[first : first + _THREADS]
                    answers = await asyncio.gather(*map(self._read, jobs))
                    measured |= {job.id: answer for job, answer in zip(jobs, answers, strict=True)}
        finally:  # what was answered before the engine went away is kept
            if measured:
                now, cluster = self._core.now, self._core.config.cluster_name
                await self._core.write(lambda tx: summaries.keep_measured(tx, measured, now=now, cluster=cluster))
        return len(measured)

    async def run(self, period: float) -> None:
        """Write summaries and book energy until cancelled."""
        while True:
            more = False
            with contextlib.suppress(EngineAway):  # remembered and logged where it was asked
                more = await self.look() == _AT_ONCE
            with contextlib.suppress(EngineAway):
                more = await self.energy.look() or more
            if not more:
                await asyncio.sleep(period)

    async def close(self) -> None:
        """End what is under way."""
        self._curves.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _due(self, tx: Tx) -> list[UnmeasuredJob]:
        now = self._core.now
        since = now - self._core.config.source_history * DAY
        return unmeasured.find(tx, since=since, now=now, settled=_SETTLED, renewed=_RENEWED, most=_AT_ONCE)

    async def _read(self, job: UnmeasuredJob) -> MeasuredJob:
        run = RemoteRun(RemoteSubject(job.id), job.start, job.stop or self._core.now, job.node_cores)
        if run.stop - run.start < _SHORTEST:
            return MeasuredJob()
        loop = asyncio.get_running_loop()
        target = self._curves.target
        try:
            measured = await loop.run_in_executor(self._threads, partial(read_measured, target, run))
        except QueryRefused as refusal:  # the next job may be answered
            log.warning("Prometheus has no summary of a job", extra={"job": job.id, "why": str(refusal)})
            return MeasuredJob()
        return MeasuredJob() if measured is None else measured
