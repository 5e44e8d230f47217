"""A user at a terminal: `oarsub` in a process of its own behind a pseudo-terminal, or with pipes."""

import contextlib
import fcntl
import json
import os
import pty
import pwd
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Mapping
from typing import Any

from oarlock.client import Client
from oarlock.node.wire.stream import (
    CONTROL,
    DATA,
    EXIT,
    LENGTH_BYTES,
    STDERR,
    STDOUT,
    ResumableReceiver,
    ResumableSender,
    decode_length,
    encode_frame,
    encode_message,
)
from oarlock.node.wire.terminal_modes import set_modes
from tests.e2e.instance import SOURCE, Instance

_OARSUB = "import sys; from oarlock.cli.jobs.oarsub import main; sys.exit(main())"
SECONDS = 30.0


def command_of(
    site: Instance, user: str, *words: str, variables: Mapping[str, str] | None = None, **options: object
) -> "subprocess.Popen[bytes]":
    """Start `oarsub` as a user, in the home directory of the instance."""
    account = pwd.getpwnam(user)
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(site.home),
        "TERM": "xterm",
        "LANG": "C.UTF-8",
        "PYTHONPATH": str(SOURCE),
        "OARLOCK_SERVER": str(site.state / "server.sock"),
        **(variables or {}),
    }
    return subprocess.Popen(
        [sys.executable, "-c", _OARSUB, *words],
        env=environment,
        cwd=site.home,
        user=account.pw_uid,
        group=account.pw_gid,
        extra_groups=[],
        **options,  # type: ignore[call-overload]
    )


class Terminal:
    """A terminal in which `oarsub` runs."""

    def __init__(
        self, site: Instance, user: str, *words: str, size: tuple[int, int] = (24, 80), modes: Mapping[str, int] = {},
        variables: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        self.master, slave = pty.openpty()
        self.resize(*size)
        if modes:
            set_modes(slave, dict(modes))
        self.process = command_of(
            site,
            user,
            *words,
            variables=variables,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            preexec_fn=_own_terminal,
            start_new_session=True,
        )
        os.close(slave)
        self.shown = bytearray()

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, text: str | bytes) -> None:
        """Type, and read what appears meanwhile: a terminal that nobody reads takes no keys."""
        left = memoryview(text.encode() if isinstance(text, str) else text)
        while left:
            readable, writable, _ = select.select([self.master], [self.master], [], SECONDS)
            if readable:
                self._read()
            if writable:
                left = left[os.write(self.master, left[:1024]) :]

    def until(self, text: str | bytes, *, seconds: float = SECONDS) -> bytes:
        """Read until a text was shown; give everything up to its end, which is then forgotten."""
        wanted = text.encode() if isinstance(text, str) else text
        end = time.monotonic() + seconds
        looked = 0
        while (at := self.shown.find(wanted, looked)) < 0:
            looked = max(0, len(self.shown) - len(wanted))
            left = end - time.monotonic()
            assert left > 0, f"{wanted!r} did not appear within {seconds} s: {self.shown[-2000:]!r}"
            if select.select([self.master], [], [], left)[0] and not self._read():
                raise AssertionError(f"the terminal ended before {wanted!r} appeared: {self.shown[-2000:]!r}")
        shown = bytes(self.shown[: at + len(wanted)])
        del self.shown[: at + len(wanted)]
        return shown

    def ended(self, *, seconds: float = SECONDS) -> tuple[int, bytes]:
        """Read to the end; give the exit code and what was shown since the last look."""
        end = time.monotonic() + seconds
        while True:
            left = end - time.monotonic()
            assert left > 0, f"it did not end within {seconds} s: {self.shown[-2000:]!r}"
            if select.select([self.master], [], [], left)[0] and not self._read():
                return self.process.wait(timeout=max(left, 0.1)), bytes(self.shown)

    def _read(self) -> bool:
        try:
            data = os.read(self.master, 1 << 16)
        except OSError:  # EIO: nobody has the terminal open any more
            return False
        self.shown += data
        return bool(data)

    def kill(self) -> None:
        """End the client as a power cut would."""
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
        os.close(self.master)


def _own_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@contextlib.contextmanager
def terminal(
    site: Instance, user: str, *words: str, size: tuple[int, int] = (24, 80), modes: Mapping[str, int] = {},
    variables: Mapping[str, str] | None = None,
) -> Iterator[Terminal]:  # fmt: skip
    """Run `oarsub` with these words in a terminal; `modes`: as the user set them before."""
    made = Terminal(site, user, *words, size=size, modes=modes, variables=variables)
    try:
        yield made
    finally:
        made.close()


def piped(
    site: Instance, user: str, *words: str, stdin: bytes = b"", variables: Mapping[str, str] | None = None
) -> tuple[int, str, str]:
    """Run `oarsub` without a terminal; give its exit code, output and error output."""
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    process = command_of(site, user, *words, variables=variables, **pipes)
    out, err = process.communicate(stdin, timeout=SECONDS)
    return process.returncode, out.decode(errors="replace"), err.decode(errors="replace")


@contextlib.contextmanager
def seen_as(user: str) -> Iterator[None]:
    """Connect as a user: the kernel says to a server who did."""
    os.seteuid(pwd.getpwnam(user).pw_uid)
    try:
        yield
    finally:
        os.seteuid(0)


def token_of(site: Instance, user: str) -> str:
    """Make a token of a user."""
    with seen_as(user):
        made = Client(str(site.state / "server.sock"))._change("POST", "/tokens", {"name": os.urandom(4).hex()})
    return str(made["token"])


class RawSession:
    """A client of a session that says what it likes, and reads when it likes."""

    def __init__(self, site: Instance, user: str, **request: object) -> None:
        with seen_as(user):
            self.connection, rest = Client(str(site.state / "server.sock")).session()
        self.connection.settimeout(SECONDS)
        self._received = bytearray(rest)
        self.sender, self.receiver = ResumableSender(), ResumableReceiver()
        self.name = str(request.get("session") or os.urandom(16).hex())
        if request:
            self.send(CONTROL + json.dumps({"session": self.name, **request}).encode())

    def send(self, payload: bytes) -> None:
        self.connection.sendall(encode_frame(payload))

    def frame(self) -> bytes:
        """Give the next frame; nothing at the end."""
        while len(self._received) < LENGTH_BYTES or len(self._received) < (end := self._end()):
            data = self.connection.recv(1 << 16)
            if not data:
                return b""
            self._received += data
        payload = bytes(self._received[LENGTH_BYTES:end])
        del self._received[:end]
        return payload

    def _end(self) -> int:
        return LENGTH_BYTES + decode_length(bytes(self._received[:LENGTH_BYTES]))

    def event(self) -> dict[str, Any]:
        """Give the next event, whatever else comes before."""
        while (payload := self.frame())[:1] != CONTROL:
            assert payload, "the connection ended"
        event: dict[str, Any] = json.loads(payload[1:])
        return event

    def queue(self, kind: int, data: bytes = b"") -> None:
        """Send a message of the stream."""
        self.sender.queue(encode_message(kind, data))
        self.send(DATA + self.sender.take())

    def output(self) -> tuple[bytes, bytes, dict[str, Any]]:
        """Read to the end: what it printed, what it complained, and how it ended."""
        streams = {STDOUT: b"", STDERR: b""}
        while payload := self.frame():
            for message in self.receiver.feed(payload[1:]) if payload[:1] == DATA else ():
                if message.kind == EXIT:
                    self.send(CONTROL + b"{}")
                    return streams[STDOUT], streams[STDERR], json.loads(message.data)
                streams[message.kind] += message.data
            if acknowledgement := self.receiver.acknowledge():
                self.send(acknowledgement)
        raise AssertionError(f"the connection ended: {streams}")

    def close(self) -> None:
        self.connection.close()


@contextlib.contextmanager
def raw_session(site: Instance, user: str, **request: object) -> Iterator[RawSession]:
    """Connect and send a request; nothing is sent without one."""
    made = RawSession(site, user, **request)
    try:
        yield made
    finally:
        made.close()


def job_of(shown: bytes) -> int:
    """Find the number of the job in what `oarsub` printed."""
    return int(shown.split(b"OAR_JOB_ID=")[1].split()[0])
