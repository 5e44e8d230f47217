"""Recording of jobs for `oarmonitor`: a task for each job, for as long as somebody asks for it and the job runs."""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeVar

from oarlock.config import Config
from oarlock.job import monitoring
from oarlock.job.monitoring import MonitoringStatus, RecordingTarget
from oarlock.measure.live import LiveUsage
from oarlock.model.errors import MonitoringRefused, NodeRefused, NodeUnreachable, OarlockError
from oarlock.server.nodes.node import NodeClient
from oarlock.server.process.clock import Clock
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.usage import monitoring as samples
from oarlock.store.queries.usage.monitoring import MonitoredValue

log = logging.getLogger(__name__)

T = TypeVar("T")

_MOST = 100  # jobs that are recorded at the same time
_SHORTEST_LEASE = 60.0
"""Seconds without a word from the command after which a recording ends; at least three periods."""


class _Server(Protocol):
    """What a recording needs of the server."""

    @property
    def config(self) -> Config: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def live(self) -> LiveUsage: ...
    async def write(self, change: Callable[[Tx], T]) -> T: ...
    async def read(self, question: Callable[[Tx], T]) -> T: ...


@dataclass(eq=False)
class _Recording:
    """The recording of one job. `asked_at`: when somebody asked for it last, by the steady clock."""

    job_id: int
    period: int
    asked_at: float
    state: str
    values: int = 0
    nodes: set[str] = field(default_factory=set)
    problems: dict[str, str] = field(default_factory=dict)
    task: "asyncio.Task[None] | None" = None

    @property
    def lease(self) -> float:
        """How long it goes on without anybody who asks."""
        return max(_SHORTEST_LEASE, 3.0 * self.period)


class MonitoringService:
    """The recordings under way, in memory: after a restart of the server the command asks for its own again."""

    def __init__(self, server: _Server, node: Callable[[str], NodeClient]) -> None:
        self._server, self._node = server, node
        self._recordings: dict[int, _Recording] = {}

    async def begin(self, job_id: int, period: int) -> MonitoringStatus:
        """Record a job every so many seconds; one that is recorded already, from now on with this period."""
        target = await self._target(job_id)
        config = self._server.config
        monitoring.check_recordable(
            target, job_id, sample_period=config.sample_period, sensor=config.oarmonitor_sensor_file is not None
        )
        recording = self._recordings.get(job_id)
        if recording is None:
            if len(self._recordings) >= _MOST:
                raise MonitoringRefused(f"{_MOST} jobs are being recorded.", hint="End one of these recordings first.")
            recording = self._recordings[job_id] = _Recording(job_id, period, self._server.clock.steady(), target.state)
            recording.task = asyncio.create_task(self._record(recording))
        recording.period, recording.asked_at = period, self._server.clock.steady()
        return await self.status(job_id)

    async def stop(self, job_id: int) -> MonitoringStatus:
        """End the recording of a job, if there is one."""
        if recording := self._recordings.pop(job_id, None):
            await _cancelled(recording)
        return await self.status(job_id)

    async def status(self, job_id: int) -> MonitoringStatus:
        """Return how far the recording of a job is; that somebody asks keeps it going."""
        period = self._server.config.sample_period
        recording = self._recordings.get(job_id)
        if recording is not None:
            recording.asked_at = self._server.clock.steady()
            return MonitoringStatus(
                job_id=job_id, state=recording.state, runs=True, recording=True, period=recording.period,
                sample_period=period, values=recording.values, nodes=len(recording.nodes),
                problems=dict(recording.problems),
            )  # fmt: skip
        target, extent = await self._server.read(
            lambda tx: (monitoring.find_target(tx, job_id), samples.extent(tx, job_id))
        )
        return MonitoringStatus(
            job_id=job_id, state=target.state, runs=target.state in monitoring.RECORDABLE, recording=False,
            sample_period=period, values=extent.values, nodes=extent.nodes,
        )  # fmt: skip

    async def close(self) -> None:
        """End all recordings."""
        recordings, self._recordings = list(self._recordings.values()), {}
        for recording in recordings:
            await _cancelled(recording)

    async def _target(self, job_id: int) -> RecordingTarget:
        return await self._server.read(lambda tx: monitoring.find_target(tx, job_id))

    async def _record(self, recording: _Recording) -> None:
        try:
            while self._server.clock.steady() - recording.asked_at <= recording.lease:
                begun = self._server.clock.steady()
                try:
                    if not await self._look(recording):
                        return
                except OarlockError as error:  # a database that accepts nothing now may do so the next time
                    log.warning("a job was not recorded", extra={"job": recording.job_id, "why": str(error)})
                await asyncio.sleep(max(0.0, begun + recording.period - self._server.clock.steady()))
        finally:
            if self._recordings.get(recording.job_id) is recording:
                del self._recordings[recording.job_id]

    async def _look(self, recording: _Recording) -> bool:
        """Store what is known of a job now; return whether it still runs."""
        target = await self._target(recording.job_id)
        recording.state = target.state
        if target.state not in monitoring.RECORDABLE:
            return False
        job_id, now = recording.job_id, self._server.clock.now()
        values = [
            value
            for node, at, measured in self._server.live.readings(job_id)
            for value in monitoring.measured_values(job_id, node, at, measured)
        ]
        sensor = self._server.config.oarmonitor_sensor_file
        if sensor is not None:
            values += await self._sense(recording, target, sensor, now)
        recording.values += await self._server.write(lambda tx: samples.add(tx, values))
        recording.nodes.update(value.node for value in values)
        return True

    async def _sense(
        self, recording: _Recording, target: RecordingTarget, sensor: Path, now: float
    ) -> list[MonitoredValue]:
        """Run the site's sensor on the nodes of a job; what is wrong there is shown by the command."""

        async def sense(node: str) -> list[MonitoredValue]:
            recording.problems.pop(node, None)
            try:
                text, problem = await self._node(node).sense(str(sensor), recording.job_id, target.cpuset)
            except (NodeRefused, NodeUnreachable) as error:
                text, problem = "", str(error)
            if problem:
                recording.problems[node] = problem
            return list(monitoring.sensed_values(recording.job_id, node, now, text))

        sensed = await asyncio.gather(*map(sense, target.nodes))
        return [value for values in sensed for value in values]


async def _cancelled(recording: _Recording) -> None:
    if recording.task is not None:
        recording.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await recording.task
