"""The server's core: ties database, clock, nodes and job steps together. Front ends call it, not the steps."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from oarlock.config import Config
from oarlock.job import summaries
from oarlock.job.admission import stored_rules
from oarlock.job.check import live
from oarlock.job.check.finding import CheckFinding
from oarlock.job.check.live import NodeAttempts
from oarlock.job.cluster import node_states, power
from oarlock.job.monitoring import MonitoringStatus
from oarlock.job.reactor import watch
from oarlock.job.reactor.effect_runner import EffectRunner
from oarlock.job.reactor.steps import Periodic
from oarlock.job.run import recover
from oarlock.job.run.effects import Effect
from oarlock.job.run.reports import ConnectionLost, Exited, NodeReachable, NodeReport
from oarlock.measure.live import LiveUsage
from oarlock.measure.posting.receive import AgentReceiver
from oarlock.model.errors import DatabaseHeld, OarlockError
from oarlock.model.source import SourceHealth
from oarlock.node.attempt.user.output import OutputRequest
from oarlock.server.collecting.bookkeeping import make_collector
from oarlock.server.effects import programs
from oarlock.server.effects.notices import JobReports
from oarlock.server.effects.platform import ServerPlatform
from oarlock.server.instance import mark_file
from oarlock.server.monitoring import MonitoringService
from oarlock.server.nodes.client_on_node import ClientOnNode
from oarlock.server.nodes.desktop_service import DesktopService
from oarlock.server.nodes.fleet import Fleet, InstanceIdentity
from oarlock.server.planning.client import PlanningProcess
from oarlock.server.process.clock import Clock, JumpDetector
from oarlock.server.sessions.service import SessionService
from oarlock.server.sources.facilities import SiteFacilities
from oarlock.server.staging.stage_in import ArchiveStore, archive_folder
from oarlock.server.staging.stage_out import StageOutStore
from oarlock.server.steps import JobSteps
from oarlock.settings.kinds import DbType, PerlRules
from oarlock.store.engine import facts
from oarlock.store.engine.database import Database
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.cluster import resources
from oarlock.store.queries.job import jobs
from oarlock.store.queries.job.files import StoredFile
from oarlock.store.queries.site import administration
from oarlock.store.queries.site.generation import GenerationMarks
from oarlock.store.queries.users import mails, user_records
from oarlock.store.queries.users.mails import NewMail
from oarlock.web.core import ServerStep, SessionConnection
from oarlock.web.identity import Caller, UserAccount

log = logging.getLogger(__name__)

REQUEST_SECONDS = 7 * 86_400
"""How long the answer to a request id is kept for repeated requests."""

REQUESTS_OF_USER = 100_000
"""How many answers are kept for one user; the oldest are deleted first."""

_SLICE = 10_000  # answers that are deleted in one transaction

IDLE_LOOK_SECONDS = 300.0
"""Between two looks for idle nodes that could be measured."""


class ServerCore(JobSteps):
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
        super().__init__(state_dir, config, database, clock, key, helper)
        self.stopping = asyncio.Event()
        self.lost: DatabaseHeld | None = None  # set when this server must stop without another write
        instance = InstanceIdentity(_identity(database), key)
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
        self.facilities = SiteFacilities(config, clock.now)
        self.marks = GenerationMarks(database, mark_file(state_dir))
        self._sessions = SessionService(self, self._fleet.node)
        self._desktops = DesktopService(self, self._fleet)
        self._monitoring = MonitoringService(self, self._fleet.node)
        self._jump_detector = JumpDetector(clock)

    def give_way(self, held: DatabaseHeld) -> None:
        """Stop this server without another write or launch: another one holds the database."""
        self.lost = held
        self._platform.stop()
        self.stopping.set()

    def run_effects(self, effects: Iterable[Effect]) -> None:
        """Carry effects out on nodes, unless this server is about to end."""
        if not self._platform.stopped:
            self._effects.run_effects(effects)

    async def enqueue_mail(self, mail: NewMail) -> None:
        """Store a mail; it is sent when it is due and the mail server answers."""
        await self.write(lambda tx: mails.add(tx, mail, now=int(self.clock.now())))

    async def _login_host(self, job_id: int) -> str:
        """Return where a job was submitted, if that was proven."""
        rows = await self.read(lambda tx: jobs.existing(tx, [job_id]))
        return rows[0].login_host if rows else ""

    # Requests of front ends.

    @property
    def source_health(self) -> Sequence[SourceHealth]:
        """How what is read beside this server's own database fares: it reads no other cluster."""
        return self.facilities.health

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

    async def check_programs(self) -> None:
        """Check the site's programs on this machine; stop the queues if one that every job needs is unusable."""
        unusable = await asyncio.to_thread(programs.unusable, programs.of_this_machine(self.config))
        for program, why in unusable:
            log.error("program of the site is unusable", extra={"key": program.key, "why": why})
        needed = [(program.event, why) for program, why in unusable if program.event is not None]
        if needed:
            await self.carry_out(lambda tx: node_states.stop_for_programs(tx, self.site, needed, now=self.clock.now()))
        _, unknown_classes = await self.read(lambda tx: power.awake_classes(tx, self.config))
        for why in unknown_classes:
            log.warning("nodes of a class are not kept awake", extra={"why": why})

    async def recover(self) -> None:
        """Recover what the last server left: attempts, kills and launches under way."""
        await self._switch_off_perl_rules()
        await self.keys.open()
        await self._desktops.open()
        await self.carry_out(lambda tx: recover.begin(tx, self.site, now=self.clock.now()))
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
            await self.carry_out(lambda tx: watch.clock_jumped(tx, self.site, now=now, seconds=jump))
        for change in self.reactor.changes(Periodic.WATCH, self.clock.now):
            await self.carry_out(change)
        await asyncio.to_thread(self.marks.renew)
        self._reservations.wake_all()
        await self._sessions.attendance.end_unattended(self.clock.steady())
        await self._desktops.watch()

    async def forget_requests(self) -> None:
        """Delete unused archives, old answers to requests and old summaries, in slices: others write in between."""
        before = int(self.clock.now()) - REQUEST_SECONDS
        while await self.write(
            partial(user_records.forget_answers, before=before, most_of_user=REQUESTS_OF_USER, at_once=_SLICE)
        ):
            pass
        now, days = int(self.clock.now()), self.config.archive_summary_days
        while await self.write(partial(summaries.forget_old, now=now, days=days)):
            pass
        await self._archives.remove_unused(now=int(self.clock.now()))
        await asyncio.to_thread(self._stage_outs.remove_old)

    async def book_usage(self) -> None:
        """Add what nodes reported of jobs to the sums of days, in slices so that others can write in between."""
        while await self.write(partial(summaries.book, now=int(self.clock.now()), cluster=self.config.cluster_name)):
            pass

    async def check(self) -> None:
        """Check the nodes that are due."""
        self.run_effects(await self.read(lambda tx: node_states.nodes_to_check(tx, self.config)))

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
        self.facilities.close()
        await self._monitoring.close()
        await self.planning.close()
        await asyncio.to_thread(self.planning.close_threads)
        await self.close_threads()
        await self._fleet.close()


def _identity(database: Database) -> str:
    with database.read() as tx:
        return facts.get(tx, "identity") or ""
