"""Samples of agents, as a server takes them: numbers of our own for their jobs, each frame once, and the ends of jobs.

The jobs of another resource manager have numbers that jobs of our own may have as well. Each gets a number far above
those (`store/queries/job/agent_jobs.py`), which replaces the agent's in the frames; from there on they go the way of
all samples.

A job is over when every node that had it sent samples without it for a while. Nodes that are silent may have samples
of it that wait at their agents, so it is not over before these would be too old, unless another of its nodes is without
it.

Two clusters may have a node of the same name. The first that sends has the name; nodes of the others are called after
their cluster as well (`n7@beta`), so that nothing of the two is mixed.
"""

import asyncio
import contextlib
import logging
import math
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from msgspec import Struct

from oarlock.measure.collect.collector import CLOCK_SECONDS
from oarlock.measure.live import LiveUsage
from oarlock.measure.posting.envelope import AgentNotice, NotedJob
from oarlock.model.errors import Conflict, OarlockError, TooManyAtOnce
from oarlock.node.measure.wire import UnreadableSample, read_head, renumber
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.job import agent_jobs, listing
from oarlock.store.queries.job.agent_jobs import DescribedJob

log = logging.getLogger(__name__)

T = TypeVar("T")

GONE_SECONDS = 60.0
"""A job that its nodes do not send any more is over after so long."""

SILENT_SECONDS = 3600.0
"""A job that one of its nodes does not send any more is over after so long, while others send nothing at all."""

RECONNECT_SECONDS = 300.0
"""For so long after its start a server takes no node for silent: nobody could send while there was none."""

SWEEP_SECONDS = 30.0
OLDEST_SECONDS = 7 * 86_400.0
"""Samples that waited at their agent for longer count as that old. A job whose nodes are all silent is over then."""

RETRY_SECONDS = 5
_OWN_NODE_SECONDS = 60.0
_PROVEN_SECONDS = 600.0  # for so long a node that sent with a token is believed with a token alone
_MOST_JOBS = 10_000  # of one node
_AT_ONCE = 16  # frames


class QueueFull(TooManyAtOnce):
    """Samples that would not fit into the collector's queue."""

    retry_seconds = RETRY_SECONDS

    def __init__(self) -> None:
        super().__init__(
            "The collector is behind: its queue has no room for these samples.",
            hint=f"Send them again in {RETRY_SECONDS} s.",
        )


class UnreadableFrames(Conflict):
    """Frames that build on something that this server does not have, since it was restarted, or that lie."""

    def __init__(self, node: str, why: str) -> None:
        super().__init__(
            f"A sample of {node} cannot be read: {why}.",
            hint="Send it again behind all tables of names and a fresh notice of all jobs.",
        )


class SampleQueue(Protocol):
    """The collector, as far as samples are handed to it."""

    def has_room(self, size: int) -> bool: ...
    def put(
        self, node: str, data: bytes, expected: Set[int], *, at: float, posted: bool = False, cluster: str = ""
    ) -> None: ...
    def mark_missing(self, node: str, jobs: Set[int], *, since: float, until: float, why: str) -> None: ...


class WallClock(Protocol):
    """A clock that shows epoch seconds."""

    def now(self) -> float: ...


class ReceiverServices(Protocol):
    """What the receiver needs of its server."""

    @property
    def live(self) -> LiveUsage: ...
    @property
    def collector(self) -> SampleQueue: ...
    @property
    def clock(self) -> WallClock: ...

    async def write(self, change: Callable[[Tx], T]) -> T: ...
    async def read(self, question: Callable[[Tx], T]) -> T: ...


class TakenSamples(Struct, frozen=True):
    """How many samples were taken, and how many of them had come before."""

    taken: int
    repeated: int


@dataclass(slots=True)
class _Node:
    """What is known of a node that sends: the jobs behind its numbers, and its last sample."""

    cluster: str
    proven: bool = True  # by a token
    numbers: dict[int, int] = field(default_factory=dict)
    noted: dict[int, NotedJob] = field(default_factory=dict)
    at: float = 0.0
    boot: bytes = b""
    sequence: int = 0


class AgentReceiver:
    """Takes what agents send. For the event loop."""

    def __init__(
        self, services: ReceiverServices, *, gone_seconds: float = GONE_SECONDS, silent_seconds: float = SILENT_SECONDS,
        sweep_seconds: float = SWEEP_SECONDS,
    ) -> None:  # fmt: skip
        self._services = services
        self._gone, self._silent, self._pause = gone_seconds, silent_seconds, sweep_seconds
        self._nodes: dict[str, _Node] = {}
        self._seen: dict[int, float] = {}  # jobs that are not over, and when a sample that had them came last
        self._sampled: dict[int, float] = {}  # ... and when it was taken
        self._began = services.clock.now()
        self._where: dict[int, set[str]] = {}  # the nodes of each
        self._checked: dict[str, float] = {}  # until when a node is known to be none of our own
        self._clusters: dict[str, str] = {}  # by name of a node: the cluster that has the name
        self._task: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Go on with the jobs that were not over when the last server ended."""
        self._began = self._services.clock.now()
        self._clusters = await self._services.read(agent_jobs.clusters_of_nodes)
        for job in await self._services.read(agent_jobs.not_over):
            self._seen[job.number] = float(job.last_seen)
            self._where[job.number] = set(job.nodes)
        if self._seen:
            self._start()

    async def close(self) -> None:
        """Stop looking for jobs that are over."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def take(
        self,
        name: str,
        cluster: str,
        frames: Sequence[bytes | AgentNotice],
        *,
        proven: bool = True,
        sent: float | None = None,
    ) -> TakenSamples:
        """Take frames of a node, in their order: those of one POST or, if it is not `proven` by a token, of Colmet.

        `sent`: when they were, by the clock of the agent. Samples may have waited there for long.
        """
        if not self._services.collector.has_room(sum(len(frame) for frame in frames if isinstance(frame, bytes))):
            raise QueueFull
        await self._refuse_own(name)
        name = await self._kept_name(name, cluster)
        node = self._nodes.setdefault(name, _Node(cluster, proven))
        if not proven and node.proven and self._services.clock.now() - node.at < _PROVEN_SECONDS:
            raise Conflict(f"An agent sends for {name}.", hint="Stop Colmet there: one of the two is enough.")
        if node.proven != proven:
            node = self._nodes[name] = _Node(cluster, proven)
        taken = repeated = 0
        for place, frame in enumerate(frames):
            if place % _AT_ONCE == _AT_ONCE - 1:
                await asyncio.sleep(0)  # a node that was cut off for long sends hundreds: others want to be served
            if isinstance(frame, AgentNotice):
                await self._note(name, node, frame, _clock_ahead(sent, self._services.clock.now()))
            elif self._take_sample(name, node, frame, sent):
                taken += bool(read_head(frame).sequence)
            else:
                repeated += 1
        self._start()
        return TakenSamples(taken, repeated)

    async def _refuse_own(self, name: str) -> None:
        now = self._services.clock.now()
        if self._checked.get(name, 0.0) > now:
            return
        if name in await self._services.read(lambda tx: listing.at_nodes(tx, [name])):
            raise Conflict(
                f"{name} is a node of this cluster: the server measures it by itself.",
                hint="Agents are for the nodes of other resource managers.",
            )
        self._checked[name] = now + _OWN_NODE_SECONDS

    async def _kept_name(self, name: str, cluster: str) -> str:
        """Return what a node is called here: by its own name, or after its cluster if another one has that name."""
        has_it = self._clusters.get(name)
        if has_it is None:
            has_it = await self._services.write(lambda tx: agent_jobs.claim_node(tx, name, cluster))
            self._clusters[name] = has_it
            if has_it != cluster:
                log.info("another cluster has a node of this name", extra={"node": name, "cluster": cluster})
        return name if has_it == cluster else f"{name}@{cluster}"

    async def _note(self, name: str, node: _Node, notice: AgentNotice, ahead: float) -> None:
        """Learn which jobs the numbers of a node stand for, and mark what the agent dropped, by its clock."""
        if notice.fresh:
            node.numbers, node.noted = {}, {}
        new = [job for job in notice.jobs if node.noted.get(job.number) != job]
        if len(node.noted) + len(new) > _MOST_JOBS:
            raise UnreadableFrames(name, f"it holds more than {_MOST_JOBS} jobs")
        if new:
            await self._register(name, node, new)
        if notice.period is not None:
            self._services.live.describe_agent(name, node.cluster, notice.period)
        for gap in notice.gaps:
            jobs = {node.numbers[number] for number in gap.jobs if number in node.numbers}
            since, until = gap.since - ahead, gap.until - ahead
            self._services.collector.mark_missing(name, jobs, since=since, until=until, why=gap.why)

    async def _register(self, name: str, node: _Node, new: Sequence[NotedJob]) -> None:
        now = int(self._services.clock.now())
        described = [DescribedJob(job.job, job.manager, job.user, job.uid, job.account, job.name) for job in new]
        numbers = await self._services.write(
            lambda tx: agent_jobs.register(tx, node.cluster, described, node=name, now=now)
        )
        for job in new:
            number = node.numbers[job.number] = numbers[job.job]
            node.noted[job.number] = job
            if number not in self._seen:
                log.info("job of an agent", extra={"job": job.job, "cluster": node.cluster, "node": name,
                                                   "user": job.user, "number": number})  # fmt: skip
            self._seen.setdefault(number, float(now))
            self._where.setdefault(number, set()).add(name)

    def _take_sample(self, name: str, node: _Node, frame: bytes, sent: float | None) -> bool:
        """Hand a sample over; return False if it came before."""
        now = self._services.clock.now()
        try:
            head = read_head(frame)
            if any(head.boot) and head.boot == node.boot and head.sequence <= node.sequence:
                return False
            data, jobs = renumber(frame, node.numbers)
        except UnreadableSample as error:
            raise UnreadableFrames(name, str(error)) from None
        expected = frozenset(jobs)
        at = now - _age(head.at, sent)
        # Before it is decoded here: the collector may first have to learn the tables that the frame builds on.
        self._services.collector.put(name, data, expected, at=at, posted=True, cluster=node.cluster)
        live = self._services.live
        if not (live.take(name, data, expected, at=now) if head.sequence else live.take_tables(name, data)):
            raise UnreadableFrames(name, "its tables of names or its values do not fit")
        if head.sequence:
            node.boot, node.sequence, node.at = head.boot, head.sequence, now
            self._seen.update(dict.fromkeys(expected, now))
            self._sampled.update(dict.fromkeys(expected, at))
        return True

    # The ends of jobs.

    def _start(self) -> None:
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._sweep_for_ever())

    async def _sweep_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self._pause)
            with contextlib.suppress(OarlockError):  # the database accepts nothing now: at the next turn
                await self.sweep()

    async def sweep(self) -> None:
        """Note when jobs were seen last, and end those that are gone."""
        now = self._services.clock.now()
        seen = {number: int(self._sampled.get(number, at)) for number, at in self._seen.items()}
        ended = {number: seen[number] for number, at in self._seen.items() if self._is_over(number, at, now)}
        await self._services.write(lambda tx: agent_jobs.note_seen(tx, seen, ended))
        for number in ended:
            del self._seen[number]
            self._sampled.pop(number, None)
            self._where.pop(number, None)
            self._forget(number)
            log.info("job of an agent is over", extra={"number": number})

    def _forget(self, number: int) -> None:
        """Forget the numbers that stood for a job: if one comes again, it is another job."""
        for node in self._nodes.values():
            for wire in [wire for wire, ours in node.numbers.items() if ours == number]:
                del node.numbers[wire], node.noted[wire]

    def _is_over(self, number: int, at: float, now: float) -> bool:
        nodes = [self._nodes.get(name) for name in self._where.get(number, ())]
        without_it = [node is not None and node.at > at for node in nodes]
        if all(without_it):
            return now - at > self._gone
        patience = self._silent if any(without_it) else OLDEST_SECONDS
        return now - at > patience and now - self._began > RECONNECT_SECONDS


def _age(at: float, sent: float | None) -> float:
    """Return for how long a sample waited at its agent; both instants are by the agent's clock, right or wrong."""
    waited = 0.0 if sent is None else sent - at
    return min(max(waited, 0.0), OLDEST_SECONDS) if math.isfinite(waited) else 0.0


def _clock_ahead(sent: float | None, now: float) -> float:
    """Return by how much the clock of an agent is wrong; 0 if it can be believed."""
    ahead = 0.0 if sent is None else sent - now
    return ahead if CLOCK_SECONDS < abs(ahead) <= OLDEST_SECONDS else 0.0
