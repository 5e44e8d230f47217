"""The sessions of one attempt, as its supervisor serves them: open, join again, hang up, move bytes, end.

The supervisor lives on when the node program or the server goes away, and its sessions with it. A session that nobody
has claimed for a while, though the server could have been asked, is hung up: its user is gone.
"""

from __future__ import annotations

import os
import select
import signal
from functools import partial
from typing import Callable, NamedTuple

from oarlock.node import trust
from oarlock.node.attempt.job_cgroup import join_as_session
from oarlock.node.attempt.link import ProgramLink
from oarlock.node.attempt.sessions.session import Session
from oarlock.node.attempt.sessions.session_child import SessionSpec, StartedSession, start_session
from oarlock.node.attempt.spool import Key
from oarlock.node.attempt.user.children import ChildProcesses
from oarlock.node.attempt.user.command import LONGEST_MESSAGE, CannotStart, CommandSpec, parse_child_message
from oarlock.node.attempt.user.identity import User
from oarlock.node.cgroup.base import JobCgroup
from oarlock.node.wire.channel import Body
from oarlock.node.wire.messages import BAD, NOT_NOW, UNKNOWN, NodeRequestRefused
from oarlock.node.wire.stream import StreamBroken
from oarlock.node.wire.terminal_modes import are_modes

MOST_SESSIONS = 32
"""Sessions of one attempt on one node."""

UNCLAIMED_SECONDS = 60.0
"""How long a session goes on that no client has joined since the server came back."""

_FAR = 1e12
_LONGEST_COMMAND = 128 << 10
_LARGEST_TERMINAL = 10_000


class OpenRequest(NamedTuple):
    """A request to open a session, decoded."""

    name: str
    stream: int
    command: str | None
    terminal: tuple[int, int] | None
    modes: dict[str, int]  # of the terminal
    environment: dict[str, str]
    is_main: bool  # the job ends with it

    def spec(self) -> SessionSpec:
        """Return what the session's process needs of it."""
        return SessionSpec(self.command, self.terminal, self.modes, must_have_directory=self.is_main)


class StartingSession(NamedTuple):
    """A session that was forked and has not reached exec."""

    number: int  # of the request to answer
    request: OpenRequest
    started: StartedSession
    deadline: float


class SessionTable:
    """The sessions of an attempt. Times are seconds of the supervisor's clock."""

    def __init__(
        self, link: ProgramLink, children: ChildProcesses, on_account: Callable[[User], None], spool: str
    ) -> None:
        self._link, self._children, self._on_account, self._spool = link, children, on_account, spool
        self.reset()

    def reset(self) -> None:
        """Forget the attempt before this one."""
        self._sessions: dict[str, Session] = {}
        self._starting: list[StartingSession] = []
        self.main = 0  # the process of the main session; 0: it was not opened yet
        self.main_name = ""
        self.main_failure: CannotStart | None = None

    def __bool__(self) -> bool:
        return bool(self._sessions or self._starting)

    @property
    def is_opening_main(self) -> bool:
        """Return whether the main session was forked and has not reached exec."""
        return any(other.request.is_main for other in self._starting)

    # Requests.

    def has(self, body: Body) -> bool:
        """Return whether the session that a request names is here."""
        return body.get("session") in self._sessions

    def is_starting(self, number: int, body: Body) -> bool:
        """Return whether the session that is to be opened is under way; then this request is answered instead."""
        for place, other in enumerate(self._starting):
            if other.request.name == body.get("session"):
                request = other.request._replace(stream=int(body["stream"]))
                self._starting[place] = other._replace(number=number, request=request)
                return True
        return False

    def check_open(self, body: Body) -> OpenRequest:
        """Decode a request to open a session; refuse it if it makes no sense, or is one too many."""
        request = decode_open(body)
        if request.is_main and self.main_name:
            raise NodeRequestRefused(NOT_NOW, "the job has its shell already")
        if len(self._sessions) + len(self._starting) >= MOST_SESSIONS:
            raise NodeRequestRefused(NOT_NOW, f"the job has {MOST_SESSIONS} sessions on this node already")
        return request

    def open(self, number: int, request: OpenRequest, spec: CommandSpec, group: JobCgroup, deadline: float) -> None:
        """Fork a session; the request is answered when it has reached exec."""
        join = group.join if request.is_main else partial(join_as_session, group)
        started = start_session(request.spec(), spec, join)
        self._children.forget_status(started.pid)
        self._starting.append(StartingSession(number, request, started, deadline))
        if request.is_main:
            self.main_name = request.name

    def join(self, number: int, body: Body) -> None:
        """Connect a client again to its session, and answer how much was received from it."""
        session = self._get(body)
        stream, received = body.get("stream"), body.get("received")
        if not isinstance(stream, int) or not isinstance(received, int):
            raise NodeRequestRefused(BAD, f"stream {stream!r}, received {received!r}: both must be numbers")
        try:
            taken = session.attach(stream, received)
        except StreamBroken as broken:
            raise NodeRequestRefused(BAD, str(broken)) from broken
        self._link.answer(number, {"received": taken})

    def hang_up(self, number: int, body: Body) -> None:
        """Hang up a session whose client is gone."""
        self._get(body).hang_up()
        self._link.answer(number, {})

    def _get(self, body: Body) -> Session:
        session = self._sessions.get(str(body.get("session")))
        if session is None:
            raise NodeRequestRefused(UNKNOWN, "there is no such session here, or no longer")
        return session

    def receive(self, stream: int, frame: bytes) -> None:
        """Pass a frame of a client to its session; a client that breaks the rules is hung up on."""
        for session in self._sessions.values():
            if session.stream == stream:
                try:
                    session.receive(frame)
                except StreamBroken:
                    session.hang_up()
                return

    # While it runs.

    def watched(self) -> list[tuple[int, int]]:
        """Return the descriptors to poll, each with what it is waited for."""
        starting = [(other.started.status.fileno(), select.POLLIN) for other in self._starting]
        return starting + [entry for session in self._sessions.values() for entry in session.watched()]

    def next(self) -> float:
        """Return the instant at which something is due."""
        deadlines = [other.deadline for other in self._starting]
        unclaimed = [session.unclaimed_since for session in self._sessions.values()]
        return min(
            [_FAR, *deadlines, *(since + UNCLAIMED_SECONDS for since in unclaimed if since is not None)],
        )

    def serve(self, why: str, *, now: float) -> None:
        """Move bytes, and notice sessions that began, ended or were left; `why` is what ends the job, if anything."""
        for other in list(self._starting):
            self._check_start(other, now)
        for session in list(self._sessions.values()):
            ended = self._children.status(session.pid)
            session.pump()
            if ended is not None:
                session.ended(ended, why)
            self._check_claim(session, now)
            session.send(self._link.queue_raw)
            if session.is_delivered:
                self._remove(session)
        self._link.flush_now()

    def _check_claim(self, session: Session, now: float) -> None:
        """Notice when the program went away, and when a session was left unclaimed after the next one came."""
        if not self._link.connected:
            session.detach()
            session.unclaimed_since = None
        elif session.stream is None:
            session.unclaimed_since = session.unclaimed_since or now
            if now >= session.unclaimed_since + UNCLAIMED_SECONDS:
                session.hang_up()
                if session.is_over:
                    self._remove(session)
                session.unclaimed_since = now  # once more if it does not end

    def _check_start(self, other: StartingSession, now: float) -> None:
        """Read what a forked session reports: its account, why it failed, or (end of file) that it runs."""
        while True:
            try:
                data = other.started.status.recv(LONGEST_MESSAGE)
            except BlockingIOError:
                if now >= other.deadline:
                    self._fail(other, CannotStart("WORKING_DIRECTORY", "the user's directory did not answer in time"))
                return
            if not data:
                self._begin(other)
                return
            message = parse_child_message(data)
            if isinstance(message, CannotStart):
                self._fail(other, message)
                return
            self._on_account(message)

    def _fail(self, other: StartingSession, failure: CannotStart) -> None:
        self._starting.remove(other)
        other.started.status.close()
        for fd in set(other.started.pipes) - {-1}:
            os.close(fd)
        if self._children.status(other.started.pid) is None:  # it was not waited for: the number is still its own
            os.kill(other.started.pid, signal.SIGKILL)
        if other.request.is_main:
            self.main_failure = failure
        self._link.refuse(other.number, NodeRequestRefused(failure.event, str(failure)))

    def _begin(self, other: StartingSession) -> None:
        self._starting.remove(other)
        other.started.status.close()
        request = other.request
        session = Session(request.name, other.started, is_terminal=request.terminal is not None)
        self._sessions[request.name] = session
        if request.is_main:
            self.main = session.pid
        self._link.answer(other.number, {"received": session.attach(request.stream, 0)})

    def _remove(self, session: Session) -> None:
        """Forget a session that is over; the program forgets its stream."""
        self._sessions.pop(session.name, None)
        self._link.send_event({"event": "session-ended", "session": session.name, "stream": session.stream})

    # The end.

    def hang_up_terminals(self) -> None:
        """Send SIGHUP to all shells: those in a terminal pass over SIGTERM."""
        for session in self._sessions.values():
            if session.is_terminal:
                session.signal(signal.SIGHUP)

    def finish(self, key: Key, why: str) -> None:
        """Send the last words of all sessions, and keep them for clients that are away: the job is over."""
        if not self:  # a job without sessions keeps what it has queued for its report: one write, one wake-up
            return
        for session in self._sessions.values():
            ended = self._children.status(session.pid)
            session.ended(signal.SIGKILL if ended is None else ended, why)
            session.conclude(at_once=True)
            self._keep_undelivered(key, session)
            session.send(self._link.queue_raw)
            session.close()
        for other in list(self._starting):
            self._fail(other, CannotStart("EXIT_VALUE_OAREXEC", "the job ended"))
        self._sessions.clear()
        self._link.flush_now()

    def _keep_undelivered(self, key: Key, session: Session) -> None:
        """Keep what the client did not confirm: it may be away, or the way to it may break at this moment."""
        from oarlock.node.attempt.sessions import (
            undelivered,  # imported late: what a supervisor maps, every fork pays for
        )

        try:
            rest = undelivered.Undelivered(*session.undelivered())
            undelivered.write(self._spool, key, session.name, rest)
        except (OSError, trust.UnsafeDirectory):
            return  # a full disk: whoever is connected gets it all the same


def decode_open(body: Body) -> OpenRequest:
    """Decode a request to open a session, or refuse it."""
    name, stream, command = body.get("session"), body.get("stream"), body.get("command")
    if not (isinstance(name, str) and 0 < len(name) <= 64 and name.isalnum() and isinstance(stream, int)):
        raise NodeRequestRefused(BAD, f"session {name!r}, stream {stream!r}: a name and a number are needed")
    if command is not None and not (
        isinstance(command, str) and "\0" not in command and len(command) <= _LONGEST_COMMAND
    ):
        raise NodeRequestRefused(BAD, "the command of a session is a text without NUL")
    is_main = body.get("main") is True
    return OpenRequest(
        name, stream, command, _decode_terminal(body), _decode_modes(body), _decode_environment(body), is_main
    )


def _decode_terminal(body: Body) -> tuple[int, int] | None:
    size = body.get("terminal")
    if size is None:
        return None
    if not (
        isinstance(size, list)
        and [type(part) for part in size] == [int, int]
        and all(0 <= part <= _LARGEST_TERMINAL for part in size)
    ):
        raise NodeRequestRefused(BAD, f"{size!r} is not the size of a terminal")
    return size[0], size[1]


def _decode_modes(body: Body) -> dict[str, int]:
    modes = body.get("modes") or {}
    if not are_modes(modes):
        raise NodeRequestRefused(BAD, "the modes of a terminal are names with a number from 0 to 255 each")
    return dict(modes)


def _decode_environment(body: Body) -> dict[str, str]:
    environment = body.get("environment") or {}
    if not isinstance(environment, dict) or not all(
        isinstance(value, str) and "\0" not in value for value in environment.values()
    ):
        raise NodeRequestRefused(BAD, "the variables of a session are texts without NUL")
    return environment
