"""A user at a terminal: `oarsub` in a process of its own behind a pseudo-terminal, or with pipes."""

import contextlib
import fcntl
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
from collections.abc import Iterator

from tests.e2e.instance import SOURCE, Instance

_OARSUB = "import sys; from oarlock.cli.oarsub import main; sys.exit(main())"
SECONDS = 30.0


def command_of(site: Instance, user: str, *words: str, **options: object) -> "subprocess.Popen[bytes]":
    """Start `oarsub` as a user, in the home directory of the instance."""
    account = pwd.getpwnam(user)
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(site.home),
        "TERM": "xterm",
        "LANG": "C.UTF-8",
        "PYTHONPATH": str(SOURCE),
        "OARLOCK_SERVER": str(site.state / "server.sock"),
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

    def __init__(self, site: Instance, user: str, *words: str, size: tuple[int, int] = (24, 80)) -> None:
        self.master, slave = pty.openpty()
        self.resize(*size)
        self.process = command_of(
            site,
            user,
            *words,
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
def terminal(site: Instance, user: str, *words: str, size: tuple[int, int] = (24, 80)) -> Iterator[Terminal]:
    """Run `oarsub` with these words in a terminal."""
    made = Terminal(site, user, *words, size=size)
    try:
        yield made
    finally:
        made.close()


def piped(site: Instance, user: str, *words: str, stdin: bytes = b"") -> tuple[int, str, str]:
    """Run `oarsub` without a terminal; give its exit code, output and error output."""
    process = command_of(site, user, *words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    out, err = process.communicate(stdin, timeout=SECONDS)
    return process.returncode, out.decode(errors="replace"), err.decode(errors="replace")


def job_of(shown: bytes) -> int:
    """Find the number of the job in what `oarsub` printed."""
    return int(shown.split(b"OAR_JOB_ID=")[1].split()[0])
