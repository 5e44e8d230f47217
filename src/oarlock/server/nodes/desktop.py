"""A client of a desktop, which connects by itself and belongs to somebody else: nothing it says is believed unseen.

A node of the site can say what programs of the site did, which jobs of a lost database it has seen, and which users
are on it. A desktop can say what became of its own attempts, in terms that do no harm to jobs elsewhere.
"""

import asyncio
import logging
import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import msgspec

from oarlock.job.run.reports import BadReport, Exited, Hello, NodeReachable, NodeReport, Started
from oarlock.model.errors import DesktopConnected, NodeRefused, NodeUnreachable
from oarlock.model.event import EventType
from oarlock.model.job import UnknownAttempt
from oarlock.node.wire.channel import BadFrame, Body
from oarlock.node.wire.messages import (
    BAD,
    CLEANED,
    EXITED,
    FAILED,
    KILLED,
    LOST,
    NOT_NOW,
    REBOOTED,
    SEEN,
    SHA256,
    TAKEN,
    UNKNOWN,
    WALLTIME,
    NodeSettings,
    Report,
)
from oarlock.server.nodes.channel import NodeChannel
from oarlock.server.nodes.command import NodeCommand
from oarlock.server.nodes.connection_slots import ConnectionSlots, Timeouts
from oarlock.server.nodes.node import DESKTOP_AWAY, NodeClient
from oarlock.server.nodes.processes import NodeProcess

log = logging.getLogger(__name__)

T = EventType
_OWN_EVENTS = frozenset({
    T.CPUSET_ERROR, T.CPUSET_CLEAN_ERROR, T.CANNOT_CREATE_TMP_DIRECTORY, T.CAN_NOT_WRITE_NODE_FILE,
    T.CAN_NOT_WRITE_PID_FILE, T.WORKING_DIRECTORY, T.OUTPUT_FILES, T.USER_SHELL, T.EXIT_VALUE_OAREXEC,
    T.STAGE_IN_ERROR, T.STAGE_OUT_ERROR, T.WALLTIME, T.CHECKPOINT_SUCCESS, T.OUT_OF_MEMORY, T.SUSPEND_ERROR,
    T.RESUME_ERROR, T.CANNOT_NOTIFY_OARSUB,
})  # fmt: skip
"""What can happen to a job on a desktop; the others speak of programs of the site, or of a user's jobs everywhere."""

_WORDS = frozenset({SEEN, TAKEN, REBOOTED, UNKNOWN, NOT_NOW, BAD, *_OWN_EVENTS})
_OUTCOMES = frozenset({EXITED, KILLED, WALLTIME, FAILED, CLEANED, LOST})
_LONGEST_TEXT = 1000
_MOST_EVENTS, _MOST_COUNTERS, _MOST_UNKNOWN = 50, 200, 1000
_LAST_INSTANT = 2**33
_HIGHEST = 2**31 - 1
_MOST_BYTES = 2**50


class DesktopClient(NodeClient):
    """One desktop: its requests are those of any node, but the connection is the desktop's to make."""

    def __init__(
        self,
        settings: NodeSettings,
        on_event: Callable[[NodeReport], None],
        slots: ConnectionSlots,
        timeouts: Timeouts,
    ) -> None:
        super().__init__(settings, NodeCommand((), quoted=False), self._receive, slots, timeouts)
        self._pass_on = on_event
        self._forgotten = asyncio.Event()

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection."""
        return self._channel is not None and not self._channel.ended.is_set()

    async def until_idle(self) -> None:
        """Wait until the end of every attempt there is written down."""
        while self._secrets:
            self._forgotten.clear()
            await self._forgotten.wait()

    async def forget(self, keys: Iterable[tuple[int, int]]) -> None:
        """Delete attempts from the desktop whose end is on disk here."""
        try:
            await super().forget(keys)
        finally:
            self._forgotten.set()

    async def accept(self, process: NodeProcess) -> NodeChannel:
        """Use the connection that the desktop made; refuse a second one as long as the first is answered."""
        async with self._opening:
            if self._channel is not None and await self._is_answered(self._channel):
                raise DesktopConnected(self.name)
            await self._lose(self._channel)
            await self._slots.acquire(self)
            try:
                channel, hello = await NodeChannel.accept(
                    self._settings, process, self._on_frame, self._take_client, seconds=self._timeouts.connect
                )
            except BaseException:
                self._slots.leave(self)
                self._slots.release()
                raise
            try:
                await self._use(channel, _checked_hello(self.name, hello))
            except (BadFrame, NodeUnreachable, KeyError, TypeError, ValueError) as error:
                await self._drop(str(error))
                raise NodeUnreachable(self.name, f"it sent {error}") from error
            return channel

    async def _is_answered(self, channel: NodeChannel) -> bool:
        try:
            await channel.ask("ping", seconds=self._timeouts.pong)
        except NodeUnreachable:
            return False
        return True

    async def disconnect(self, why: str, channel: NodeChannel | None = None) -> None:
        """Close the connection, or this one if it is still in use; the desktop's jobs go on."""
        if self._channel is not None and channel in {None, self._channel}:
            await self._channel.close(why)

    async def _connect(self, *, patient: bool = False) -> NodeChannel:  # noqa: ARG002
        raise NodeUnreachable(self.name, DESKTOP_AWAY)

    async def _ask(self, verb: str, body: Body | bytes | None = None, *, seconds: float | None = None) -> Body:
        try:
            return await super()._ask(verb, body, seconds=seconds)
        except NodeRefused as refused:
            if refused.word in _WORDS:
                raise
            raise NodeRefused(self.name, T.USER_SHELL, refused.says[:_LONGEST_TEXT]) from refused

    def _receive(self, event: NodeReport) -> None:
        match event:
            case NodeReachable():
                event = replace(event, unknown=_checked_unknown(event.unknown), is_desktop=True)
            case Started():
                event = replace(event, at=event.at if _is_instant(event.at) else None)
            case Exited():
                event = (
                    replace(event, report=_checked_report(event.report))
                    if _is_report(event.report)
                    else (BadReport(self.name, event.report.job, event.report.attempt, "it makes no sense"))
                )
        self._pass_on(event)
        if isinstance(event, BadReport):
            raise BadFrame("a report that is not one of its own")  # ends the connection: each is an event


def _is_number(value: Any, least: float, most: float) -> bool:
    return isinstance(value, int | float) and math.isfinite(value) and least <= value <= most


def _is_instant(value: Any) -> bool:
    return value is None or _is_number(value, 0, _LAST_INSTANT)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_report(report: Report) -> bool:
    """Return whether all fields of a report are of their kinds and within bounds."""
    return (
        report.outcome in _OUTCOMES
        and (report.status is None or (type(report.status) is int and 0 <= report.status < 1 << 16))
        and all(map(_is_instant, (report.started, report.ended, report.ran, report.suspended)))
        and all(map(_is_text, (report.event, report.says, report.boot)))
        and len(report.events) <= _MOST_EVENTS
        and isinstance(report.counters, dict)
        and len(report.counters) <= _MOST_COUNTERS
        and all(_is_text(name) and _is_number(value, 0, 2**62) for name, value in report.counters.items())
        and type(report.stage_out_size) is int
        and 0 <= report.stage_out_size <= _MOST_BYTES
        and (report.stage_out == "" or (_is_text(report.stage_out) and bool(SHA256.fullmatch(report.stage_out))))
    )


def _checked_report(report: Report) -> Report:
    """Return a report without what a desktop cannot know."""
    events = tuple((_own_event(name), says[:_LONGEST_TEXT]) for name, says in report.events)
    event = _own_event(report.event) if report.event or report.outcome == FAILED else ""
    return report._replace(event=event, says=report.says[:_LONGEST_TEXT], events=events, causes={})


def _own_event(name: str) -> str:
    return name if name in _OWN_EVENTS else T.USER_SHELL.value


def _checked_hello(node: str, hello: Hello) -> Hello:
    """Return a hello without a word on programs of the site and other databases; raise `BadFrame` if it is absurd."""
    sizes = (hello.memory, hello.processes, hello.cpus, hello.uid)
    if not (_is_instant(hello.now) and all(_is_number(size, 0, _MOST_BYTES) for size in sizes)):
        raise BadFrame("a hello that makes no sense")
    log.info("desktop connected", extra={"node": node, "cpus": hello.cpus, "python": hello.python[:40]})
    return replace(hello, boot=hello.boot[:64], unusable={}, instance="", highest_job=0)


def _checked_unknown(unknown: Iterable[UnknownAttempt]) -> tuple[UnknownAttempt, ...]:
    """Return the unknown attempts without what would begin a generation, or hold resources elsewhere."""
    bounded = [
        msgspec.structs.replace(attempt, generation="", resources=(), since=0, walltime=0, tag=attempt.tag[:64])
        for attempt in unknown
        if 0 < attempt.job <= _HIGHEST and 0 < attempt.attempt <= _HIGHEST
    ]
    return tuple(bounded[:_MOST_UNKNOWN])
