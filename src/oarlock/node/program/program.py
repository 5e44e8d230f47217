"""The node program: one loop between the server's channel and the supervisors of this node.

It holds no job: whatever it knows is in the spool or in a supervisor, and the next program finds it there. It ends when
the channel ends, when the server is silent for too long, or when a newer program takes its place.
"""

from __future__ import annotations

import os
import select
import socket
import sys
import time
from collections.abc import Callable
from typing import Protocol

from oarlock.node import trust
from oarlock.node.attempt import site_script, spool
from oarlock.node.attempt.spool import HighestJob, Key
from oarlock.node.cgroup import base, drivers
from oarlock.node.program import recovery, supervisor_pool
from oarlock.node.program.workers import NodeAttempt, StartQueue, Worker, extract_report, key_of, keys_of, tag_of
from oarlock.node.wire.channel import (
    ANSWER,
    EVENT,
    PROTOCOL,
    RAW,
    REQUEST,
    BadFrame,
    Body,
    ChannelClosed,
    Endpoint,
    Frame,
    encode_body,
)
from oarlock.node.wire.messages import (
    BAD,
    NOT_NOW,
    REBOOTED,
    SEEN,
    TAKEN,
    UNKNOWN,
    NodeRequestRefused,
    NodeSettings,
    fingerprint,
    why_not_permitted,
)

_FORGOTTEN = 10_000  # jobs whose last attempt is remembered after it was forgotten
_TURN = 5.0
_BEHIND = 4 << 20  # bytes that wait for the server, above which samples are dropped
_SESSIONS_BEHIND = 256 << 10  # bytes that wait for the server, above which sessions wait as well
_ENDS = {"kill", "end"}
_NOTICES = 8  # notice programs of users that run at the same time
_UNSIGNED_SECONDS = 1.0  # between two looks at files of the spool that are not ours
SAMPLES = 1
"""The number of RAW frames that carry samples."""


class Sampling(Protocol):
    """What measures on this node. No method may block: the program's loop waits meanwhile."""

    def due(self) -> float:
        """Return the instant of the next sample, in seconds of `time.monotonic`; infinity if there is none."""

    def take(self) -> bytes:
        """Return the sample that is due, encoded."""


class NodeProgram:
    """One node, one channel."""

    def __init__(self, settings: NodeSettings, driver: base.CgroupDriver, boot: str, launcher: socket.socket) -> None:
        self._settings, self._driver, self._boot, self._launcher = settings, driver, boot, launcher
        self._attempts: dict[Key, NodeAttempt] = {}
        self._unsigned: dict[Key, recovery.UnsignedEntry] = {}  # spool files with another key's MAC
        self._look_at_unsigned = 0.0
        self._recovered: set[int] = set()  # jobs that were in the spool before this program was
        self._highest = HighestJob(settings.spool, settings.instance)
        self._forgotten: dict[int, int] = {}
        self._idle: list[Worker] = []
        self._notifying: set[Worker] = set()
        self._busy: set[Key] = set()  # attempts whose supervisor lives but could not be reached yet
        self._epoll = select.epoll()
        self._handlers: dict[int, tuple[Endpoint, Callable[[Frame], None], Callable[[], None]]] = {}
        self._masks: dict[int, int] = {}
        self._mask_changes: set[int] = set()  # descriptors on which something was written or may be written now
        self._streams: dict[int, Worker] = {}  # the supervisors of sessions, by their numbers on the channel
        self._held_back: set[int] = set()  # lines of supervisors that are not read for a while
        self._start_queue = StartQueue(most=max(2, len(os.sched_getaffinity(0))))
        self._last_request = time.monotonic()
        self.sampling: Sampling | None = None

    def serve(self, channel: Endpoint) -> None:
        """Recover what is in the spool, send the hello, then serve until the channel ends or the server is silent."""
        self._channel = channel
        self._recover()
        self._watch(channel, self._handle_request, self._leave)
        self._send_event(self._hello())
        while time.monotonic() - self._last_request < self._settings.silence:
            self._turn()

    def _turn(self) -> None:
        self._start()
        wait, start = self._measure(), self._start_queue.wait(time.monotonic())
        self._flush()
        if self._held_back and self._channel.pending <= _SESSIONS_BEHIND:
            self._mask_changes |= self._held_back
            self._held_back.clear()
        for fd in list(self._mask_changes):
            self._set_mask(fd)
        self._retire_idle()
        for fd, happened in self._epoll.poll(wait if start is None else min(wait, start)):
            if fd == self._channel.write_fd and happened & (select.EPOLLERR | select.EPOLLHUP):
                self._leave()
            wire = self._handlers.get(fd)
            if wire is not None:
                self._receive(*wire)

    def _measure(self) -> float:
        """Send the sample that is due, unless the server is behind; return the seconds until something is due."""
        if self._busy:
            self._retry_busy()
        if self._unsigned:
            self._check_unsigned()
        if self.sampling is None:
            return _TURN
        left = self.sampling.due() - time.monotonic()
        if left > 0:
            return min(left, _TURN)
        data = self.sampling.take()
        if data and self._channel.pending < _BEHIND:
            self._send(RAW, SAMPLES, data)
        return 0.0

    def _set_mask(self, fd: int) -> None:
        """Watch for what can be read, and for room to write only while something waits for it."""
        self._mask_changes.discard(fd)
        endpoint = self._handlers[fd][0]
        mask = select.EPOLLIN if fd == endpoint.read_fd and fd not in self._held_back else 0
        if fd == endpoint.write_fd and endpoint.pending:
            mask |= select.EPOLLOUT
        if self._masks[fd] != mask:
            self._masks[fd] = mask
            self._epoll.modify(fd, mask)

    def _watch(self, endpoint: Endpoint, on_frame: Callable[[Frame], None], on_end: Callable[[], None]) -> None:
        for fd in {endpoint.read_fd, endpoint.write_fd}:
            self._handlers[fd] = (endpoint, on_frame, on_end)
            self._masks[fd] = select.EPOLLIN if fd == endpoint.read_fd else 0
            self._epoll.register(fd, self._masks[fd])

    def _receive(self, endpoint: Endpoint, on_frame: Callable[[Frame], None], on_end: Callable[[], None]) -> None:
        self._mask_changes.add(endpoint.write_fd)
        try:
            endpoint.flush()
            frames = endpoint.receive()
        except ChannelClosed:
            on_end()
            return
        for frame in frames:
            on_frame(frame)

    def _leave(self) -> None:
        raise SystemExit(0)

    def _send_event(self, body: Body | bytes) -> None:
        self._send(EVENT, 0, body)

    def _send(self, kind: int, number: int, body: Body | bytes) -> None:
        """Queue a frame for the server, written at the end of this turn; a supervisor's bytes pass unchanged."""
        self._mask_changes.add(self._channel.write_fd)
        self._channel.queue(kind, number, body)

    def _flush(self) -> None:
        """Write the frames of one turn at once: each write wakes the server."""
        try:
            self._channel.flush()
        except ChannelClosed:
            self._leave()

    def _hello(self) -> Body:
        return {
            "event": "hello",
            "protocol": PROTOCOL,
            "node": self._settings.node,
            "boot": self._boot,
            "cgroups": self._driver.kind,
            "missing": list(self._driver.missing),
            "cpus": len(os.sched_getaffinity(0)),
            "processes": base.allowed_processes(),
            "memory": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
            "python": ".".join(map(str, sys.version_info[:3])),
            "uid": os.geteuid(),
            "now": time.time(),
            "unusable": self._unusable(),
            "instance": self._highest.before[0],
            "highest_job": self._highest.before[1],
        }

    def _unusable(self) -> dict[str, str]:
        """Return the programs of the site that cannot be run here, with the reasons."""
        permitted = self._settings.programs
        reasons: dict[str, str] = {}
        for path in self._settings.check:
            unknown = permitted is not None and path not in permitted
            problem = why_not_permitted(path) if unknown else site_script.why_unusable(path)
            if problem:
                reasons[path] = problem
        return reasons

    # Requests of the server.

    def _handle_request(self, frame: Frame) -> None:
        self._last_request = time.monotonic()
        if frame.kind == RAW:
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
        if verb == "notify":
            self._notify(frame)
            return None
        if verb == "status":
            return {"attempts": [*self._all(), *self._all_unsigned()]}
        if verb == "forget":
            return self._forget(body)
        if verb == "discard":
            return self._discard(key_of(body), tag_of(body))
        if verb == "end-unknown":
            return self._end_unknown(key_of(body), tag_of(body), frame)
        if verb == "ping":
            return {"now": time.time(), "boot": self._boot}
        self._pass_on(body, frame)
        return None

    def _launch(self, body: Body, frame: Frame) -> None:
        key = key_of(body)
        boot = body.get("boot")
        if boot and boot != self._boot:
            raise NodeRequestRefused(REBOOTED, f"this node was started again: its boot id is {self._boot}, not {boot}")
        if key[0] in self._recovered:
            self._refuse_taken(key, body)
        if key in self._attempts or key[1] <= self._forgotten.get(key[0], 0):
            raise NodeRequestRefused(SEEN, f"attempt {spool.entry_name(key)} was here before")
        self._attempts[key] = NodeAttempt(None, "launching", body)
        self._highest.see(key[0])
        self._start_queue.queue(key, frame, str(body.get("user", "")))

    def _refuse_taken(self, key: Key, body: Body) -> None:
        """Refuse a launch while something of the same number is here that another generation began.

        Another attempt of that job is in the way as well: both would have the same cgroup.
        """
        same = self._attempts.get(key)
        others = [other for (job, _), other in self._attempts.items() if job == key[0] and other.report is None]
        if (
            any(job == key[0] for job, _ in self._unsigned)
            or (same is not None and same.tag != fingerprint(str(body.get("secret"))))
            or any(other.generation != body.get("generation", "") for other in others if other is not same)
        ):
            raise NodeRequestRefused(
                TAKEN, f"a job {key[0]} that was begun by another generation of the database is still here"
            )

    def _start(self) -> None:
        """Hand attempts that may start now to supervisors."""
        while begins := self._start_queue.next(time.monotonic()):
            key, frame = begins
            worker = self._idle.pop() if self._idle else self._new_worker()
            worker.key = key
            self._attempts[key].worker = worker
            self._send_to(worker, frame)

    def _withdraw(self, key: Key, frame: Frame) -> None:
        """End an attempt that has not begun: it never was here."""
        del self._attempts[key]
        refusal = NodeRequestRefused(NOT_NOW, f"attempt {spool.entry_name(key)} was to end before it began")
        self._send(ANSWER, frame.number, refusal.body())

    def _notify(self, frame: Frame) -> None:
        if len(self._notifying) >= _NOTICES:
            raise NodeRequestRefused(NOT_NOW, f"{_NOTICES} programs tell users of their jobs already")
        worker = self._idle.pop() if self._idle else self._new_worker()
        self._notifying.add(worker)
        self._send_to(worker, frame)

    def _pass_on(self, body: Body, frame: Frame) -> None:
        key = key_of(body)
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

    def _pass_session_frame(self, frame: Frame) -> None:
        """Pass bytes of a session to its supervisor; those of a session that is over are dropped."""
        worker = self._streams.get(frame.number)
        if worker is not None:
            self._send_to(worker, frame)

    def _send_to(self, worker: Worker, frame: Frame) -> None:
        self._mask_changes.add(worker.line.write_fd)
        try:
            worker.line.send(frame.kind, frame.number, frame.data)
        except ChannelClosed:
            self._vanished(worker)

    def _forget(self, body: Body) -> Body:
        for key in keys_of(body):
            attempt = self._attempts.get(key)
            if attempt is not None and attempt.report is None:
                continue  # it lives; its end is not the one that was written down
            self._attempts.pop(key, None)
            self._remember(key)
            spool.forget(self._settings.spool, key)
        return {}

    # What this server did not begin, or its database has lost.

    def _all(self) -> list[Body]:
        return [attempt.body(key) for key, attempt in sorted(self._attempts.items())]

    def _all_unsigned(self) -> list[Body]:
        return [
            {"job": job, "attempt": number, "tag": "", "user": file.user, "alive": file.alive}
            for (job, number), file in sorted(self._unsigned.items())
        ]

    def _check_unsigned(self) -> None:
        """Report to the server when a process that held an unsigned file is gone."""
        now = time.monotonic()
        if now < self._look_at_unsigned:
            return
        self._look_at_unsigned = now + _UNSIGNED_SECONDS
        for key, before in list(self._unsigned.items()):
            file = recovery.examine_attempt(self._settings, self._driver, self._boot, key) if before.alive else before
            if isinstance(file, recovery.UnsignedEntry) and file.alive != before.alive:
                self._unsigned[key] = file
                self._send_event({"event": "unsigned-ended", "job": key[0], "attempt": key[1]})

    def _discard(self, key: Key, tag: str) -> Body:
        """Remove the file of an attempt that is over and that the server's database does not have."""
        attempt, unsigned = self._attempts.get(key), self._unsigned.get(key)
        if unsigned is not None and tag == "":
            if unsigned.alive:
                raise NodeRequestRefused(NOT_NOW, f"a process still holds {spool.entry_name(key)}")
            del self._unsigned[key]
        elif attempt is not None and attempt.tag == tag:
            if attempt.report is None:
                raise NodeRequestRefused(NOT_NOW, f"attempt {spool.entry_name(key)} is {attempt.state}")
            del self._attempts[key]
        else:
            raise NodeRequestRefused(UNKNOWN, f"there is no such attempt {spool.entry_name(key)} here")
        spool.forget(self._settings.spool, key)
        return {}

    def _end_unknown(self, key: Key, tag: str, frame: Frame) -> Body | None:
        """End an attempt that is not in the server's database. `None`: its supervisor answers."""
        if key in self._unsigned and tag == "":
            if not recovery.ask_to_end(self._settings, key):
                raise NodeRequestRefused(
                    NOT_NOW, f"nobody answers for {spool.entry_name(key)}; end its processes on the node"
                )
            return {}
        attempt = self._attempts.get(key)
        if attempt is None or attempt.tag != tag:
            raise NodeRequestRefused(UNKNOWN, f"there is no such attempt {spool.entry_name(key)} here")
        if attempt.worker is None:
            raise NodeRequestRefused(NOT_NOW, f"attempt {spool.entry_name(key)} is {attempt.state}")
        kill = encode_body({"verb": "kill", "job": key[0], "attempt": key[1]}).encode()
        self._send_to(attempt.worker, frame._replace(data=kill))
        return None

    def _remember(self, key: Key) -> None:
        self._forgotten[key[0]] = max(key[1], self._forgotten.pop(key[0], 0))
        while len(self._forgotten) > _FORGOTTEN:
            del self._forgotten[next(iter(self._forgotten))]

    # Supervisors.

    def _new_worker(self) -> Worker:
        ours, theirs = socket.socketpair()
        socket.send_fds(self._launcher, [b"+"], [theirs.fileno()])
        theirs.close()
        return self._add_worker(ours)

    def _add_worker(self, line: socket.socket) -> Worker:
        worker = Worker(Endpoint(line.fileno(), line.detach()))
        self._watch(
            worker.line, lambda frame: self._handle_supervisor_frame(worker, frame), lambda: self._vanished(worker)
        )
        return worker

    def _handle_supervisor_frame(self, worker: Worker, frame: Frame) -> None:
        if frame.kind == RAW:
            self._send(RAW, frame.number, frame.data)
            self._hold_back(worker)
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
            self._mark_idle(worker)
            return
        attempt = self._attempts.get(worker.key) if worker.key else None
        if attempt is None or worker.key is None:
            return
        if "refused" in body and attempt.state == "launching":
            del self._attempts[worker.key]
            self._start_queue.settled(worker.key)
            self._mark_idle(worker)
        else:
            attempt.state = str(body.get("state", attempt.state))

    def _hold_back(self, worker: Worker) -> None:
        """Read no more of a supervisor whose sessions print faster than the server reads: others share the channel."""
        if self._channel.pending > _SESSIONS_BEHIND:
            self._held_back.add(worker.line.read_fd)
            self._mask_changes.add(worker.line.read_fd)

    def _note_event(self, worker: Worker, body: Body) -> None:
        if body["event"] == "session-ended":
            self._streams.pop(int(body.get("stream") or 0), None)
            return
        attempt = self._attempts.get(worker.key) if worker.key else None
        if attempt is None:
            return
        if worker.key is not None and body["event"] == "exited":
            self._drop_streams(worker)
            self._start_queue.settled(worker.key)
            attempt.worker, attempt.state, attempt.report = None, "ended", extract_report(body)
            self._mark_idle(worker)
        else:
            attempt.state = str(body.get("state", attempt.state))
            attempt.started = body.get("started", attempt.started)
            if worker.key is not None:
                self._start_queue.settled(worker.key)

    def _drop_streams(self, worker: Worker) -> None:
        self._streams = {number: other for number, other in self._streams.items() if other is not worker}

    def _mark_idle(self, worker: Worker) -> None:
        """Keep a supervisor for the next job. Only the program retires one: it alone knows what it is about to send."""
        worker.key, worker.rested = None, time.monotonic()
        self._idle.append(worker)

    def _retire_idle(self) -> None:
        """End supervisors that were idle for long, but keep a few: jobs of the same width often follow each other."""
        longest_ago = time.monotonic() - self._settings.rest
        while len(self._idle) > self._settings.idle and self._idle[0].rested < longest_ago:
            self._dismiss(self._idle.pop(0))

    def _dismiss(self, worker: Worker) -> None:
        self._epoll.unregister(worker.line.read_fd)
        del self._handlers[worker.line.read_fd], self._masks[worker.line.read_fd]
        self._mask_changes.discard(worker.line.read_fd)
        self._held_back.discard(worker.line.read_fd)
        self._drop_streams(worker)
        worker.line.close()

    def _vanished(self, worker: Worker) -> None:
        """Handle a supervisor that is gone: if it had an attempt, report how far that had come."""
        if worker in self._idle:
            self._idle.remove(worker)
        self._notifying.discard(worker)
        self._dismiss(worker)
        if worker.key is not None:
            self._start_queue.settled(worker.key)
            body = recovery.report_lost(self._settings, self._driver, self._boot, worker.key)
            self._attempts[worker.key].worker = None
            if body is None:  # it made no spool entry
                del self._attempts[worker.key]
            else:
                self._attempts[worker.key].state, self._attempts[worker.key].report = "ended", body
                self._send_event({"event": "exited", **body})

    def _recover(self) -> None:
        for key, state, launch in recovery.recover_attempts(self._settings, self._driver, self._boot):
            self._recovered.add(key[0])
            if isinstance(state, recovery.UnsignedEntry):
                self._unsigned[key] = state
            else:
                self._attempts[key] = NodeAttempt(None, "running", launch)
                self._adopt(key, state)

    def _adopt(self, key: Key, state: recovery.RecoveredAttempt) -> None:
        attempt = self._attempts[key]
        if state is None or isinstance(state, recovery.UnsignedEntry):
            self._busy.add(key)
            return
        self._busy.discard(key)
        if isinstance(state, socket.socket):
            attempt.worker = self._add_worker(state)
            attempt.worker.key = key
        else:
            attempt.state, attempt.report = "ended", state

    def _retry_busy(self) -> None:
        """Try again to reach supervisors that lived but did not open when the program started."""
        for key in list(self._busy):
            self._adopt(key, recovery.examine_attempt(self._settings, self._driver, self._boot, key))
            report = self._attempts[key].report
            if report is not None:
                self._send_event({"event": "exited", **report})


def main(settings: NodeSettings, read_fd: int, write_fd: int) -> None:
    """Run the node program on two descriptors."""
    try:
        spool.prepare(settings.spool)
        trust.prepare(settings.runtime, 0o755)
    except trust.UnsafeDirectory as unsafe:
        sys.exit(f"this node cannot be used safely: {unsafe}")
    recovery.take_over(settings.spool)
    boot = base.read("/proc/sys/kernel/random/boot_id").strip()
    launcher = supervisor_pool.start_launcher(
        settings, lambda: drivers.detect_driver(settings.node, pretended=settings.pretended), boot
    )
    # Only now: what measures brings threads and logging along, and with them every fork of a supervisor costs more.
    from oarlock.node import log_lines
    from oarlock.node.measure.stream import SamplingThread, make_node_sampler

    log_lines.to_stderr("%(message)s", level=30)
    driver = drivers.detect_driver(settings.node, pretended=settings.pretended)
    try:
        program = NodeProgram(settings, driver, boot, launcher)
        program.sampling = SamplingThread(settings.sample_period, lambda: make_node_sampler(settings.node))
        program.serve(Endpoint(read_fd, write_fd))
    finally:
        driver.leave()
