"""What Colmet's nodes send goes the way of what agents send: jobs get numbers of our own, and end when they are silent.

The receiver's thread waits for room in a short queue, so that messages wait at their senders; what the collector has no
room for is dropped, and marked as a gap as soon as it has.
"""

import asyncio
import contextlib
import logging
import queue
import time
import uuid
from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple, Protocol

from oarlock.measure.batch import JobFacts, OwnerLookup, user_number
from oarlock.measure.colmet.receive import ColmetDelivery, ColmetReceiver
from oarlock.measure.colmet.senders import read_senders
from oarlock.measure.live import LiveUsage
from oarlock.measure.posting.envelope import AgentNotice, NotedGap, NotedJob
from oarlock.measure.posting.receive import AgentReceiver, QueueFull, WallClock
from oarlock.model.errors import OarlockError
from oarlock.node.measure.wire import SampleEncoder

log = logging.getLogger(__name__)

MANAGER = "oar"
"""Whose jobs Colmet measures."""

_QUEUED = 64
_ROOM_SECONDS = 0.5  # between two looks whether all of this is being ended
_COUNT_SECONDS = 5.0
_FORGET_SECONDS, _SILENT_SECONDS = 60.0, 3600.0
_USUAL_PERIOD, _LONGEST_PERIOD = 10.0, 3600.0


class ColmetOptions(NamedTuple):
    """Where to receive, from whom, and which events hosts with Colmet in Python count."""

    address: str
    allowed: tuple[str, ...] = ()
    senders: Path | None = None
    perf_events: tuple[str, ...] = ()


class IntakeServices(Protocol):
    """What samples of Colmet need of a server."""

    @property
    def agents(self) -> AgentReceiver: ...
    @property
    def live(self) -> LiveUsage: ...
    @property
    def clock(self) -> WallClock: ...


class ColmetIntake:
    """Receives from Colmet for a server, on the event loop. `look_up` tells whose jobs are, if somebody knows.

    `begin` raises `ConfigRefused` for options that cannot be used.
    """

    def __init__(
        self, services: IntakeServices, cluster: str, options: ColmetOptions, look_up: OwnerLookup | None = None
    ) -> None:
        self._services, self._cluster, self._options, self._look_up = services, cluster, options, look_up
        self._queue: queue.Queue[ColmetDelivery] = queue.Queue(_QUEUED)
        self._wake = asyncio.Event()
        self._closing = False
        self._receiver: ColmetReceiver | None = None
        self._task: asyncio.Task[None] | None = None
        self._boot, self._sequence = uuid.uuid4().hex, int(time.monotonic() * 1000)
        self._last: dict[str, float] = {}  # when each node sent
        self._measured: dict[str, float] = {}  # what its clock showed then
        self._jobs: dict[str, Collection[int]] = {}  # what it reported then
        self._forget_at = 0.0
        self._gaps: dict[str, NotedGap] = {}
        self._counted: Counter[str] = Counter()

    @property
    def address(self) -> str:
        """Where it receives."""
        return self._receiver.address if self._receiver else ""

    def begin(self) -> None:
        """Begin to receive."""
        loop = asyncio.get_running_loop()

        def take(received: ColmetDelivery) -> None:
            while not self._closing:
                with contextlib.suppress(queue.Full):
                    self._queue.put(received, timeout=_ROOM_SECONDS)
                    loop.call_soon_threadsafe(self._wake.set)
                    return

        options = self._options
        senders = read_senders(options.allowed, options.senders)
        self._receiver = ColmetReceiver(
            options.address, senders, take, perf_events=options.perf_events, clock=self._services.clock.now
        )
        self._task = loop.create_task(self._run())

    async def close(self) -> None:
        """Stop receiving."""
        self._closing = True
        if self._receiver is not None:
            await asyncio.to_thread(self._receiver.close)
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        """Take what is queued; a sample that fails is logged, and the next one is taken."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_COUNT_SECONDS):
                    await self._wake.wait()
            self._wake.clear()
            while not self._queue.empty():
                try:
                    await self._take(self._queue.get_nowait())
                except Exception:
                    log.exception("a sample of Colmet could not be taken")
                finally:
                    self._queue.task_done()
            self._count_refused()

    async def _take(self, received: ColmetDelivery) -> None:
        node, sample = received.node, received.sample
        notice = self._notice(received)
        self._sequence += 1
        # With all its names, since nobody can say later that a frame was lost.
        jobs = {job: sample.jobs.get(job, {}) for job in sorted(sample.on_node)}
        frame = SampleEncoder(self._boot, self._sequence).encode(sample.at, sample.node, jobs)
        try:
            await self._services.agents.take(node, self._cluster, [notice, frame], proven=False)
            self._gaps.pop(node, None)
        except QueueFull as full:
            before = self._gaps.get(node)
            missing = sorted({*jobs, *(before.jobs if before else ())})
            self._gaps[node] = NotedGap(before.since if before else received.at, received.at, str(full), missing)
        except OarlockError as error:
            self._services.live.refused[node] += 1
            log.warning("a sample of Colmet was refused", extra={"node": node, "why": str(error)})

    def _notice(self, received: ColmetDelivery) -> AgentNotice:
        node, at = received.node, received.at
        measured = received.sample.at  # by the node's clock: messages that waited arrive all at once
        period = measured - self._measured.get(node, measured)
        self._last[node], self._measured[node], self._jobs[node] = at, measured, received.sample.on_node
        self._forget_silent(at)
        return AgentNotice(
            period=period if 0 < period <= _LONGEST_PERIOD else _USUAL_PERIOD,
            jobs=[self._described(job) for job in sorted(received.sample.on_node)],
            gaps=[self._gaps[node]] if node in self._gaps else [],
        )

    def _described(self, job: int) -> NotedJob:
        """Describe a job; whose it is may be known only with a later sample."""
        facts = (self._look_up.facts(str(job)) if self._look_up else None) or JobFacts()
        user, uid = _printable(facts.user, 128), user_number(facts.user)
        account, name = _printable(facts.account, 255), _printable(facts.name, 255)
        return NotedJob(job, str(job), MANAGER, user, int(uid) if uid else None, account, name)

    def _forget_silent(self, now: float) -> None:
        """Forget nodes that sent nothing for an hour, and whose jobs theirs were."""
        if now < self._forget_at:
            return
        self._forget_at = now + _FORGET_SECONDS
        self._last = {node: at for node, at in self._last.items() if now - at < _SILENT_SECONDS}
        self._measured = {node: at for node, at in self._measured.items() if node in self._last}
        self._jobs = {node: jobs for node, jobs in self._jobs.items() if node in self._last}
        self._gaps = {node: gap for node, gap in self._gaps.items() if node in self._last}
        if self._look_up:
            self._look_up.keep({str(job) for jobs in self._jobs.values() for job in jobs})

    def _count_refused(self) -> None:
        """Count what the receiver refused among what is not believed, by sender."""
        for sender, count in (self._receiver.refused if self._receiver else {}).items():
            self._services.live.refused[sender] += count - self._counted[sender]
            self._counted[sender] = count


def _printable(text: str, most: int) -> str:
    return "".join(character for character in text if character.isprintable())[:most]
