"""`oarlock portal`: the portal of a cluster that OAR or Slurm runs. It shows, and changes nothing there.

It has a database of its own with a copy of the cluster, so that pages, verbs, permissions and findings are those of a
server. What cannot be read from a copy is refused with a sentence.
"""

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from oarlock.config import Config
from oarlock.job import explain
from oarlock.job.reactor.passes import PassRecord
from oarlock.job.run.reports import NotificationFailed
from oarlock.measure.collect.questions import (
    JobCurves,
    JobFile,
    NodeCurves,
    Question,
    SchedulerFigures,
    no_figures,
)
from oarlock.measure.collect.series import NoSamples, no_curves
from oarlock.measure.live import LiveUsage
from oarlock.measure.remote.vocabulary import FOREIGN_NAMES
from oarlock.model.errors import OarlockError, Unavailable
from oarlock.model.job import JobState
from oarlock.model.plan import Obstacle, WaitReason
from oarlock.model.source import ClusterSource, SourceHealth
from oarlock.server.collecting.elsewhere import prometheus_target
from oarlock.server.core import ServerCore
from oarlock.server.database_access import DatabaseAccess
from oarlock.server.http.listen import serve_http
from oarlock.server.instance import open_instance
from oarlock.server.mailing.digests import DigestSender, JobReportSender
from oarlock.server.mailing.mail_queue import MailQueue
from oarlock.server.process import logs
from oarlock.server.process.clock import RealClock
from oarlock.server.process.reserves import raise_limit
from oarlock.server.sources.accounted import AccountedUsages, UsageSource
from oarlock.server.sources.facilities import SiteFacilities
from oarlock.server.sources.follow import SourceFollower
from oarlock.server.sources.measured import EngineMeasurements
from oarlock.server.steps import MAIL_SECONDS
from oarlock.store.engine.database import Database
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.job import jobs as stored_jobs
from oarlock.store.queries.job import listing
from oarlock.store.queries.job.listing import JobFilter
from oarlock.web.core import ServerInterface

log = logging.getLogger(__name__)


class NoCurves:
    """The measurements of a portal whose cluster nobody measures."""

    figures: Mapping[str, float] = {}
    refused: Mapping[str, int] = {}
    health: Sequence[SourceHealth] = ()

    async def ask(self, question: Question) -> bytes:
        """Answer that there is nothing."""
        if isinstance(question, JobCurves | JobFile):
            raise no_curves(question.job)
        if isinstance(question, NodeCurves):
            raise NoSamples(f"Nothing measures {question.node}.", hint="PROMETHEUS_URL names where curves are.")
        if isinstance(question, SchedulerFigures):
            raise no_figures()
        return b"{}"

    async def close(self) -> None:
        """Nothing is open."""


class PortalCore(DatabaseAccess):
    """What pages and verbs need of a server, for a cluster that is only looked at."""

    def __init__(self, state_dir: Path, config: Config, database: Database) -> None:
        super().__init__(database)
        self.state_dir, self.config, self.clock = state_dir, config, RealClock()
        self.stopping = asyncio.Event()
        self.live = LiveUsage(config.sample_period, config.cluster_name)
        target = prometheus_target(config, FOREIGN_NAMES)
        self.measurements = None if target is None else EngineMeasurements(target, self, self._seen_until)
        self.collector: Any = self.measurements or NoCurves()
        self.facilities = SiteFacilities(config, self.clock.now)
        self.hopeless: Mapping[int, str] = {}
        self.passes: Sequence[PassRecord] = ()  # we plan nothing here
        self.follower: SourceFollower | None = None
        self.accounted: AccountedUsages | None = None

    @property
    def now(self) -> int:
        """The present instant, in epoch seconds."""
        return int(self.clock.now())

    @property
    def source_health(self) -> list[SourceHealth]:
        """How all sources fare."""
        accounted = [self.accounted.health] if self.accounted else []
        followed = self.follower.health if self.follower else ()
        return [*followed, *accounted, *self.collector.health, *self.facilities.health]

    def _seen_until(self) -> int:
        return self.follower.seen_until if self.follower else 0

    async def why(self, job_id: int, *, user: str | None = None) -> WaitReason:
        """Return what the resource manager says of a job, and when it plans to start it: we plan nothing here."""

        def ask(tx: Tx) -> WaitReason:
            job = stored_jobs.get(tx, job_id)
            if job.state is not JobState.WAITING:
                return explain.why(tx, self.config, job_id, now=self.now)
            [row] = listing.rows(tx, JobFilter(ids=[job_id]), most=1)
            says = job.message or "its resource manager gives no reason"
            return WaitReason(job_id, Obstacle.BUSY, says, row.scheduled)

        return await self.read(ask, user=user)

    async def check_nodes_agree(self) -> Any:
        """Refuse: this server knows no attempts that nodes could be compared with."""
        raise Unavailable(
            "The nodes of this cluster are run by another resource manager.", hint="Ask it what they run."
        )

    async def monitoring_status(self, job_id: int) -> Any:
        """Refuse: `oarmonitor` works where jobs are run."""
        raise Unavailable(f"Job {job_id} is run elsewhere.", hint="PROMETHEUS_URL names where its curves are.")

    def queue_report(self, report: NotificationFailed) -> None:
        """Log that a mail could not be sent: there is no server whose events would tell it."""
        log.warning("mails cannot be sent", extra={"job": report.job, "why": report.says})

    async def close(self) -> None:
        """Close what is open."""
        if self.accounted is not None:
            self.accounted.close()
        if self.follower is not None:
            await self.follower.close()
        await self.collector.close()
        self.facilities.close()
        await self.close_threads()


def serve_portal(state_dir: Path, config: Config, source: ClusterSource) -> None:
    """Show a cluster until SIGTERM or SIGINT."""
    raise_limit()
    filters = logs.install_filters()
    with open_instance(state_dir, config) as database:
        asyncio.run(_serve(PortalCore(state_dir, config, database), source))
    for repeat_filter in filters:
        repeat_filter.flush(final=True)


class PortalMails:
    """Mails of a portal: digests, as a server sends them, and reports of jobs that ended."""

    def __init__(self, core: PortalCore) -> None:
        # They use no more of a server than this core has: a test sends some.
        sender = cast(ServerCore, core)
        self._is_wanted = core.config.mail_digests
        self._digests, self._queue = DigestSender(sender), MailQueue(sender)
        self._reports = JobReportSender(sender)

    async def send_due(self) -> None:
        """Write the digests that are due, and send what waits."""
        if self._is_wanted:
            await self._digests.store_due()
        await self._reports.store_due()
        await self._queue.send_due()


async def _send_mails(core: PortalCore) -> None:
    mails = PortalMails(core)
    while True:
        try:
            await mails.send_due()
        except OarlockError as error:  # the next try may work
            log.warning("mails could not be looked at", extra={"why": str(error)})
        await asyncio.sleep(MAIL_SECONDS)


async def _serve(core: PortalCore, source: ClusterSource) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, core.stopping.set)
    core.follower = SourceFollower(core, source)
    log.info("showing", extra={"source": source.name, "state": str(core.state_dir), "pid": os.getpid()})
    # Verbs that read use no more of a server than this core has: a test asks each of them.
    tasks = [
        asyncio.create_task(serve_http(cast(ServerInterface, core), read_only=True)),
        asyncio.create_task(core.follower.run()),
    ]
    if core.measurements is not None:
        tasks.append(asyncio.create_task(core.measurements.run(core.config.source_period)))
    elif isinstance(source, UsageSource):
        core.accounted = AccountedUsages(core, source)
        tasks.append(asyncio.create_task(core.accounted.run(core.config.source_period)))
    if core.config.mail_smtp_server:
        tasks.append(asyncio.create_task(_send_mails(core)))
    stopping = asyncio.create_task(core.stopping.wait())
    try:
        await asyncio.wait({*tasks, stopping}, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            if task.done():
                task.result()
    finally:
        stopping.cancel()
        for task in tasks:
            task.cancel()
        for task in tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task
        await core.close()
    log.info("stopped")
