"""What ended jobs of others used, as their resource manager counted it, where nothing measures them.

A summary is made of it, as of a report of a node: CPU time, memory, traffic, without a single sample. So rules that
want samples find nothing, and a report says that it was counted once.
"""

import asyncio
import contextlib
import logging
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, runtime_checkable

from oarlock.job import summaries
from oarlock.lang.sacct_usage import AccountedUsage
from oarlock.model.errors import Unavailable
from oarlock.model.source import QUESTION_SECONDS, SourceAway, SourceHealth
from oarlock.node.wire.messages import Report
from oarlock.server.sources.follow import DAY, FollowedCore, QuestionLog
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.usage import unmeasured
from oarlock.store.queries.usage.unmeasured import UnmeasuredJob

log = logging.getLogger(__name__)

_SETTLED = 120  # seconds after which slurmdbd has the steps of a job
_AT_ONCE = 200
_OUTCOME = "EXITED"


@runtime_checkable
class UsageSource(Protocol):
    """A source that knows what jobs used."""

    name: str

    def usage(self, ids: Collection[int]) -> Mapping[int, AccountedUsage]:
        """Return what these jobs used; `SourceAway` if it does not answer."""
        ...


class AccountedUsages:
    """Asks a source what jobs used, once each, after they ended."""

    def __init__(self, core: FollowedCore, source: UsageSource) -> None:
        self._core, self._source = core, source
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="oarlock-usage")
        self._log = QuestionLog(f"{source.name}: usage", "totals of ended jobs, without curves")

    @property
    def health(self) -> SourceHealth:
        """How the source fares."""
        return self._log.health

    async def run(self, period: float) -> None:
        """Write summaries until cancelled."""
        while True:
            more = False
            with contextlib.suppress(Unavailable):  # remembered and logged where it was asked
                more = await self.look() == _AT_ONCE
            if not more:
                await asyncio.sleep(period)

    async def look(self) -> int:
        """Write the summaries that are missing, some at once; return how many there were."""
        due = [job for job in await self._core.read(self._due) if job.stop]
        if due:
            usages = await self._ask([job.id for job in due])
            await self._core.write(lambda tx: _keep(tx, due, usages, now=self._core.now))
        return len(due)

    def close(self) -> None:
        """End what is under way."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _due(self, tx: Tx) -> list[UnmeasuredJob]:
        now = self._core.now
        since = now - self._core.config.source_history * DAY
        return unmeasured.find(tx, since=since, now=now, settled=_SETTLED, renewed=now, most=_AT_ONCE)

    async def _ask(self, ids: Collection[int]) -> Mapping[int, AccountedUsage]:
        with self._log.timed(self._core.now):
            try:
                async with asyncio.timeout(QUESTION_SECONDS):
                    loop = asyncio.get_running_loop()
                    return await loop.run_in_executor(self._thread, self._source.usage, ids)
            except TimeoutError:
                raise SourceAway(self._source.name, f"nothing within {QUESTION_SECONDS:g} s") from None


def _keep(tx: Tx, due: Collection[UnmeasuredJob], usages: Mapping[int, AccountedUsage], *, now: int) -> None:
    reports = [_report(job, usages.get(job.id, AccountedUsage())) for job in due]
    summaries.keep_reports(tx, reports, now=now)
    summaries.book(tx, now=now)


def _report(job: UnmeasuredJob, usage: AccountedUsage) -> Report:
    """Return what a job used as the report of a node; of one on several nodes only the sum is known."""
    names = list(job.node_cores)
    counters = {
        "cpus": usage.cpus or None, "cpu_seconds_total": usage.cpu_seconds,
        "memory_limit_bytes": usage.memory_asked_bytes, "memory_own_peak_bytes": usage.memory_most_bytes,
        "read_bytes_total": usage.read_bytes, "written_bytes_total": usage.written_bytes,
    }  # fmt: skip
    counted = {name: float(value) for name, value in counters.items() if value is not None}
    # A job of which nothing was counted has a summary all the same: it is asked for once.
    ran = float(usage.seconds or job.stop - job.start)
    node = names[0] if len(names) == 1 else f"{len(names)} nodes together"
    return Report(job.id, 1, node, "", _OUTCOME, ran=ran, counters=counted or {"seconds": ran})
