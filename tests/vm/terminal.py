"""A user who logs in to a machine with a terminal, and types."""

import contextlib
import re
import subprocess
import threading
from collections.abc import Iterator

from tests.vm.machine import Machine
from tests.waiting import wait_until


class Terminal:
    """A command behind ssh with a terminal there."""

    def __init__(self, machine: Machine, user: str, command: str, seconds: float) -> None:
        words = machine.ssh("-tt", "-o", "BatchMode=yes", "-S", "none", "-l", user, "127.0.0.1", command)
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self._seconds = seconds
        self._printed = b""
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        while data := self._process.stdout.read1(4096):
            self._printed += data

    @property
    def printed(self) -> str:
        """What the terminal showed."""
        return self._printed.decode(errors="replace")

    def expect(self, pattern: str) -> None:
        """Wait until the terminal shows what fits the pattern."""
        wait_until(lambda: re.search(pattern, self.printed) or self._process.poll() is not None, seconds=self._seconds)
        assert re.search(pattern, self.printed), f"{pattern} is not in {self.printed}"

    def type_in(self, line: str) -> None:
        """Type a line."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n".encode())
        self._process.stdin.flush()

    def wait(self) -> int:
        """Wait until the command ended, and return with what."""
        return self._process.wait(self._seconds)

    def close(self) -> None:
        """Hang up, if it has not ended."""
        self._process.kill()
        self._process.wait()


@contextlib.contextmanager
def terminal(machine: Machine, user: str, command: str, seconds: float) -> Iterator[Terminal]:
    """Log in and run a command; hang up at the end."""
    made = Terminal(machine, user, command, seconds)
    try:
        yield made
    finally:
        made.close()
