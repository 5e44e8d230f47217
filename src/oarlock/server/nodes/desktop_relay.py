"""What `oarlock desktop` does: connect to a server from a machine that the server cannot reach, and serve as a node.

The node program is the one that the server sends to other nodes. It runs here as a process of its own, and this one
passes its bytes on. Jobs depend on neither of them: whatever ends, they go on, and the next program finds them.
"""

import fcntl
import json
import os
import secrets
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from oarlock import __version__
from oarlock.client import Client, RequestRefused
from oarlock.node import trust
from oarlock.node.program import loader
from oarlock.node.sources.host import topology
from oarlock.node.wire.stream import CONTROL, DATA, LENGTH_BYTES, StreamBroken, decode_length, encode_frame
from oarlock.server.nodes.channel import node_fingerprint, node_sources

_CHUNK = 1 << 16
_CONNECT_SECONDS = 1.0  # for a server that is just being started
_FIRST_PAUSE, _LAST_PAUSE = 1.0, 10.0
_WELCOME_SECONDS = 30.0
_STALLED_SECONDS = 60.0  # for the rest of something whose beginning has come
_PARTING_SECONDS = 2.0
_LOWEST_UID = 1000
_MAY_PASS = frozenset({
    "ServerDown", "NoAnswer", "ServerFailed", "Stopping", "TooManyAtOnce", "DatabaseAway", "DesktopConnected",
    "NodeUnreachable",
})  # fmt: skip
"""Refusals after which a desktop that was connected tries again."""

Say = Callable[[str], None]
"""Prints a sentence for whoever started the desktop."""


class DesktopPlaces(NamedTuple):
    """The directories of a desktop: its state, what the node program writes there, and those of jobs."""

    state: Path
    spool: Path
    runtime: Path
    work: Path

    @classmethod
    def below(cls, state: Path) -> "DesktopPlaces":
        """Make the directories; refuse a place where others could write."""
        places = cls(state, state / "spool", state / "run", state / "work")
        try:
            for path, mode in zip(places, (0o755, 0o700, 0o755, 0o711), strict=True):
                trust.prepare(str(path), mode)
        except (OSError, trust.UnsafeDirectory) as problem:
            raise RequestRefused(
                f"The directory {state} cannot be used: {getattr(problem, 'strerror', None) or problem}.",
                kind="BadPath",
                hint="Name another with --state.",
            ) from None
        return places


def default_state() -> Path:
    """Return where a desktop keeps its files unless it is told otherwise."""
    if os.geteuid() == 0:
        return Path("/var/lib/oarlock/desktop")
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state") / "oarlock/desktop"


class DesktopConnection(Client):
    """The client, with the token of a desktop."""

    def __init__(self, server: str, token: str) -> None:
        super().__init__(server)
        self._desktop_token = token

    def connect(self) -> tuple[Any, bytes]:
        """Open the connection of a desktop, and return what was received on it already."""
        try:
            return self._upgraded("/desktops", _CONNECT_SECONDS, f"Authorization: Bearer {self._desktop_token}\r\n")
        except RequestRefused as refused:
            if refused.kind != "ServerDown" or "certificate" in refused.hint:
                raise
            sentence = str(refused).replace("; nothing was changed.", ".")
            raise RequestRefused(sentence, kind=refused.kind, hint="Look at the URL, or try again later.") from None


@contextmanager
def only_one(places: DesktopPlaces) -> Iterator[None]:
    """Hold the lock of a state directory; refuse a second desktop there."""
    with (places.state / "lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RequestRefused(
                f"`oarlock desktop` runs already with {places.state}.",
                kind="DesktopRuns",
                hint="End the other one first.",
            ) from None
        yield


def machine_of(places: DesktopPlaces) -> str:
    """Return the name by which a server knows this machine again, made once."""
    path = places.state / "machine"
    if not path.exists():
        early = path.with_name("machine.new")
        early.write_text(secrets.token_hex(16) + "\n")
        early.replace(path)
    return path.read_text().strip()


class _Signals:
    """Counts SIGINT and SIGTERM; `fd` becomes readable with each."""

    def __init__(self) -> None:
        self.fd, self._writing = os.pipe()
        for fd in (self.fd, self._writing):
            os.set_blocking(fd, False)
        self.count = 0
        signal.set_wakeup_fd(self._writing, warn_on_full_buffer=False)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._note)

    def _note(self, *_: object) -> None:
        self.count += 1

    def wait(self, seconds: float) -> bool:
        """Wait; return whether there was a signal, before or meanwhile."""
        if not self.count:
            select.select([self.fd], [], [], seconds)
        return bool(self.count)

    def drain(self) -> None:
        """Read what woke us up."""
        try:
            os.read(self.fd, _CHUNK)
        except BlockingIOError:
            return


class Desktop:
    """One machine that serves, over one connection after the other."""

    def __init__(self, connection: DesktopConnection, places: DesktopPlaces, say: Say) -> None:
        self._connection, self._places, self._say = connection, places, say
        self._signals = _Signals()
        self._machine = machine_of(places)
        self._program = places.state / "program"
        self._program.write_text(_program_text(places))
        self._was_accepted = False
        self._pause = _FIRST_PAUSE

    def run(self) -> None:
        """Serve until somebody ends it (then take leave of the server), or until the server refuses."""
        while not self._signals.count:
            try:
                if self._serve():
                    return
                why = f"The server at {self._connection.server} closed the connection."
            except RequestRefused as refused:
                if not self._was_accepted or refused.kind not in _MAY_PASS:
                    raise
                why = str(refused)
            if not self._was_accepted:
                raise RequestRefused(why, kind="NoAnswer", hint="Try again later.")
            if not self._signals.count and self._pause == _FIRST_PAUSE:  # once each time that it goes away
                self._say(f"{why} Jobs here go on; the server is tried again until it answers.")
            # Not all at the same moment: after a restart of the server many desktops return.
            self._signals.wait(self._pause * (1 + secrets.randbelow(1000) / 1000) / 2)
            self._pause = min(2 * self._pause, _LAST_PAUSE)
        self._say(
            "Left without a word to the server, which is away. Jobs that run here go on until their walltime; when "
            "`oarlock desktop` is started again, it reports them."
        )

    def _serve(self) -> bool:
        """Serve over one connection; return whether the desktop has taken leave."""
        connection, rest = self._connection.connect()
        with closing(connection):
            link = _Link(connection, rest)
            greeting = {"machine": self._machine, "description": topology.describe()}
            try:
                link.tell(greeting)
                node = self._welcome(link)
                with _started(self._program) as program:
                    relay = _Relay(link, program, self._signals, self._say)
                    relay.on_accepted = lambda: self._note_accepted(node)
                    return relay.run()
            except (OSError, StreamBroken):
                return False

    def _note_accepted(self, node: str) -> None:
        self._say(f"Connected to {self._connection.server} as {node}.")
        self._was_accepted, self._pause = True, _FIRST_PAUSE

    def _welcome(self, link: "_Link") -> str:
        deadline = time.monotonic() + _WELCOME_SECONDS
        while time.monotonic() < deadline:
            for frame in link.frames(deadline - time.monotonic()):
                message = _message(frame)
                if message.get("event") == "welcome":
                    return str(message.get("node", ""))
        raise StreamBroken("no welcome")


class _Socket(Protocol):
    """A socket, plain or with TLS."""

    def fileno(self) -> int: ...
    def recv(self, most: int, /) -> bytes: ...
    def sendall(self, data: bytes, /) -> None: ...
    def settimeout(self, seconds: float | None, /) -> None: ...
    def close(self) -> None: ...


class _Link:
    """Frames to and from the server."""

    def __init__(self, connection: _Socket, rest: bytes) -> None:
        self._socket, self._received = connection, bytearray(rest)
        connection.settimeout(_STALLED_SECONDS)
        self.fd = connection.fileno()

    def tell(self, message: dict[str, Any]) -> None:
        """Send a message of the desktop itself."""
        self.send(CONTROL + json.dumps(message).encode())

    def send(self, payload: bytes) -> None:
        """Send a frame."""
        self._socket.sendall(encode_frame(payload))

    def frames(self, seconds: float | None = None) -> Iterator[bytes]:
        """Yield the frames that are complete; with `seconds`, wait that long for something to come."""
        if not self._received and seconds is not None:
            select.select([self.fd], [], [], max(seconds, 0.0))
        yield from self._complete()
        self._receive()
        yield from self._complete()

    def _receive(self) -> None:
        data = self._socket.recv(_CHUNK)
        if not data:
            raise ConnectionError("the server closed the connection")
        # TLS may have decrypted more than was asked for, of which `select` knows nothing.
        while waiting := getattr(self._socket, "pending", int)():
            data += self._socket.recv(waiting)
        self._received += data

    def _complete(self) -> Iterator[bytes]:
        while len(self._received) >= LENGTH_BYTES:
            end = LENGTH_BYTES + decode_length(bytes(self._received[:LENGTH_BYTES]))
            if len(self._received) < end:
                return
            frame = bytes(self._received[LENGTH_BYTES:end])
            del self._received[:end]
            yield frame


def _message(frame: bytes) -> dict[str, Any]:
    """Decode a message of the server; raise the refusal that it may be."""
    if frame[:1] != CONTROL:
        raise StreamBroken(f"a frame that begins with {frame[:1]!r}")
    message = json.loads(frame[1:])
    if isinstance(refused := message.get("refused"), dict):
        raise RequestRefused(str(refused["error"]), kind=str(refused["kind"]), hint=str(refused.get("hint") or ""))
    return dict(message)


class _Relay:
    """Passes bytes between the server and the node program, until one of them ends or the user wants to leave."""

    def __init__(self, link: _Link, program: "subprocess.Popen[bytes]", signals: _Signals, say: Say) -> None:
        if program.stdin is None or program.stdout is None:
            raise ValueError("the program has no pipes")
        self._link, self._signals, self._say = link, signals, say
        self._to_program, self._from_program = program.stdin.fileno(), program.stdout.fileno()
        self._is_leaving = self._has_left = self._is_accepted = False
        self.on_accepted: Callable[[], None] = lambda: None

    def run(self) -> bool:
        """Pass bytes on; return whether the desktop has taken leave."""
        watched = [self._link.fd, self._from_program, self._signals.fd]
        while not self._has_left:
            ready, _, _ = select.select(watched, [], [])
            if self._signals.fd in ready and not self._look_at_signals():
                return True
            if self._from_program in ready:
                data = os.read(self._from_program, _CHUNK)
                if not data:
                    return False
                self._link.send(DATA + data)
            if self._link.fd in ready:
                for frame in self._link.frames():
                    self._take(frame)
        return True

    def _look_at_signals(self) -> bool:
        """Take leave after the first signal; return False after the second, to go at once."""
        self._signals.drain()
        if self._signals.count > 1:
            self._say("Gone at once. Jobs that run here go on until their walltime.")
            return False
        if self._signals.count and not self._is_leaving:
            self._is_leaving = True
            self._link.tell({"event": "leave"})
        return True

    def _take(self, frame: bytes) -> None:
        if frame[:1] == DATA:
            if not self._is_accepted:  # the settings of the node program: the server has no objection to it
                self._is_accepted = True
                self.on_accepted()
            data = memoryview(frame)[1:]
            while data:
                data = data[os.write(self._to_program, data) :]
            return
        message = _message(frame)
        if message.get("event") == "leaving":
            jobs = ", ".join(map(str, message.get("jobs", ())))
            self._say(f"Leaving; {f'jobs that are ended: {jobs}' if jobs else 'no job is here'}. Ctrl-C goes at once.")
        elif message.get("event") == "left":
            self._say("Left.")
            self._has_left = True


@contextmanager
def _started(program: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """Start the node program, in a session of its own: a Ctrl-C at our terminal is not for it."""
    process = subprocess.Popen(  # noqa: S603 - our own file
        [sys.executable, "-I", "-S", str(program)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
        bufsize=0,
    )
    with process:  # closes its output when it has ended, so that its last words do no harm
        try:
            yield process
        finally:
            if process.stdin is not None:
                process.stdin.close()
            try:
                process.wait(_PARTING_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()


def _program_text(places: DesktopPlaces) -> str:
    fixed = {
        "spool": str(places.spool),
        "runtime": str(places.runtime),
        "work": str(places.work),
        "lowest_uid": _LOWEST_UID if os.geteuid() == 0 else 0,
        "programs": [],
    }
    about = f"The node program of Oarlock {__version__}, written by `oarlock desktop`."
    return loader.installable(node_sources(), fixed, fingerprint=node_fingerprint(), about=about, python=sys.executable)
