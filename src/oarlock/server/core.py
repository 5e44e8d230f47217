"""The server's core: ties database, clock, nodes and job steps together. Front ends call it, not the steps."""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Hashable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from oarlock.config import Config
from oarlock.job import explain, summaries
from oarlock.job.admission import stored_rules
from oarlock.job.check import live
from oarlock.job.check.finding import CheckFinding
from oarlock.job.check.live import NodeAttempts
from oarlock.job.cluster import node_states, power
from oarlock.job.monitoring import MonitoringStatus
from oarlock.job.reactor import pass_log, watch
from oarlock.job.reactor.effect_runner import EffectRunner
from oarlock.job.reactor.pass_log import PassRecord
from oarlock.job.reactor.reactor import AGAIN_SECONDS, Change, Reactor
from oarlock.job.reactor.steps import ApplyReports, BeginLaunches, Moment, Periodic, QuickPass, WholePass
from oarlock.job.run import kill, recover, suspend
from oarlock.job.run.effects import ActionOutcome, ActionResult, Effect
from oarlock.job.run.reports import ConnectionLost, Exited, IncomingReport, NodeReachable, NodeReport
from oarlock.job.run.starting.schedule import Decision
from oarlock.job.run.unit_of_work import StepContext
from oarlock.measure.live import LiveUsage
from oarlock.measure.posting.receive import AgentReceiver
from oarlock.model.errors import DatabaseAway, DatabaseHeld, OarlockError
from oarlock.model.event import Event, EventType
from oarlock.model.plan import WaitReason
from oarlock.model.resource import NextState
from oarlock.model.source import SourceHealth
from oarlock.node.attempt.user.output import OutputRequest
from oarlock.server.collecting.bookkeeping import make_collector
from oarlock.server.effects import programs
from oarlock.server.effects.job_reports import JobReports
from oarlock.server.effects.platform import ServerPlatform
from oarlock.server.http.reader_pool import ReaderPool
from oarlock.server.instance import mark_file
from oarlock.server.job_keys import KeyVault
from oarlock.server.monitoring import MonitoringService
from oarlock.server.nodes.client_on_node import ClientOnNode
from oarlock.server.nodes.desktop_service import DesktopService
from oarlock.server.nodes.fleet import Fleet, InstanceIdentity
from oarlock.server.planning.client import PlanningClient, PlanningProcess
from oarlock.server.planning.site_schedulers import SiteSchedulers
from oarlock.server.process.clock import Clock, JumpDetector
from oarlock.server.process.reserves import DiskReserve
from oarlock.server.sessions.job_watch import JobWatch, ReservationWatch
from oarlock.server.sessions.service import SessionService
from oarlock.server.staging.stage_in import ArchiveStore, archive_folder
from oarlock.server.staging.stage_out import StageOutStore
from oarlock.settings.kinds import DbType, PerlRules
from oarlock.store.engine import facts
from oarlock.store.engine.database import Database
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.cluster import events, resources
from oarlock.store.queries.job import jobs, new_jobs
from oarlock.store.queries.job.files import StoredFile
from oarlock.store.queries.site import administration
from oarlock.store.queries.site.generation import GenerationMarks
from oarlock.store.queries.users import mails, user_records
from oarlock.store.queries.users.mails import NewMail
from oarlock.web.core import ServerStep, SessionConnection
from oarlock.web.identity import Caller, UserAccount

log = logging.getLogger(__name__)

T = TypeVar("T")

REQUEST_SECONDS = 7 * 86_400
"""How long the answer to a request id is kept for repeated requests."""

REQUESTS_OF_USER = 100_000
"""How many answers are kept for one user; the oldest are deleted first."""

_SLICE = 10_000  # answers that are deleted in one transaction

_SLICE_PAUSE = 2.0
_OWN_THREADS = 4  # for steps and look-ups: what users read has others
_FORGET_SECONDS = 3600.0  # between two looks for what may be forgotten
_BOOK_SECONDS = 300.0  # between two bookings of what nodes reported of jobs

IDLE_LOOK_SECONDS = 300.0
"""Between two looks for idle nodes that could be measured."""

ALERT_SECONDS = 30.0
"""Between two mails to administrators: what happens meanwhile shares one."""

MAIL_SECONDS = 30.0
"""Between two looks for mails that are due."""

DIGEST_SECONDS = 60.0
ACTION_SECONDS = 120.0
"""Seconds between two looks for jobs whose GPUs do nothing."""
"""Between two looks for digests that are due."""


class ServerCore:
    """The state of one server. The settings say how nodes are reached."""

    def __init__(
        self,
        state_dir: Path,
        config: Config,
        database: Database,
        clock: Clock,
        key: bytes,
        helper: PlanningProcess | None = None,
    ) -> None:
        self.state_dir, self.config, self.database, self.clock = state_dir, config, database, clock
        self.stopping = asyncio.Event()
        self.changes = 0  # how often the database was changed
        self.passes = pass_log.new_log()
        self.lost: DatabaseHeld | None = None  # set when this server must stop without another write
        self.changed = asyncio.Event()  # set when the reactor may have something to do
        self.site = StepContext(config, key)
        self.reactor = Reactor(self.site, _periods(config), began=clock.steady(), wake=self.changed.set)
        instance = InstanceIdentity(_identity(database), key)
        self.keys = KeyVault(state_dir / "keys", key, self.read)
        self._fleet = Fleet(
            config,
            state_dir,
            instance,
            self.on_node_event,
            self._measured,
            self._serve_client_on_node,
            self.keys.private_key,
        )
        self._fleet.is_desktop = lambda node: self.read(lambda tx: node in resources.desktops(tx))
        archives = archive_folder(config, state_dir)
        self._archives = ArchiveStore(config, archives, self)
        self._stage_outs = StageOutStore(config, state_dir, self)
        self._platform = ServerPlatform(
            self._fleet,
            config,
            self.reactor.receive,
            archives=archives,
            stage_outs=self._stage_outs,
            report=JobReports(config, clock, self.read).text,
            enqueue=self.enqueue_mail,
            login_host=self._login_host,
        )
        self._effects = EffectRunner(self._platform, self.reactor)
        self.live = LiveUsage(config.sample_period, config.cluster_name)
        self.collector = make_collector(
            state_dir / "samples", config, database, lambda node: self.live.decoder(node).tables_frame()
        )
        self.agents = AgentReceiver(self)
        self.planning = PlanningClient(database, config, helper)
        self.schedulers = SiteSchedulers(
            self.planning, config, clock, wake=self.wake_scheduler, report=self._scheduler_failed
        )
        self.reserve = DiskReserve(state_dir / "reserve")
        self.readers = ReaderPool()
        self._own_threads = ThreadPoolExecutor(_OWN_THREADS, thread_name_prefix="oarlock-own")
        self.marks = GenerationMarks(database, mark_file(state_dir))
        self._reservations = ReservationWatch()
        self.job_watch = JobWatch(self.read)
        self._sessions = SessionService(self, self._fleet.node)
        self._desktops = DesktopService(self, self._fleet)
        self._monitoring = MonitoringService(self, self._fleet.node)
        self._jump_detector = JumpDetector(clock)

    def give_way(self, held: DatabaseHeld) -> None:
        """Stop this server without another write or launch: another one holds the database."""
        self.lost = held
        self._platform.stop()
        self.stopping.set()

    # Reading and writing without blocking the loop.

    async def write(self, change: Callable[[Tx], T]) -> T:
        """Run a change in the writer's next transaction; what it raises is raised here."""
        self.readers.note()
        try:
            return await asyncio.wrap_future(self.database.submit(change))
        finally:
            self.changes += 1  # only now: what is read and kept under the new count has to hold the change

    async def write_slice(self, change: Callable[[Tx], None], *, user: str) -> None:
        """Run one of many changes of a user; then leave the writer to others for twice as long, if they have work."""
        self.readers.note(user)
        began = time.monotonic()
        await asyncio.wrap_future(self.database.submit(change))
        if self.readers.others_have_work(user):
            await asyncio.sleep(_SLICE_PAUSE * (time.monotonic() - began))

    async def read(self, question: Callable[[Tx], T], *, user: str | None = None, key: Hashable = None) -> T:
        """Run a query in a thread, on one instant of the database.

        For a `user` it runs among those of all users (`ReaderPool.run`, which explains `key`); without one, at once.
        """

        def ask() -> T:
            with self.database.read() as tx:
                return question(tx)

        if user is None:
            return await asyncio.get_running_loop().run_in_executor(self._own_threads, ask)
        return await self.readers.run(user, ask, key)

    async def ask(self, question: Callable[[Tx], T], *, user: str, key: Hashable = None) -> T:
        """Run a query with a condition that a user wrote, in a guarded transaction (`Database.ask`)."""

        def ask() -> T:
            with self.database.ask() as tx:
                return question(tx)

        return await self.readers.run(user, ask, key)

    async def compute(self, work: Callable[[], T], *, user: str) -> T:
        """Run a long computation of a user in a thread, on that user's budget."""
        return await self.readers.run(user, work)

    async def _step(self, step: Change) -> None:
        """Run a step in a transaction, then run its effects."""
        effects = await self.write(step)
        self.job_watch.wake()
        self.keys.wake()
        self.reactor.written(effects)
        self._run_effects(effects)

    async def enqueue_mail(self, mail: NewMail) -> None:
        """Store a mail; it is sent when it is due and the mail server answers."""
        await self.write(lambda tx: mails.add(tx, mail, now=int(self.clock.now())))

    async def _login_host(self, job_id: int) -> str:
        """Return where a job was submitted, if that was proven."""
        rows = await self.read(lambda tx: jobs.existing(tx, [job_id]))
        return rows[0].login_host if rows else ""

    async def _run_until_written(self, step: Change) -> None:
        """Run a step that nobody would request again; retry until the database accepts it."""
        while True:
            try:
                await self._step(step)
            except DatabaseAway as away:
                log.warning("the database accepts nothing; a step is tried again", extra={"why": str(away)})
                await asyncio.sleep(AGAIN_SECONDS)
            else:
                return

    def _run_effects(self, effects: Iterable[Effect]) -> None:
        if not self._platform.stopped:
            self._effects.run_effects(effects)

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
        self._run_effects(answered.effects)
        return list(answered.answers)

    # Requests of front ends.

    @property
    def moment(self) -> Moment:
        """The present by both clocks."""
        return Moment(self.clock.now(), self.clock.steady())

    @property
    def hopeless(self) -> Mapping[int, str]:
        """Jobs that cannot be placed as things are, with their message."""
        return self.reactor.hopeless

    @property
    def source_health(self) -> Sequence[SourceHealth]:
        """What this server shows is its own: it reads no other cluster."""
        return ()

    def wake_scheduler(self) -> None:
        """Wake the scheduler."""
        self.reactor.request_pass()

    def forget_failures(self) -> None:
        """Clear the failures counted for the site's programs: an administrator has looked."""
        self.site.programs.forget()

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

    async def measure(self, nodes: Sequence[str], change: Mapping[str, object]) -> None:
        """Have nodes measure otherwise for a while."""
        await self._fleet.measure(nodes, dict(change))

    async def read_output(self, node: str, path: str, *, user: str, uid: int | None) -> tuple[str, int, str]:
        """Read the end of a user's file on a node, as that user; return it, the file's size, and why there is none."""
        try:
            return await self._fleet.node(node).show_output(OutputRequest(user, path, uid))
        except OarlockError as error:
            return "", 0, str(error)

    async def measure_idle(self) -> None:
        """Stay connected to nodes without jobs, so that it is clear what they draw; never returns, if that is wanted.

        A look that fails is tried again at the next one.
        """
        while self._fleet.measures_idle:
            try:
                await self._fleet.measure_idle(await self.read(node_states.alive_nodes))
            except OarlockError as error:
                log.info("idle nodes are not looked for", extra={"why": str(error)})
            await asyncio.sleep(IDLE_LOOK_SECONDS)

    async def check_nodes_agree(self) -> tuple[list[NodeAttempts], list[CheckFinding]]:
        """Compare what nodes run with what the database says; return what they answered, and what does not agree."""
        before = await self.read(live.look)
        nodes = await self._fleet.survey(await self.read(node_states.alive_nodes))
        stored = await self.read(lambda tx: live.stored_attempts(tx, nodes))
        after = await self.read(live.look)
        return nodes, live.compare(before, nodes, after, stored, now=self.clock.now())

    async def end_unknown(self, number: int) -> None:
        """Kill a job that runs on a node and that this database does not know."""
        await self._step(lambda tx: recover.end_unknown(tx, number))

    async def set_state(self, ids: Sequence[int], state: NextState) -> list[int]:
        """Set the state of resources at once; return the jobs on them. Absent and Dead end those jobs."""

        def request(tx: Tx) -> list[int]:
            resources.request_state(tx, ids, state)
            return [job.id for job in node_states.jobs_on(tx, ids)]

        job_ids = await self.write(request)
        await self.apply_states()
        return job_ids

    async def store_file(
        self,
        account: UserAccount,
        pieces: AsyncIterator[bytes],
        *,
        size: int,
        md5sum: str | None,
        note: Callable[[Tx], None],
    ) -> StoredFile:
        """Store an archive that a user sends."""
        now = int(self.clock.now())
        return await self._archives.receive(account, pieces, size=size, md5sum=md5sum, now=now, note=note)

    async def monitor(self, job_id: int, period: int) -> MonitoringStatus:
        """Record what a running job does every `period` seconds; 0 ends the recording."""
        return await (self._monitoring.begin(job_id, period) if period else self._monitoring.stop(job_id))

    async def monitoring_status(self, job_id: int) -> MonitoringStatus:
        """Return how far the recording of a job is, and keep it going."""
        return await self._monitoring.status(job_id)

    # Sessions.

    async def serve_session(self, caller: Caller | None, connection: SessionConnection) -> OarlockError | None:
        """Serve the connection of a session to its end; return the refusal that the client got, if it got one.

        Without a caller the client has to show the key of the job.
        """
        return await self._sessions.serve(caller, connection)

    async def serve_desktop(self, caller: Caller, connection: SessionConnection) -> OarlockError | None:
        """Serve the connection of a desktop to its end; return the refusal that it got, if it got one."""
        return await self._desktops.serve(caller, connection)

    def _serve_client_on_node(self, node: str, client: ClientOnNode) -> None:
        self._sessions.serve_on_node(node, client)

    async def client_vanished(self, ids: list[int]) -> None:
        """End interactive jobs whose waiting client is gone."""
        await self._run_until_written(lambda tx: kill.client_vanished(tx, self.site, ids, now=self.clock.now()))

    # Called by the loops.

    def on_node_event(self, event: NodeReport) -> None:
        """Handle an event of a node; called on the event loop."""
        match event:
            case ConnectionLost():
                self.reactor.connection_lost(event.node, now=self.clock.now())
            case NodeReachable():
                self.reactor.connection_made(event.node, event.hello)
                event = replace(event, ahead=event.hello.now - self.clock.now())
            case Exited():
                event = self._with_samples(event)
            case _:
                pass
        self._platform.on_node_event(event)
        if self._effects.is_expected(event):
            self.reactor.receive(event)

    def _with_samples(self, exited: Exited) -> Exited:
        """Add to a report what only samples have: the kernel's last counters lack it, or are too low."""
        sampled = self.live.ended(exited.node, exited.report.job)
        if not sampled:  # most jobs end before their first sample
            return exited
        counters = dict(exited.report.counters)
        for name, value in sampled.items():
            counters[name] = max(value, counters.get(name, 0.0))
        return replace(exited, report=exited.report._replace(counters=counters))

    def _measured(self, node: str, data: bytes, expected: Mapping[int, int]) -> None:
        now = self.clock.now()
        # Before it is decoded here: the collector may first have to learn the tables that the frame builds on.
        self.collector.put(node, data, expected, at=now)
        self.live.take(node, data, expected.keys(), at=now)

    def queue_report(self, report: IncomingReport) -> None:
        """Queue a report for the next transaction."""
        self.reactor.receive(report)

    async def write_reports(self, step: ApplyReports | BeginLaunches) -> None:
        """Apply reports, or begin launches, in one transaction."""
        for change in self.reactor.changes(step, self.clock.now):
            await self._step(change)
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
            await self._step(change)
            self._reservations.wake(job_id for job_id, _ in decision.accept)
            self._reservations.wake(refusal.job_id for refusal in decision.refuse)

    async def _scheduler_failed(self, says: str) -> None:
        event = Event(EventType.SITE_SCHEDULER_ERROR, int(self.clock.now()), says)
        await self.write(lambda tx: events.add(tx, [event]))

    async def check_programs(self) -> None:
        """Check the site's programs on this machine; stop the queues if one that every job needs is unusable."""
        unusable = await asyncio.to_thread(programs.unusable, programs.of_this_machine(self.config))
        for program, why in unusable:
            log.error("program of the site is unusable", extra={"key": program.key, "why": why})
        needed = [(program.event, why) for program, why in unusable if program.event is not None]
        if needed:
            await self._step(lambda tx: node_states.stop_for_programs(tx, self.site, needed, now=self.clock.now()))
        _, unknown_classes = await self.read(lambda tx: power.awake_classes(tx, self.config))
        for why in unknown_classes:
            log.warning("nodes of a class are not kept awake", extra={"why": why})

    async def recover(self) -> None:
        """Recover what the last server left: attempts, kills and launches under way."""
        await self._switch_off_perl_rules()
        await self.keys.open()
        await self._desktops.open()
        await self._step(lambda tx: recover.begin(tx, self.site, now=self.clock.now()))
        queues = await self.read(administration.all_queues)
        self.schedulers.follow([(queue.name, queue.program) for queue in queues if queue.program and queue.active])
        self.wake_scheduler()

    async def _switch_off_perl_rules(self) -> None:
        if self.config.admission_perl_rules is PerlRules.DISABLE:
            now = int(self.clock.now())
            for number in await self.write(lambda tx: stored_rules.disable_perl(tx, now=now)):
                log.warning("a Perl rule was switched off", extra={"rule": number})

    async def watch(self) -> None:
        """Enforce deadlines; those that only a jump of the clock has passed are extended first."""
        if self.config.db_type is DbType.SQLITE:
            await asyncio.to_thread(self.reserve.keep)
        if jump := self._jump_detector.jump():
            now = self.clock.now()
            await self._step(lambda tx: watch.clock_jumped(tx, self.site, now=now, seconds=jump))
        for change in self.reactor.changes(Periodic.WATCH, self.clock.now):
            await self._step(change)
        await asyncio.to_thread(self.marks.renew)
        self._reservations.wake_all()
        await self._sessions.end_unattended(self.clock.steady())
        await self._desktops.watch()

    async def forget_requests(self) -> None:
        """Delete unused archives and old answers to requests, these in slices so that others can write in between."""
        before = int(self.clock.now()) - REQUEST_SECONDS
        while await self.write(
            partial(user_records.forget_answers, before=before, most_of_user=REQUESTS_OF_USER, at_once=_SLICE)
        ):
            pass
        await self._archives.remove_unused(now=int(self.clock.now()))
        await asyncio.to_thread(self._stage_outs.remove_old)

    async def book_usage(self) -> None:
        """Add what nodes reported of jobs to the sums of days, in slices so that others can write in between."""
        while await self.write(partial(summaries.book, now=int(self.clock.now()))):
            pass

    async def apply_states(self) -> None:
        """Apply the states that were asked for."""
        await self._step(lambda tx: node_states.apply(tx, self.site, now=self.clock.now()))

    async def check(self) -> None:
        """Check the nodes that are due."""
        self._run_effects(await self.read(lambda tx: node_states.nodes_to_check(tx, self.config)))

    async def run_step(self, step: ServerStep) -> None:
        """Run a step now that is due later, because an administrator says so."""
        match step:
            case ServerStep.SCHEDULE:
                self.wake_scheduler()
            case ServerStep.WATCH:
                await self.watch()
            case ServerStep.CHECK_NODES:
                await self.check()
            case ServerStep.APPLY_STATES:
                await self.apply_states()

    async def close(self) -> None:
        """Close connections and threads; jobs go on running."""
        await self._platform.close()
        await self.job_watch.close()
        await self.keys.close()
        await self._sessions.close()
        await self.agents.close()
        await self.collector.close()
        await self._monitoring.close()
        await self.planning.close()
        await asyncio.to_thread(self._close_threads)
        await self._fleet.close()

    def _close_threads(self) -> None:
        self.readers.close()
        self.planning.close_threads()
        self._own_threads.shutdown(cancel_futures=True)


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


def _identity(database: Database) -> str:
    with database.read() as tx:
        return facts.get(tx, "identity") or ""
