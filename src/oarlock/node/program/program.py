"""The node program: one loop between the server's channel and the supervisors of this node.

It holds no job: whatever it knows is in the spool or in a supervisor, and the next program finds it there. It ends when
the channel ends, when the server is silent for too long, or when a newer program takes its place.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from oarlock.node import trust
from oarlock.node.attempt import spool
from oarlock.node.attempt.sessions import undelivered
from oarlock.node.attempt.spool import Key
from oarlock.node.attempt.user.environment import client_socket, tools_folder
from oarlock.node.cgroup import base, drivers
from oarlock.node.program import file_cache, recovery, supervisor_pool
from oarlock.node.program.attempts import AttemptTable, extract_report, key_of, keys_of, tag_of
from oarlock.node.program.event_loop import EndpointLoop, PolledEndpoint
from oarlock.node.program.hello import make_hello
from oarlock.node.program.job_clients import JobClients
from oarlock.node.program.tools import write_tools
from oarlock.node.program.workers import StartQueue, Worker, WorkerPool
from oarlock.node.wire.channel import (
    ANSWER,
    EVENT,
    RAW,
    REQUEST,
    SAMPLES,
    BadFrame,
    Body,
    ChannelClosed,
    Endpoint,
    Frame,
    encode_body,
)
from oarlock.node.wire.messages import BAD, NOT_NOW, UNKNOWN, NodeRequestRefused, NodeSettings
from oarlock.node.wire.stream import FIRST_CLIENT_STREAM

if TYPE_CHECKING:
    from oarlock.node.measure.stream import SamplingThread

_TURN = 5.0
_TIDY_SECONDS = 60.0
_BEHIND = 4 << 20  # bytes that wait for the server, above which samples are dropped
_SESSIONS_BEHIND = 256 << 10  # bytes that wait for the server, above which sessions wait as well
_ENDS = {"kill", "end"}
_PROGRAM_VERBS = {"notify", "sense", "output"}
_NOTICES = 8  # notice programs of users, sensors and readers of outputs that run at the same time


class NodeProgram:
    """One node, one channel."""

    def __init__(self, settings: NodeSettings, driver: base.CgroupDriver, boot: str, launcher: socket.socket) -> None:
        self._settings, self._driver, self._boot = settings, driver, boot
        self._attempts = AttemptTable(settings, driver, boot)
        self._notifying: set[Worker] = set()
        self._busy: set[Key] = set()  # attempts whose supervisor lives but could not be reached yet
        self._loop = EndpointLoop()
        self._pool = WorkerPool(settings, self._loop, launcher, self._handle_supervisor_frame, self._vanished)
        self._streams: dict[int, Worker] = {}  # the supervisors of sessions, by their numbers on the channel
        self._clients = JobClients(self._loop, self._send, self._hold_back)
        self._files = file_cache.FileCache(settings.spool, settings.files_kept)
        self._is_held_back = False  # whether lines of supervisors, and clients, are not read for a while
        self._start_queue = StartQueue(most=max(2, len(os.sched_getaffinity(0))))
        self._last_request = self._tidied = time.monotonic()
        self.sampling: SamplingThread | None = None

    def serve(self, channel: Endpoint) -> None:
        """Recover what is in the spool, send the hello, then serve until the channel ends or the server is silent."""
        self._channel = channel
        for key, state in self._attempts.recover():
            self._adopt(key, state)
        undelivered.remove_old(self._settings.spool)
        self._loop.watch(channel, self._handle_request, self._leave)
        self._send_event(make_hello(self._settings, self._driver, self._boot, self._attempts.highest))
        if path := client_socket(self._settings.runtime):
            self._clients.listen(path)
        try:
            while time.monotonic() - self._last_request < self._settings.silence:
                self._turn()
        finally:
            self._clients.close()
            self._attempts.keys.close()

    def _turn(self) -> None:
        self._start()
        wait, start = self._measure(), self._start_queue.wait(time.monotonic())
        self._flush()
        if self._is_held_back and self._channel.pending <= _SESSIONS_BEHIND:
            self._loop.read_all()
            self._is_held_back = False
        self._pool.retire_idle(time.monotonic())
        self._tidy()
        self._loop.poll(wait if start is None else min(wait, start))

    def _tidy(self) -> None:
        """Remove, once a minute, what sessions printed last and nobody came back for."""
        if time.monotonic() - self._tidied >= _TIDY_SECONDS:
            self._tidied = time.monotonic()
            undelivered.remove_old(self._settings.spool)

    def _measure(self) -> float:
        """Send the sample that is due, unless the server is behind; return the seconds until something is due."""
        if self._busy:
            self._retry_busy()
        for key in self._attempts.unsigned.ended(time.monotonic()):
            self._send_event({"event": "unsigned-ended", "job": key[0], "attempt": key[1]})
        if self.sampling is None:
            return _TURN
        left = self.sampling.due() - time.monotonic()
        if left > 0:
            return min(left, _TURN)
        data = self.sampling.take()
        if data and self._channel.pending < _BEHIND:
            self._send(RAW, SAMPLES, data)
        elif data:
            self.sampling.dropped()
        return 0.0

    def _leave(self) -> None:
        raise SystemExit(0)

    def _send_event(self, body: Body | bytes) -> None:
        self._send(EVENT, 0, body)

    def _send(self, kind: int, number: int, body: Body | bytes) -> None:
        """Queue a frame for the server, written at the end of this turn; a supervisor's bytes pass unchanged."""
        self._loop.written(self._channel)
        self._channel.queue(kind, number, body)

    def _flush(self) -> None:
        """Write the frames of one turn at once: each write wakes the server."""
        try:
            self._channel.flush()
        except ChannelClosed:
            self._leave()

    # Requests of the server.

    def _handle_request(self, frame: Frame) -> None:
        self._last_request = time.monotonic()
        if frame.kind == RAW and frame.number >= FIRST_CLIENT_STREAM:
            self._clients.take(frame)
        elif frame.kind == RAW and (received := self._files.receive(frame.number, frame.data)) is not None:
            self._send(RAW, frame.number, received)
        elif frame.kind == RAW:
            self._pass_session_frame(frame)
        if frame.kind != REQUEST:
            return
        try:
            body = frame.body()
            answer = self._do(str(body.get("verb")), body, frame)
        except BadFrame as error:
            answer = NodeRequestRefused(BAD, str(error)).body()
        except NodeRequestRefused as refusal:
            answer = refusal.body()
        if answer is not None:
            self._send(ANSWER, frame.number, answer)

    def _do(self, verb: str, body: Body, frame: Frame) -> Body | None:
        """Carry out a request. `None`: a supervisor answers it."""
        if verb == "launch":
            self._launch(body, frame)
            return None
        if verb == "key":
            return self._attempts.put_key(key_of(body), body)
        if verb in _PROGRAM_VERBS:
            self._run_program(frame)
            return None
        if verb == "status":
            return {"attempts": self._attempts.bodies()}
        if verb == "forget":
            return self._attempts.forget(keys_of(body))
        if verb == "discard":
            return self._attempts.discard(key_of(body), tag_of(body))
        if verb == "end-unknown":
            return self._end_unknown(key_of(body), tag_of(body), frame)
        if verb in file_cache.VERBS:
            return self._files.do(body)
        if verb == file_cache.READ:
            return self._send_piece(key_of(body), body)
        if verb == "measure":
            return self._change_measuring(body)
        if verb == "ping":
            return {"now": time.time(), "boot": self._boot}
        return self._pass_on(body, frame)

    def _change_measuring(self, body: Body) -> Body:
        """Measure otherwise for a while, or (`reset`) as usual again."""
        from oarlock.node.measure.stream import parse_change

        if self.sampling is None:
            raise NodeRequestRefused(NOT_NOW, "nothing is measured here")
        if body.get("reset"):
            self.sampling.reset()
            return {}
        change = parse_change(body)
        jobs = self._attempts.unfinished_jobs()
        if change.seconds is None and not jobs:
            raise NodeRequestRefused(NOT_NOW, "no job runs here whose end would be the end of it: say for how long")
        self.sampling.change(change, jobs)
        return {}

    def _send_piece(self, key: Key, body: Body) -> Body:
        """Send a piece of what a job wrote, as a raw frame before the answer."""
        attempt, stream = self._attempts.get(key), body.get("stream")
        if attempt is None or attempt.tag != tag_of(body) or not isinstance(stream, int):
            raise NodeRequestRefused(UNKNOWN, f"there is no attempt {spool.entry_name(key)} here")
        self._send(RAW, stream, file_cache.read_piece(self._settings.spool, body))
        return {}

    def _launch(self, body: Body, frame: Frame) -> None:
        key = key_of(body)
        self._attempts.admit(key, body)
        self._start_queue.queue(key, frame, str(body.get("user", "")))
        if self.sampling is not None:
            self.sampling.job_comes()

    def _start(self) -> None:
        """Hand attempts that may start now to supervisors."""
        while begins := self._start_queue.next(time.monotonic()):
            key, frame = begins
            worker = self._pool.take()
            worker.key = key
            self._attempts[key].worker = worker
            self._send_to(worker, frame)

    def _withdraw(self, key: Key, frame: Frame) -> None:
        """End an attempt that has not begun: it never was here."""
        self._attempts.drop(key)
        refusal = NodeRequestRefused(NOT_NOW, f"attempt {spool.entry_name(key)} was to end before it began")
        self._send(ANSWER, frame.number, refusal.body())

    def _run_program(self, frame: Frame) -> None:
        if len(self._notifying) >= _NOTICES:
            raise NodeRequestRefused(NOT_NOW, f"{_NOTICES} programs for users and sensors run already")
        worker = self._pool.take()
        self._notifying.add(worker)
        self._send_to(worker, frame)

    def _pass_on(self, body: Body, frame: Frame) -> Body | None:
        key = key_of(body)
        if body["verb"] == "session-join" and (rest := self._undelivered(body)) is not None:
            return self._send_undelivered(rest, body)
        attempt = self._attempts.get(key)
        if attempt is None or body.get("tag", attempt.tag) != attempt.tag:
            raise NodeRequestRefused(UNKNOWN, f"there is no attempt {spool.entry_name(key)} here")
        if body["verb"] in _ENDS and (waiting := self._start_queue.withdraw(key)) is not None:
            self._withdraw(key, waiting)
            raise NodeRequestRefused(UNKNOWN, f"attempt {spool.entry_name(key)} had not begun")
        if attempt.worker is None:
            raise NodeRequestRefused(NOT_NOW, f"attempt {spool.entry_name(key)} is {attempt.state}")
        if isinstance(stream := body.get("stream"), int):
            self._streams[stream] = attempt.worker
        self._send_to(attempt.worker, frame)
        return None

    def _undelivered(self, body: Body) -> undelivered.Undelivered | None:
        """Return what is left of a session whose job is over."""
        return undelivered.read(self._settings.spool, key_of(body), body.get("session"))

    def _send_undelivered(self, rest: undelivered.Undelivered, body: Body) -> Body:
        """Send the rest of a session as its supervisor would have."""
        stream, received = body.get("stream"), body.get("received")
        if not isinstance(stream, int) or not isinstance(received, int) or (frames := rest.frames(received)) is None:
            raise NodeRequestRefused(BAD, f"stream {stream!r}, received {received!r}: not of this session")
        for data in frames:
            self._send(RAW, stream, data)
        return {"received": rest.received}

    def _pass_session_frame(self, frame: Frame) -> None:
        """Pass bytes of a session to its supervisor; those of a session that is over are dropped."""
        worker = self._streams.get(frame.number)
        if worker is not None:
            self._send_to(worker, frame)

    def _send_to(self, worker: Worker, frame: Frame) -> None:
        self._loop.written(worker.line)
        try:
            worker.line.send(frame.kind, frame.number, frame.data)
        except ChannelClosed:
            self._vanished(worker)

    def _end_unknown(self, key: Key, tag: str, frame: Frame) -> Body | None:
        """End an attempt that is not in the server's database. `None`: its supervisor answers."""
        if key in self._attempts.unsigned and tag == "":
            if not recovery.ask_to_end(self._settings, key):
                raise NodeRequestRefused(
                    NOT_NOW, f"nobody answers for {spool.entry_name(key)}; end its processes on the node"
                )
            return {}
        attempt = self._attempts.named(key, tag)
        if attempt.worker is None:
            raise NodeRequestRefused(NOT_NOW, f"attempt {spool.entry_name(key)} is {attempt.state}")
        kill = encode_body({"verb": "kill", "job": key[0], "attempt": key[1]}).encode()
        self._send_to(attempt.worker, frame._replace(data=kill))
        return None

    # Supervisors.

    def _handle_supervisor_frame(self, worker: Worker, frame: Frame) -> None:
        if frame.kind == RAW:
            self._send(RAW, frame.number, frame.data)
            self._hold_back(worker.line)
            return
        body = frame.body()
        if frame.kind == ANSWER:
            self._note_answer(worker, body)
            self._send(ANSWER, frame.number, frame.data)
        elif frame.kind == EVENT:
            self._note_event(worker, body)
            self._send_event(frame.data)

    def _note_answer(self, worker: Worker, body: Body) -> None:
        if worker in self._notifying:
            self._notifying.remove(worker)
            self._pool.mark_idle(worker, time.monotonic())
            return
        attempt = self._attempts.get(worker.key)
        if attempt is None or worker.key is None:
            return
        if "refused" in body and attempt.state == "launching":
            self._attempts.drop(worker.key)
            self._start_queue.settled(worker.key)
            self._pool.mark_idle(worker, time.monotonic())
        else:
            attempt.state = str(body.get("state", attempt.state))

    def _hold_back(self, endpoint: PolledEndpoint) -> None:
        """Read no more of who sends bytes of sessions faster than the server reads: others share the channel."""
        if self._channel.pending > _SESSIONS_BEHIND:
            self._loop.hold_back(endpoint)
            self._is_held_back = True

    def _note_event(self, worker: Worker, body: Body) -> None:
        if body["event"] == "session-ended":
            self._streams.pop(int(body.get("stream") or 0), None)
            return
        attempt = self._attempts.get(worker.key)
        if attempt is None:
            return
        if worker.key is not None and body["event"] == "exited":
            self._drop_streams(worker)
            self._start_queue.settled(worker.key)
            attempt.worker, attempt.state, attempt.report = None, "ended", extract_report(body)
            self._pool.mark_idle(worker, time.monotonic())
        else:
            attempt.state = str(body.get("state", attempt.state))
            attempt.started = body.get("started", attempt.started)
            attempt.public_key = str(body.get("key", attempt.public_key))
            if worker.key is not None:
                self._start_queue.settled(worker.key)

    def _drop_streams(self, worker: Worker) -> None:
        self._streams = {number: other for number, other in self._streams.items() if other is not worker}

    def _vanished(self, worker: Worker) -> None:
        """Handle a supervisor that is gone: if it had an attempt, report how far that had come."""
        self._notifying.discard(worker)
        self._drop_streams(worker)
        self._pool.dismiss(worker)
        if worker.key is not None:
            self._start_queue.settled(worker.key)
            report = self._attempts.lose(worker.key)
            if report is not None:
                self._send_event({"event": "exited", **report})

    def _adopt(self, key: Key, state: recovery.RecoveredAttempt) -> None:
        attempt = self._attempts[key]
        if state is None or isinstance(state, recovery.UnsignedEntry):
            self._busy.add(key)
            return
        self._busy.discard(key)
        if isinstance(state, socket.socket):
            attempt.worker = self._pool.add(state)
            attempt.worker.key = key
        else:
            attempt.state, attempt.report = "ended", state

    def _retry_busy(self) -> None:
        """Try again to reach supervisors that lived but did not open when the program started."""
        for key in list(self._busy):
            self._adopt(key, self._attempts.examine(key))
            report = self._attempts[key].report
            if report is not None:
                self._send_event({"event": "exited", **report})


def main(settings: NodeSettings, read_fd: int, write_fd: int, sources: Mapping[str, str], fingerprint: str) -> None:
    """Run the node program on two descriptors; `sources` are the modules that came with it, named by a fingerprint."""
    try:
        spool.prepare(settings.spool)
        trust.prepare(settings.runtime, 0o755)
        write_tools(tools_folder(settings.runtime), sources, fingerprint)
    except trust.UnsafeDirectory as unsafe:
        sys.exit(f"this node cannot be used safely: {unsafe}")
    recovery.take_over(settings.spool)
    boot = base.read("/proc/sys/kernel/random/boot_id").strip()
    launcher = supervisor_pool.start_launcher(
        settings, lambda: drivers.detect_driver(settings.node, pretended=settings.pretended), boot
    )
    # Only now: what measures brings more along, and with it every fork of a supervisor costs more.
    from oarlock.node.measure.stream import SamplingThread, make_node_sampler

    driver = drivers.detect_driver(settings.node, pretended=settings.pretended)
    try:
        program = NodeProgram(settings, driver, boot, launcher)
        program.sampling = SamplingThread(
            settings.sample_period, lambda: make_node_sampler(settings.node), settings.sample_sources
        )
        program.serve(Endpoint(read_fd, write_fd))
    finally:
        driver.leave()
