"""Reports of jobs for mails: what a job used of what it asked for, written once its measurements are complete."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from oarlock.config import Config
from oarlock.insight.findings import find
from oarlock.insight.gather import gather
from oarlock.insight.report import make_report, text_lines
from oarlock.insight.rules import rules_in_force
from oarlock.model.errors import OarlockError
from oarlock.model.summary import parse_detail
from oarlock.server.process.clock import Clock
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.usage import summaries

log = logging.getLogger(__name__)

_PATIENCE, _PAUSE = 30, 2.0  # how often, and after how many seconds, it is looked whether the collector is done

Read = Callable[[Callable[[Tx], Any]], Awaitable[Any]]


class JobReports:
    """Writes reports from summaries. A job that is just over is summarised a moment later: that is waited for."""

    def __init__(self, config: Config, clock: Clock, read: Read) -> None:
        self._config, self._clock, self._read = config, clock, read

    async def text(self, job: int) -> str:
        """Return the report of a job; empty if nothing was measured of it, or if it cannot be written now."""
        try:
            for _ in range(_PATIENCE):
                if await self._read(partial(_is_complete, job=job)):
                    break
                await asyncio.sleep(_PAUSE)
            return str(await self._read(partial(self._write, job=job)))
        except OarlockError as problem:
            log.warning("no report of a job", extra={"job": job, "why": str(problem)})
            return ""

    def _write(self, tx: Tx, *, job: int) -> str:
        judged = gather(
            tx,
            [job],
            now=int(self._clock.now()),
            gpu_property=self._config.job_gpu_property,
            cluster=self._config.cluster_name,
        )
        if not judged:
            return ""
        detail = parse_detail(summaries.details_of(tx, [job])[job])
        findings = find(rules_in_force(self._config.findings_file), judged[0].facts, script=judged[0].script)
        return "\n".join([*text_lines(make_report(judged[0], detail, findings)), ""])


def _is_complete(tx: Tx, *, job: int) -> bool:
    """Return whether the summary of a job has both what its nodes reported and what was sampled."""
    stored = summaries.of_jobs(tx, [job])
    return bool(stored) and bool(stored[0].booked)
