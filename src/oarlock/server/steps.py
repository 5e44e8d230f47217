"""Steps of a server: what the reactor decides and what users request, each in one transaction, then its effects."""

import asyncio
import contextlib
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from oarlock.config import Config
from oarlock.job import explain
from oarlock.job.cluster import node_states
from oarlock.job.reactor import passes
from oarlock.job.reactor.passes import PassRecord
from oarlock.job.reactor.reactor import AGAIN_SECONDS, Change, Reactor
from oarlock.job.reactor.steps import ApplyReports, BeginLaunches, Moment, Periodic, QuickPass, WholePass
from oarlock.job.run import kill, recover, suspend
from oarlock.job.run.effects import ActionOutcome, ActionResult, Effect
from oarlock.job.run.reports import IncomingReport
from oarlock.job.run.starting.schedule import Decision
from oarlock.job.run.unit_of_work import StepContext
from oarlock.model.errors import DatabaseAway
from oarlock.model.event import Event, EventType
from oarlock.model.plan import WaitReason
from oarlock.model.resource import NextState
from oarlock.server.database_access import DatabaseAccess
from oarlock.server.job_keys import KeyVault
from oarlock.server.planning.client import PlanningClient, PlanningProcess
from oarlock.server.planning.site_schedulers import SiteSchedulers
from oarlock.server.process.clock import Clock
from oarlock.server.process.reserves import DiskReserve
from oarlock.server.sessions.job_watch import JobWatch, ReservationWatch
from oarlock.store.engine.database import Database
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.cluster import events, resources
from oarlock.store.queries.job import new_jobs

log = logging.getLogger(__name__)

T = TypeVar("T")

_SLICE_PAUSE = 2.0
_FORGET_SECONDS = 3600.0  # between two looks for what may be forgotten
_BOOK_SECONDS = 300.0  # between two bookings of what nodes reported of jobs

ALERT_SECONDS = 30.0
"""Between two mails to administrators: what happens meanwhile shares one."""

MAIL_SECONDS = 30.0
"""Between two looks for mails that are due."""

DIGEST_SECONDS = 60.0
"""Between two looks for digests that are due."""

ACTION_SECONDS = 120.0
"""Between two looks for jobs whose GPUs do nothing."""


class JobSteps(DatabaseAccess, ABC):
    """Runs steps, and wakes who waits for what they change."""

    def __init__(
        self,
        state_dir: Path,
        config: Config,
        database: Database,
        clock: Clock,
        key: bytes,
        helper: PlanningProcess | None = None,
    ) -> None:
        super().__init__(database)
        self.state_dir, self.config, self.clock = state_dir, config, clock
        self.passes = passes.new_log()
        self.changed = asyncio.Event()  # set when the reactor may have something to do
        self.site = StepContext(config, key)
        self.reactor = Reactor(self.site, _periods(config), began=clock.steady(), wake=self.changed.set)
        self.keys = KeyVault(state_dir / "keys", key, self.read)
        self.planning = PlanningClient(database, config, helper)
        self.schedulers = SiteSchedulers(
            self.planning, config, clock, wake=self.wake_scheduler, report=self._scheduler_failed
        )
        self.reserve = DiskReserve(state_dir / "reserve")
        self.job_watch = JobWatch(self.read)
        self._reservations = ReservationWatch()

    @abstractmethod
    def run_effects(self, effects: Iterable[Effect]) -> None:
        """Carry effects out on nodes; their results return as reports."""

    async def write(self, change: Callable[[Tx], T]) -> T:
        """Run a change in the writer's next transaction; what it raises is raised here."""
        self.readers.note()
        return await super().write(change)

    async def write_slice(self, change: Callable[[Tx], None], *, user: str) -> None:
        """Run one of many changes of a user; then leave the writer to others for twice as long, if they have work."""
        self.readers.note(user)
        began = time.monotonic()
        await asyncio.wrap_future(self.database.submit(change))
        if self.readers.others_have_work(user):
            await asyncio.sleep(_SLICE_PAUSE * (time.monotonic() - began))

    async def carry_out(self, step: Change) -> None:
        """Run a step in a transaction, then run its effects."""
        effects = await self.write(step)
        self.job_watch.wake()
        self.keys.wake()
        self.reactor.written(effects)
        self.run_effects(effects)

    async def _carry_out_until_written(self, step: Change) -> None:
        """Run a step that nobody would request again; retry until the database accepts it."""
        while True:
            try:
                await self.carry_out(step)
            except DatabaseAway as away:
                log.warning("the database accepts nothing; a step is tried again", extra={"why": str(away)})
                await asyncio.sleep(AGAIN_SECONDS)
            else:
                return

    # Decisions of the reactor.

    @property
    def moment(self) -> Moment:
        """The present by both clocks."""
        return Moment(self.clock.now(), self.clock.steady())

    @property
    def hopeless(self) -> Mapping[int, str]:
        """Jobs that cannot be placed as things are, with their message."""
        return self.reactor.hopeless

    def wake_scheduler(self) -> None:
        """Wake the scheduler."""
        self.reactor.request_pass()

    def forget_failures(self) -> None:
        """Clear the failures counted for the site's programs: an administrator has looked."""
        self.site.programs.forget()

    def queue_report(self, report: IncomingReport) -> None:
        """Queue a report for the next transaction."""
        self.reactor.receive(report)

    async def write_reports(self, step: ApplyReports | BeginLaunches) -> None:
        """Apply reports, or begin launches, in one transaction."""
        for change in self.reactor.changes(step, self.clock.now):
            await self.carry_out(change)
        self.reactor.ended(step, self.moment)

    async def plan(self, step: QuickPass | WholePass) -> None:
        """Make a scheduling pass and apply what it decides."""
        now, cost, began = int(self.clock.now()), 0.0, self.clock.steady()
        if isinstance(step, QuickPass):
            decision, cost = await self.planning.quick(now, step)
        else:
            decision = await self.planning.whole(now, dates=step.dates)
        await self.apply(decision)
        seconds, is_whole = self.clock.steady() - began, isinstance(step, WholePass)
        self.passes.append(PassRecord(now, seconds, is_whole, len(decision.starts), decision.left))
        self.schedulers.follow(decision.programs)
        self.reactor.planned(step, decision, self.moment, cost=cost)

    async def apply(self, decision: Decision) -> None:
        """Apply a decision of the scheduler."""
        for change in self.reactor.apply_decision(decision, self.clock.now):
            await self.carry_out(change)
            self._reservations.wake(job_id for job_id, _ in decision.accept)
            self._reservations.wake(refusal.job_id for refusal in decision.refuse)

    async def _scheduler_failed(self, says: str) -> None:
        event = Event(EventType.SITE_SCHEDULER_ERROR, int(self.clock.now()), says)
        await self.write(lambda tx: events.add(tx, [event]))

    async def apply_states(self) -> None:
        """Apply the states that were asked for."""
        await self.carry_out(lambda tx: node_states.apply(tx, self.site, now=self.clock.now()))

    async def client_vanished(self, ids: list[int]) -> None:
        """End interactive jobs whose waiting client is gone."""
        await self._carry_out_until_written(lambda tx: kill.client_vanished(tx, self.site, ids, now=self.clock.now()))

    # Requests of users.

    async def _run_request(self, step: Callable[[Tx], ActionOutcome]) -> list[ActionResult]:
        """Run a step that a user requested; on a full disk, give up the reserve first."""
        try:
            answered = await self.write(step)
        except DatabaseAway:
            if not await asyncio.to_thread(self.reserve.give_up):
                raise
            answered = await self.write(step)
        self._reservations.wake(answer.job_id for answer in answered.answers)
        self.job_watch.wake()
        self.keys.wake()
        self.run_effects(answered.effects)
        return list(answered.answers)

    async def kill(self, ids: Sequence[int], *, by: str, exterminate: bool = False) -> list[ActionResult]:
        """Kill jobs; with `exterminate`, do not wait for their nodes."""
        now = self.clock.now()
        return await self._run_request(
            lambda tx: kill.request(tx, self.site, ids, by=by, now=now, exterminate=exterminate)
        )

    async def checkpoint(self, ids: Sequence[int], *, by: str) -> list[ActionResult]:
        """Send running jobs their checkpoint signal."""
        return await self._run_request(lambda tx: kill.checkpoint(tx, self.site, ids, by=by, now=self.clock.now()))

    async def signal(self, ids: Sequence[int], number: int, *, by: str) -> list[ActionResult]:
        """Send a signal to running jobs."""
        return await self._run_request(lambda tx: kill.signal(tx, self.site, ids, number, by=by, now=self.clock.now()))

    async def switch_besteffort(self, ids: Sequence[int], *, by: str) -> list[ActionResult]:
        """Make running jobs best-effort jobs, and those that are, ordinary ones."""
        return await self._run_request(
            lambda tx: kill.switch_besteffort(tx, self.site, ids, by=by, now=self.clock.now())
        )

    async def hold(self, ids: Sequence[int], *, by: str, running: bool = False) -> list[ActionResult]:
        """Hold waiting jobs; with `running`, suspend running ones."""
        now = self.clock.now()
        return await self._run_request(lambda tx: suspend.hold(tx, self.site, ids, by=by, now=now, running=running))

    async def resume(self, ids: Sequence[int], *, by: str) -> list[ActionResult]:
        """Resume held and suspended jobs."""
        return await self._run_request(lambda tx: suspend.resume(tx, self.site, ids, by=by, now=self.clock.now()))

    async def set_state(self, ids: Sequence[int], state: NextState) -> list[int]:
        """Set the state of resources at once; return the jobs on them. Absent and Dead end those jobs."""

        def request(tx: Tx) -> list[int]:
            resources.request_state(tx, ids, state)
            return [job.id for job in node_states.jobs_on(tx, ids)]

        job_ids = await self.write(request)
        await self.apply_states()
        return job_ids

    async def end_unknown(self, number: int) -> None:
        """Kill a job that runs on a node and that this database does not know."""
        await self.carry_out(lambda tx: recover.end_unknown(tx, number))

    async def why(self, job_id: int, *, user: str | None = None) -> WaitReason:
        """Return why a job does not run; for one that does not wait, where it stands."""

        def ask(tx: Tx) -> WaitReason:
            return explain.why(tx, self.config, job_id, now=int(self.clock.now()), site_plans=self.planning.site_plans)

        return await self.read(ask, user=user, key=("why", job_id))

    async def when(self, new: new_jobs.NewJob, *, user: str | None = None) -> explain.StartEstimate:
        """Return when and where a job would start that is not submitted."""

        def ask(tx: Tx) -> explain.StartEstimate:
            return explain.when(tx, self.config, new, now=int(self.clock.now()), site_plans=self.planning.site_plans)

        return await self.read(ask, user=user)

    async def answered(self, job_id: int, *, seconds: float = 10.0) -> explain.ReservationOutcome:
        """Wait for the scheduler's answer to a new reservation."""
        end = self.clock.steady() + seconds
        with self._reservations.watch(job_id) as changed:
            while True:
                changed.clear()  # before the look: what happens during it is looked at again
                answer = await self.read(lambda tx: explain.reservation(tx, job_id))
                left = end - self.clock.steady()
                if answer.is_final or left <= 0:
                    return answer
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(changed.wait(), left)


def _periods(config: Config) -> dict[Periodic, float]:
    """Return what is done every so many seconds, and how many."""
    periods = {
        Periodic.WATCH: float(config.watch_frequency),
        Periodic.FORGET_REQUESTS: _FORGET_SECONDS,
        Periodic.BOOK_USAGE: _BOOK_SECONDS,
    }
    if config.finaud_frequency:
        periods[Periodic.CHECK_NODES] = config.finaud_frequency
    if config.mail_recipient:
        periods[Periodic.SEND_ALERTS] = ALERT_SECONDS
    if config.mail_smtp_server:
        periods[Periodic.SEND_MAILS] = MAIL_SECONDS
    if config.findings_file is not None:  # only a site's own file has rules that act
        periods[Periodic.ACT_ON_FINDINGS] = ACTION_SECONDS
    if config.mail_smtp_server and config.mail_digests:
        periods[Periodic.SEND_DIGESTS] = DIGEST_SECONDS
    return periods
