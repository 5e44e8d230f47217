"""A client of one node: requests to send, events to receive.

The connection is opened on demand and closed when no report is expected any more. While reports are expected it is
opened again after every loss, with exponential back-off; what happened meanwhile is then read from the node.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

from oarlock.job.run.reports import (
    AttemptMissing,
    BadReport,
    Checkpointed,
    ConnectionLost,
    Exited,
    Hello,
    NodeReachable,
    NodeReport,
    Started,
    UnknownEnded,
)
from oarlock.model.errors import NodeRefused, NodeUnreachable, OarlockError
from oarlock.model.event import EventType
from oarlock.model.job import UnknownAttempt
from oarlock.node.attempt import sensor
from oarlock.node.attempt.user import output
from oarlock.node.attempt.user.notice import SECONDS, Notice
from oarlock.node.attempt.user.output import OutputRequest
from oarlock.node.wire.channel import Body
from oarlock.node.wire.messages import GENERATED, SEEN, Launch, NodeSettings, fingerprint, verify_report
from oarlock.server.nodes import file_transfer
from oarlock.server.nodes.channel import NodeChannel, OnClient
from oarlock.server.nodes.client_on_node import ClientOnNode
from oarlock.server.nodes.command import NodeCommand
from oarlock.server.nodes.connection_slots import ConnectionSlots, Need, Timeouts
from oarlock.server.nodes.node_messages import Key, key_of, public_key, unknown_attempt
from oarlock.web.concurrency import KeyedLocks

log = logging.getLogger(__name__)

DESKTOP_AWAY = "it is a desktop and has not connected"

_SESSION_SECONDS = 70.0  # a home directory that hangs is noticed on the node after a minute


class NodeSession:
    """A session on a node, over the channel by which it was opened or joined."""

    def __init__(self, channel: NodeChannel, stream: int, received: int) -> None:
        self._channel, self._stream, self.received = channel, stream, received
        self.lost = channel.ended

    @property
    def why(self) -> str:
        """Why the channel ended, if it did."""
        return self._channel.why

    def send(self, frame: bytes) -> None:
        """Send a frame of the client."""
        self._channel.send_raw(self._stream, frame)

    def leave(self) -> None:
        """Drop what still comes from the session."""
        self._channel.remove_stream(self._stream)


class NodeClient:
    """One compute node. `on_event` is called on the event loop and must not block."""

    def __init__(
        self,
        settings: NodeSettings,
        command: NodeCommand,
        on_event: Callable[[NodeReport], None],
        slots: ConnectionSlots,
        timeouts: Timeouts,
    ) -> None:
        self.name = settings.node
        self._settings, self._command, self._on_event, self._slots, self._timeouts = (
            settings,
            command,
            on_event,
            slots,
            timeouts,
        )
        self._channel: NodeChannel | None = None
        self._hello: Hello | None = None
        self._secrets: dict[Key, str] = {}  # attempts whose report is awaited
        self._passed_on: set[Key] = set()  # ... and was passed on already
        self._unknown: dict[Key, str] = {}  # attempts on the node that this server did not start, with their tags
        self._opening = asyncio.Lock()
        self._files = KeyedLocks()  # one for each file that is on its way
        self._keeper: asyncio.Task[None] | None = None
        self._used = time.monotonic()
        self._keep_until = 0.0  # until then an idle connection is not closed
        self._retry_at, self._failed = 0.0, ""
        self._was_left = False  # with jobs on it, for another node
        self.is_measured_idle = False
        """Whether it stays connected without jobs, to be measured."""
        self._warned = self._warned_of_devices = False
        self.on_samples: Callable[[bytes], None] = lambda _data: None
        self.on_client: OnClient = lambda client: client.end()
        self.private_key: Callable[[str], Awaitable[str | None]] = _no_key
        self.is_desktop: Callable[[], Awaitable[bool]] = _never

    # Requests.

    async def hello(self) -> Hello:
        """Connect and return the node's hello; its boot id goes into every launch."""
        await self._open()
        if self._hello is None:
            raise NodeUnreachable(self.name, "it sent no hello")
        return self._hello

    async def launch(self, launch: Launch) -> None:
        """Start an attempt; `Started` and `Exited` follow as events.

        `NodeRefused`: nothing was started by this call. `NodeUnreachable` with `sent`: not known; the attempt stays
        expected, and the node tells when it is back.
        """
        key = launch.job, launch.attempt
        self._warn_of_open_devices(launch)
        self._secrets[key] = launch.secret
        self._keep(after=self._timeouts.first_retry)
        try:
            if launch.key not in {"", GENERATED}:
                await self._bring_key(launch)
            await self._ask("launch", launch.request())
        except OarlockError as error:
            # Seen before or perhaps on its way: its report may still come.
            already_seen = isinstance(error, NodeRefused) and error.word == SEEN
            if not already_seen and not (isinstance(error, NodeUnreachable) and error.sent):
                self._secrets.pop(key, None)
            raise

    async def _bring_key(self, launch: Launch) -> None:
        """Send the key that the user brought, apart from the launch, which the node writes into its spool."""
        text = await self.private_key(launch.key)
        if text is None:
            says = f"the key of job {launch.job} is gone; submit it again with the key"
            raise NodeRefused(self.name, EventType.JOB_KEY_LOST.value, says)
        about = {"job": launch.job, "attempt": launch.attempt, "boot": launch.boot, "secret": launch.secret}
        await self._ask("key", {**about, "generation": launch.generation, "text": text})

    def expect(self, job: int, attempt: int, secret: str) -> None:
        """Expect the report of an attempt found in the database after a restart; it may be on the node already."""
        self._secrets[job, attempt] = secret
        self._keep(after=0.0)

    async def kill(self, job: int, attempt: int, *, grace: int | None = None) -> None:
        """Kill a job: TERM now, KILL to all of it after the grace (the launch's own if `None`)."""
        await self._attempt("kill", job, attempt, {} if grace is None else {"grace": grace})

    async def signal(self, job: int, attempt: int, number: int) -> None:
        """Send a signal to the job's program."""
        await self._attempt("signal", job, attempt, {"signal": number})

    async def checkpoint(self, job: int, attempt: int) -> None:
        """Send the checkpoint signal now."""
        await self._attempt("checkpoint", job, attempt)

    async def suspend(self, job: int, attempt: int) -> None:
        """Suspend a job; its walltime stands still."""
        await self._attempt("suspend", job, attempt, more_seconds=self._timeouts.program)

    async def resume(self, job: int, attempt: int) -> None:
        """Resume a suspended job."""
        await self._attempt("resume", job, attempt, more_seconds=self._timeouts.program)

    async def walltime(self, job: int, attempt: int, seconds: int) -> None:
        """Set the walltime of a running job, counted from its start."""
        await self._attempt("walltime", job, attempt, {"seconds": seconds})

    async def end(self, job: int, attempt: int) -> None:
        """Release the place of a job on another node than its first."""
        await self._attempt("end", job, attempt)

    async def notify(self, notice: Notice) -> str:
        """Run a user's program on the node; return what went wrong, or an empty text."""
        return str((await self._ask("notify", notice.body(), seconds=SECONDS + self._timeouts.answer))["says"])

    async def show_output(self, request: OutputRequest) -> tuple[str, int, str]:
        """Read the end of a file as its user; return it, the size of the file, and what went wrong."""
        answer = await self._ask("output", request.body(), seconds=output.SECONDS + 1 + self._timeouts.answer)
        return str(answer.get("out", "")), int(answer.get("size", 0)), str(answer.get("says", ""))

    async def sense(self, path: str, job: int, cpuset: str, *, seconds: int = sensor.SECONDS) -> tuple[str, str]:
        """Run the site's sensor on the node; return what it printed, and what went wrong."""
        request = sensor.SensorRequest(path, job, cpuset, seconds)._asdict()
        answer = await self._ask("sense", request, seconds=seconds + self._timeouts.answer)
        return str(answer.get("out", "")), str(answer.get("says", ""))

    async def session(
        self, verb: str, job: int, attempt: int, body: Body, on_frame: Callable[[bytes], None]
    ) -> "NodeSession":
        """Open (`session-open`) or join (`session-join`) a session of an attempt; its frames go to `on_frame`."""
        channel = await self._open()
        self._note_use()
        stream = channel.add_stream(on_frame)
        about = {"job": job, "attempt": attempt, "tag": self._tag(job, attempt), "stream": stream, **body}
        try:
            answer = await channel.ask(verb, about, seconds=_SESSION_SECONDS)
        except BaseException:
            channel.remove_stream(stream)
            raise
        return NodeSession(channel, stream, int(answer.get("received", 0)))

    async def hang_up(self, job: int, attempt: int, session: str) -> None:
        """Hang up a session whose client is gone."""
        await self._attempt("session-hangup", job, attempt, {"session": session})

    async def put_file(self, path: Path, size: int) -> None:
        """Bring a file that is named by its content to the node, unless it is there; once for all who want it."""
        async with self._files.of(path.name):
            channel = await self._open()
            self._note_use()
            await file_transfer.send(channel, path, size)

    async def fetch_file(self, job: int, attempt: int, size: int, write: Callable[[bytes], Awaitable[None]]) -> None:
        """Fetch the archive with what a job wrote, of so many bytes; each piece goes to `write`."""
        channel = await self._open()
        self._used = time.monotonic()
        about = {"job": job, "attempt": attempt, "tag": self._tag(job, attempt)}
        await file_transfer.receive(channel, about, size, write)

    async def forget(self, keys: Iterable[Key]) -> None:
        """Delete attempts from the node whose end is on disk here."""
        forgotten = list(keys)
        for key in forgotten:
            self._secrets.pop(key, None)
            self._passed_on.discard(key)
        await self._ask("forget", {"attempts": [list(key) for key in forgotten]})

    async def discard(self, job: int, attempt: int, tag: str) -> None:
        """Delete an attempt from the node that is over and that this server did not start."""
        await self._attempt("discard", job, attempt, {"tag": tag})
        self._unknown.pop((job, attempt), None)

    async def end_unknown(self, job: int, attempt: int, tag: str) -> None:
        """Kill an attempt that this server did not start; `UnknownEnded` follows."""
        await self._attempt("end-unknown", job, attempt, {"tag": tag})

    async def measure(self, change: Body) -> None:
        """Have the node measure otherwise for a while (`MeasureChange`), or with `reset` as usual again."""
        await self._ask("measure", change)
        # A node without jobs stays connected for as long: when the program ends, so does the change.
        self._keep_until = time.monotonic() + (change.get("seconds") or 0.0)

    @property
    def expected(self) -> dict[int, int]:
        """The jobs that are on this node, as far as is known here, with the number of their attempt."""
        return {job: attempt for job, attempt in self._secrets if (job, attempt) not in self._passed_on}

    async def survey(self) -> tuple[str, tuple[UnknownAttempt, ...]]:
        """Return the boot id of the node, and all attempts that are there, whoever began them."""
        attempts = (await self._ask("status"))["attempts"]
        boot = self._hello.boot if self._hello is not None else ""
        return boot, tuple(unknown_attempt(self.name, about) for about in attempts)

    async def ping(self) -> None:
        """Raise `NodeUnreachable` if the node does not answer. Few are asked at a time, however many there are."""
        async with self._slots.pinging:
            await self._ask("ping")

    async def close(self) -> None:
        """Close the connection; the node's jobs go on."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        await self._drop("the server left")

    # The connection.

    async def _attempt(
        self, verb: str, job: int, attempt: int, more: Body | None = None, *, more_seconds: float = 0.0
    ) -> None:
        about = {"job": job, "attempt": attempt, "tag": self._tag(job, attempt), **(more or {})}
        await self._ask(verb, about, seconds=self._timeouts.answer + more_seconds)

    def _tag(self, job: int, attempt: int) -> str:
        """Return what keeps another server's attempt of the same number from being taken for ours."""
        secret = self._secrets.get((job, attempt))
        return "" if secret is None else fingerprint(secret)

    async def _ask(self, verb: str, body: Body | bytes | None = None, *, seconds: float | None = None) -> Body:
        channel = await self._open()
        self._note_use()
        return await channel.ask(verb, body, seconds=seconds or self._timeouts.answer)

    def _note_use(self) -> None:
        self._used = time.monotonic()
        self._slots.note_use(self)

    async def stay(self) -> None:
        """Connect to a node without jobs, to measure it; not if it is connected, or connections are scarce."""
        if self._channel is not None or not self._slots.has_room_for_idle:
            return
        async with self._slots.idle_opening:
            if self._slots.has_room_for_idle:
                await self._open()

    @property
    def need(self) -> Need:
        """What the connection is needed for."""
        if (self._channel is not None and self._channel.is_in_use) or time.monotonic() < self._keep_until:
            return Need.REQUEST
        return Need.REPORTS if self._secrets else Need.NONE

    async def leave(self) -> None:
        """Leave the node: another one needs the connection. What its jobs report meanwhile is read later."""
        self._was_left = bool(self._secrets)
        await self._drop("another node needs the connection")

    async def _open(self, *, patient: bool = False) -> NodeChannel:
        """Return the open channel, or open one. After a failure, callers fail at once until it is time to retry.

        `patient`: nobody waits for it; others have the connections first, if these are scarce.
        """
        if not patient:
            self._slots.hurry(self)
        async with self._opening:
            if self._channel is not None and not self._channel.ended.is_set():
                return self._channel
            if time.monotonic() < self._retry_at:
                raise NodeUnreachable(self.name, self._failed)
            await self._lose(self._channel)
            return await self._connect(patient=patient)

    async def _connect(self, *, patient: bool = False) -> NodeChannel:
        timeouts = self._timeouts
        if await self.is_desktop():  # its name may be that of another machine here
            raise NodeUnreachable(self.name, DESKTOP_AWAY)
        await self._slots.acquire(self, patient=patient)
        try:
            async with self._slots.opening:
                channel, hello = await NodeChannel.open(
                    self._settings, self._command, self._on_frame, self._take_client, seconds=timeouts.connect
                )
        except BaseException as error:
            self._slots.leave(self)
            self._slots.release()
            if isinstance(error, NodeUnreachable):
                self._failed, self._retry_at = error.why, time.monotonic() + timeouts.first_retry
            raise
        await self._use(channel, hello)
        self._slots.opened(self)
        return channel

    async def _use(self, channel: NodeChannel, hello: Hello) -> None:
        """Use a channel that was opened; the caller has taken a slot for it."""
        channel.on_samples = self._take_samples
        self._channel, self._hello = channel, hello
        log.info("node reached", extra={"node": self.name, "cgroups": hello.cgroups})
        self._warn_of_weak_fence(hello)
        await self._catch_up(channel, hello)
        self._keep(after=self._timeouts.first_retry)

    def _take_samples(self, data: bytes) -> None:
        self.on_samples(data)

    def _take_client(self, client: ClientOnNode) -> None:
        self.on_client(client)

    def _warn_of_weak_fence(self, hello: Hello) -> None:
        """Warn once that jobs are not confined on this node."""
        if hello.cgroups == "processes" and not self._warned:
            self._warned = True
            log.warning("no writable cgroups: jobs are process trees", extra={"node": self.name})

    def _warn_of_open_devices(self, launch: Launch) -> None:
        """Warn once that jobs can open each other's GPUs on this node: only CUDA_VISIBLE_DEVICES separates them."""
        missing = self._hello.missing if self._hello is not None else ()
        if launch.limits.deny_devices and "devices" in missing and not self._warned_of_devices:
            self._warned_of_devices = True
            log.warning("devices cannot be denied: jobs can open GPUs of others", extra={"node": self.name})

    async def _lose(self, channel: NodeChannel | None) -> None:
        """Emit one event for a connection that ended by itself, whoever notices first."""
        if channel is not None and self._channel is channel:
            self._on_event(ConnectionLost(self.name, channel.why))
            await self._drop(channel.why)

    async def _drop(self, why: str) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            self._slots.leave(self)
            await channel.close(why)
            self._slots.release()

    async def _catch_up(self, channel: NodeChannel, hello: Hello) -> None:
        """Read what happened on the node while it was not connected."""
        attempts = (await channel.ask("status", seconds=self._timeouts.answer))["attempts"]
        self._passed_on.clear()
        ours = [about for about in attempts if self._is_ours(about)]
        unknown = [unknown_attempt(self.name, about) for about in attempts if not self._is_ours(about)]
        self._unknown = {(attempt.job, attempt.attempt): attempt.tag for attempt in unknown if attempt.alive}
        self._on_event(NodeReachable(self.name, hello, tuple(unknown)))
        reported: set[Key] = set()
        for about in ours:
            key = key_of(about)
            reported.add(key)
            if "report" in about:
                self._reported(about["report"])
            elif about.get("started"):
                self._on_event(Started(self.name, *key, about["started"], public_key(about)))
        for key in set(self._secrets) - reported:
            self._on_event(AttemptMissing(self.name, *key))

    def _is_ours(self, about: Body) -> bool:
        """Return whether a node speaks of an attempt that is awaited; one of its number may have another secret."""
        secret = self._secrets.get(key_of(about))
        return secret is not None and about.get("tag") == fingerprint(secret)

    def _keep(self, *, after: float) -> None:
        """Start the task that keeps the connection, and connects after some seconds if there is none."""
        if self._keeper is None or self._keeper.done():
            self._keeper = asyncio.create_task(self._keep_up(after))

    async def _keep_up(self, pause: float) -> None:
        """Reconnect while reports are expected; close the connection when it was idle for long."""
        while self._secrets or self._channel is not None:
            channel = self._channel
            if channel is not None and not channel.ended.is_set():
                pause = self._timeouts.first_retry
                if await self._quiet(channel):
                    return
                continue
            if channel is not None:
                await self._lose(channel)
                continue
            if self._was_left:
                self._was_left, pause = False, self._timeouts.revisit
            await asyncio.sleep(pause)
            pause = min(max(pause * 2, self._timeouts.first_retry), self._timeouts.last_retry)
            await self._try()

    async def _try(self) -> None:
        try:
            await self._open(patient=True)
        except NodeUnreachable as error:
            log.info("node still unreachable", extra={"node": self.name, "why": error.why})
            # Repeated each time: a server that was started while the node is away has no such event yet.
            self._on_event(ConnectionLost(self.name, error.why))

    async def _quiet(self, channel: NodeChannel) -> bool:
        """Wait one ping period, then ping; return True if the connection was idle and is closed."""
        try:
            async with asyncio.timeout(self._timeouts.ping):
                await channel.ended.wait()
        except TimeoutError:
            pass
        else:
            return False
        now = time.monotonic()
        is_unused = not self._secrets and now - self._used > self._timeouts.idle and now > self._keep_until
        if is_unused and not (self.is_measured_idle and self._slots.has_room_for_idle):
            await self._drop("idle")
            return True
        try:
            await channel.ask("ping", seconds=self._timeouts.pong)
        except NodeUnreachable as error:
            await channel.close(error.why)
        return False

    # Messages of the node.

    def _on_frame(self, body: Body) -> None:
        key = key_of(body)
        if body.get("event") == "unsigned-ended" or self._is_end_of_unknown(key, body):
            self._on_event(UnknownEnded(self.name, *key, self._unknown.pop(key, "")))
        elif body.get("event") == "exited":
            self._reported(body)
        elif key not in self._secrets:
            return
        elif body.get("event") in {"started", "here"} and body.get("started"):
            # A supervisor may say that it is here after the node was asked what runs there.
            self._on_event(Started(self.name, *key, body["started"], public_key(body)))
        elif body.get("event") == "checkpointed":
            self._on_event(Checkpointed(self.name, *key))

    def _is_end_of_unknown(self, key: Key, body: Body) -> bool:
        if body.get("event") != "exited" or key not in self._unknown:
            return False
        secret = self._secrets.get(key)
        return secret is None or verify_report(body, secret) is None

    def _reported(self, body: Any) -> None:
        """Emit a report once, if it is about an attempt of ours and signed with its secret."""
        if not isinstance(body, dict):
            return
        key = key_of(body)
        if key in self._passed_on:
            return
        secret = self._secrets.get(key)
        report = verify_report(body, secret) if secret is not None else None
        if secret is None:
            self._on_event(BadReport(self.name, *key, "no report of this attempt is awaited from this node"))
        elif report is None or report.node != self.name:
            self._on_event(BadReport(self.name, *key, "it does not carry the secret of its attempt"))
        else:
            self._passed_on.add(key)
            self._on_event(Exited(self.name, report))


async def _never() -> bool:
    return False


async def _no_key(_fingerprint: str) -> str | None:
    return None
