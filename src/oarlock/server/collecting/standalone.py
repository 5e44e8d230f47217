"""`oarlock collect`: a collector alone, for clusters that OAR or Slurm runs. It has no jobs and no nodes of its own.

It is a server with few verbs: for samples, scripts, curves, files, energy, `/metrics` and tokens.
"""

import asyncio
import contextlib
import logging
import os
import signal
from functools import partial
from pathlib import Path
from typing import cast

from oarlock.config import Config
from oarlock.job import summaries
from oarlock.measure.batch import OwnerLookup
from oarlock.measure.colmet.intake import ColmetIntake, ColmetOptions
from oarlock.measure.live import LiveUsage
from oarlock.measure.posting.receive import AgentReceiver
from oarlock.model.errors import OarlockError
from oarlock.server.collecting.bookkeeping import make_collector
from oarlock.server.database_access import DatabaseAccess
from oarlock.server.http.listen import serve_http
from oarlock.server.instance import open_instance
from oarlock.server.process import logs
from oarlock.server.process.clock import RealClock
from oarlock.server.process.reserves import raise_limit
from oarlock.store.engine.database import Database
from oarlock.web.core import ServerInterface

log = logging.getLogger(__name__)

BOOK_SECONDS = 60.0

VERBS = frozenset({
    "version", "tokens.add", "tokens.list", "tokens.revoke", "samples.add", "agents.jobs", "jobs.series",
    "jobs.samples", "nodes.series", "energy.show", "metrics", "prometheus.targets", "scripts.add", "scripts.put",
    "jobs.script", "audit.list", "jobs.usage", "usage.list", "usage.days", "jobs.efficiency", "jobs.findings",
    "findings.list", "findings.rules", "jobs.report", "jobs.report_pdf",
})  # fmt: skip
"""What a collector alone can be asked."""


class CollectCore(DatabaseAccess):
    """What the verbs of a collector need: the database, the clock, and what measures."""

    def __init__(self, state_dir: Path, config: Config, database: Database) -> None:
        super().__init__(database)
        self.state_dir, self.config, self.clock = state_dir, config, RealClock()
        self.stopping = asyncio.Event()
        self.live = LiveUsage(config.sample_period, config.cluster_name)
        self.collector = make_collector(
            state_dir / "samples", config, database, lambda node: self.live.decoder(node).tables_frame()
        )
        self.agents = AgentReceiver(self)

    async def book_usage(self) -> None:
        """Add energy that was booked after a job's last summary to it and to the sums of days; delete old ones."""
        while True:
            await asyncio.sleep(BOOK_SECONDS)
            with contextlib.suppress(OarlockError):  # the database accepts nothing now: at the next turn
                cluster, days = self.config.cluster_name, self.config.archive_summary_days
                while await self.write(partial(summaries.book, now=int(self.clock.now()), cluster=cluster)):
                    pass
                while await self.write(partial(summaries.forget_old, now=int(self.clock.now()), days=days)):
                    pass

    async def close(self) -> None:
        """End the collector's process and the threads."""
        await self.agents.close()
        await self.collector.close()
        await self.close_threads()


def collect(
    state_dir: Path, config: Config, colmet: ColmetOptions | None = None, look_up: OwnerLookup | None = None
) -> None:
    """Collect until SIGTERM or SIGINT; from Colmet's nodes as well, whose jobs `look_up` knows the owners of."""
    raise_limit()
    filters = logs.install_filters()
    with open_instance(state_dir, config, announce=True) as database:
        asyncio.run(_collect(CollectCore(state_dir, config, database), colmet, look_up))
    for repeat_filter in filters:
        repeat_filter.flush(final=True)


async def _collect(core: CollectCore, colmet: ColmetOptions | None, look_up: OwnerLookup | None) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, core.stopping.set)
    core.collector.begin()
    await core.agents.begin()
    intake = ColmetIntake(core, core.config.cluster_name, colmet, look_up) if colmet else None
    log.info("collecting", extra={"state": str(core.state_dir), "pid": os.getpid()})
    # The verbs above use no more of a server than this core has: a test asks each of them.
    serving = asyncio.create_task(serve_http(cast(ServerInterface, core), VERBS))
    stopping = asyncio.create_task(core.stopping.wait())
    booking = asyncio.create_task(core.book_usage())
    try:
        if intake:
            intake.begin()
        await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if serving.done():
            serving.result()
    finally:
        if intake:
            await intake.close()
        stopping.cancel()
        booking.cancel()
        serving.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await serving
        await core.close()
    log.info("stopped")
