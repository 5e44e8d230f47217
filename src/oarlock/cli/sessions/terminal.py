"""The terminal of the user: raw while a session has it, and as it was before in the end."""

from __future__ import annotations

import fcntl
import os
import signal
import struct
import termios
import tty

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType

INTERRUPT = b"\x03"
_LEAVING = (signal.SIGTERM, signal.SIGHUP)


class Left(Exception):
    """The user, or a signal, ended the client."""


class LocalTerminal:
    """Standard input and output of this process; signals make `wake` readable."""

    input = 0

    def __init__(self, *, wanted: bool = True) -> None:
        self.is_terminal = wanted and os.isatty(0)
        self._before: list[object] | None = None
        self.wake, self._waking = os.pipe()
        for fd in (self.wake, self._waking):
            os.set_blocking(fd, False)
        self._handlers = {
            number: signal.signal(number, self._on_signal) for number in (signal.SIGWINCH, signal.SIGCONT, *_LEAVING)
        }

    def size(self) -> tuple[int, int]:
        """Return rows and columns."""
        rows, columns, _, _ = struct.unpack("HHHH", fcntl.ioctl(0, termios.TIOCGWINSZ, b"\0" * 8))
        return rows, columns

    def describe(self) -> dict[str, object]:
        """Return what the terminal of a session is to be like; nothing where there is no terminal."""
        if not self.is_terminal:
            return {}
        from oarlock.node.wire.terminal_modes import read_modes

        return {"terminal": list(self.size()), "modes": read_modes(0)}

    def make_raw(self) -> None:
        """Pass every key on as it is typed."""
        if self.is_terminal and self._before is None:
            self._before = termios.tcgetattr(0)
            tty.setraw(0, termios.TCSADRAIN)

    def restore(self) -> None:
        """Return the terminal to the state before."""
        before, self._before = self._before, None
        if before is not None:
            termios.tcsetattr(0, termios.TCSADRAIN, before)  # type: ignore[arg-type]  # as tcgetattr returned it

    def close(self) -> None:
        """Return terminal and signals to the state before."""
        self.restore()
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        os.close(self.wake)
        os.close(self._waking)

    def drain_wake(self) -> None:
        """Empty the pipe that signals write to."""
        try:
            os.read(self.wake, 4096)
        except BlockingIOError:
            return

    def write(self, data: bytes, *, to: int = 1) -> None:
        """Write all of it."""
        left = memoryview(data)
        while left:
            try:
                left = left[os.write(to, left) :]
            except BlockingIOError:  # somebody else made the terminal non-blocking
                from select import select

                select([], [to], [])
            except OSError:  # nobody reads any more, or the terminal is gone
                raise Left from None

    def tell(self, line: str) -> None:
        """Print a line of ours, on a line of its own; a raw terminal needs the carriage return."""
        text = "".join(c if c.isprintable() else "?" for c in line)
        self.write(f"\r\n{text}\r\n".encode() if self._before is not None else f"{text}\n".encode(), to=2)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if number in _LEAVING:
            raise Left
        if number == signal.SIGCONT and self._before is not None:
            tty.setraw(0, termios.TCSADRAIN)  # the shell of this terminal had set its own modes
        try:
            os.write(self._waking, b"!")
        except BlockingIOError:
            return


class PipeEnds:
    """In the place of a terminal: a session whose input and output are pipes of this process."""

    is_terminal = False

    def __init__(self, source: int, sink: int) -> None:
        self.input, self._sink = source, sink
        self.wake, self._never = os.pipe()

    def size(self) -> tuple[int, int]:
        """Return the size of a terminal that nobody looks at."""
        return 24, 80

    def describe(self) -> dict[str, object]:
        """Return what the session's terminal is to be like: there is none."""
        return {}

    def make_raw(self) -> None:
        """Do nothing: there is no terminal."""

    def restore(self) -> None:
        """Do nothing: there is no terminal."""

    def drain_wake(self) -> None:
        """Do nothing: nothing wakes it."""

    def close(self) -> None:
        """Close our ends."""
        for fd in (self.input, self._sink, self.wake, self._never):
            os.close(fd)

    def write(self, data: bytes, *, to: int = 1) -> None:
        """Write output; error output has no reader."""
        while data and to == 1:
            data = data[os.write(self._sink, data) :]

    def tell(self, line: str) -> None:
        """Do nothing: the session of the shell prints such lines."""


class EscapeFilter:
    """Finds `~.` at the beginning of a line, by which users of ssh leave a connection that hangs; `~~` sends one."""

    def __init__(self) -> None:
        self._at_begin, self._held = True, False
        self.is_leaving = False

    def feed(self, data: bytes) -> bytes:
        """Return the keys to pass on."""
        if not self._held and not (self._at_begin and data[:1] == b"~") and b"\r~" not in data and b"\n~" not in data:
            self._at_begin = data[-1:] in (b"\r", b"\n")  # nothing to look at: pastes are long
            return data
        passed = bytearray()
        for byte in data:
            self._take(byte, passed)
        return bytes(passed)

    def _take(self, byte: int, passed: bytearray) -> None:
        if self._held:
            self._held = False
            if byte == ord("."):
                self.is_leaving = True
                return
            if byte != ord("~"):
                passed.append(ord("~"))
            passed.append(byte)
        elif self._at_begin and byte == ord("~"):
            self._held = True
            return
        else:
            passed.append(byte)
        self._at_begin = byte in b"\r\n"
