"""How every command runs: options, one call, one print; a refusal is a sentence, a way out and an exit code.

Nothing else prints: commands hand over lines, tables and plain data.
"""

from __future__ import annotations

import errno
import os
import sys

from oarlock.client import Client, RequestRefused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, TextIO

    from oarlock.cli.options import CommandOptions, ParsedOptions

    Run = Callable[[Client, ParsedOptions, "CommandOutput"], None]


_UNWRITABLE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF}
LONGEST_NOTE = 600
"""Letters of a line on standard error."""


class CommandOutput:
    """Standard output, standard error and the exit code of one command.

    Lines are kept and written together, since a write a line is what makes long lists slow.
    """

    def __init__(self, command: str, form: str = "") -> None:
        self.command, self.form = command, form
        self.code = 0
        self._kept: list[str] = []

    def line(self, text: str = "") -> None:
        """Print one line. What a terminal would obey is shown, not sent: names and commands are other people's."""
        self._kept.append(text if text.isprintable() else _shown(text))

    def data(self, value: Any) -> None:
        """Print plain data in the format that was asked for."""
        from oarlock.cli.layout.formats import written

        self._kept.append(written(value, self.form).removesuffix("\n"))

    def text(self, text: str) -> None:
        """Print a text of our own as it stands."""
        self._kept.append(text.removesuffix("\n"))

    def note(self, sentence: str, hint: str = "") -> None:
        """Print a note for people on standard error; it is not part of the result."""
        self.flush()
        lines = [f"{self.command}: {sentence}"] + [f"  {line}" for line in hint.splitlines()]
        short = [_shortened(line) for line in _lines(lines)]
        try:
            _write(sys.stderr, "".join(f"{line if line.isprintable() else _shown(line)}\n" for line in short))
        except OSError:  # there is nowhere else to say it
            return

    def refuse(self, refused: RequestRefused) -> None:
        """Print a refusal and its way out; the first refusal decides the exit code."""
        self.note(str(refused), refused.hint)
        self.fail(refused.kind)

    def refuse_job(self, job: Any) -> None:
        """Print why nothing was done to a job."""
        self.refuse(RequestRefused(job["says"], kind=job.get("kind") or "RequestRefused", hint=job.get("hint") or ""))

    def fail(self, kind: str) -> None:
        """End with the code of this kind, unless something failed before."""
        from oarlock.cli.exit_codes import exit_code

        self.code = self.code or exit_code(self.command, kind)

    def flush(self) -> None:
        """Write what is kept. A reader that has left (`| head`) is no error to report."""
        kept, self._kept = self._kept, []
        if not kept:
            return
        try:
            _write(sys.stdout, "\n".join(kept) + "\n")
        except BrokenPipeError:
            self.fail("NobodyReads")
        except OSError as why:  # a full disk, most often
            self.refuse(not_printed(why))


def not_printed(why: OSError) -> RequestRefused:
    """Return the refusal for output that cannot be written, though what was asked for is done by then."""
    sentence = f"The output of this command cannot be written: {why.strerror}."
    return RequestRefused(sentence, kind="NotPrinted", hint="What was asked for is done; look where the output leads.")


def open_standard_files() -> None:
    """Open those of the three standard files that the caller closed, so that nothing else gets their numbers."""
    for fd in range(3):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free, which is this one
    sys.stdin = sys.stdin or open(0, closefd=False)  # noqa: SIM115 - they are open until the end
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115


def _write(stream: TextIO, text: str) -> None:
    """Write all of it. With PYTHONUNBUFFERED set, Python's own streams drop what a full pipe does not take at once."""
    left = memoryview(text.encode(stream.encoding, "backslashreplace"))
    while left:
        try:
            left = left[os.write(stream.fileno(), left) :]
        except BlockingIOError:  # somebody else made the terminal non-blocking
            from select import select

            select([], [stream], [])


def show_text(text: str, file: TextIO | None = None) -> None:
    """Print lines at once, for commands that have no `Output`. What a terminal would obey is shown, not sent."""
    stream = file or sys.stdout
    printable = "\n".join(line if line.isprintable() else _shown(line) for line in text.split("\n"))
    encoding = stream.encoding or "utf-8"
    print(printable.encode(encoding, "backslashreplace").decode(encoding), file=stream)


def unless_nobody_reads(run: Callable[[], int]) -> int:
    """Run a command that prints as it goes and return its exit code. A reader that has left (`| head`) ends it quietly.

    What is left in the buffers is written here, since Python itself would end with a traceback.
    """
    open_standard_files()
    try:
        try:
            return run()
        finally:
            for stream in filter(None, (sys.stdout, sys.stderr)):
                stream.flush()
    except OSError as why:
        if why.errno in _UNWRITABLE and why.filename is None:
            return _tell_not_printed(why)
        if not isinstance(why, BrokenPipeError):
            raise
        left = [stream for stream in (sys.stdout, sys.stderr) if stream is not None and _has_no_reader(stream)]
        if not left:
            raise  # another pipe, or a socket
        _discard(left)
    from oarlock.cli.exit_codes import BAD_COMMAND_LINE

    return BAD_COMMAND_LINE["NobodyReads"]


def _tell_not_printed(why: OSError) -> int:
    refused = not_printed(why)
    _discard([stream for stream in (sys.stdout,) if stream is not None])
    CommandOutput(os.path.basename(sys.argv[0])).note(str(refused), refused.hint)
    from oarlock.cli.exit_codes import BAD_COMMAND_LINE

    return BAD_COMMAND_LINE["NotPrinted"]


def _has_no_reader(stream: TextIO) -> bool:
    from select import POLLERR, poll

    look = poll()
    try:
        look.register(stream, 0)
    except (OSError, ValueError):  # not a file of the system's
        return False
    return any(happened & POLLERR for _, happened in look.poll(0))


def _discard(streams: Sequence[TextIO]) -> None:
    """Send what is still in the buffers of streams nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in streams:
        os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def _lines(lines: list[str]) -> list[str]:
    return [line for text in lines for line in text.split("\n")]


def _shortened(line: str) -> str:
    """Cut the middle out of a line that nobody would read to its end: a refusal names the value, however long."""
    return line if len(line) <= LONGEST_NOTE else f"{line[: LONGEST_NOTE // 2]} … {line[-LONGEST_NOTE // 2 :]}"


def _shown(text: str) -> str:
    return "".join(c if c.isprintable() or c == "\t" else c.encode("unicode_escape").decode("ascii") for c in text)


def main(options: CommandOptions, run: Run) -> int:
    """Run a command on the words it was called with; gives its exit code."""
    open_standard_files()
    out = CommandOutput(options.command)
    try:
        _ran(options, run, out)
    except RequestRefused as refused:
        out.refuse(refused)
    except KeyboardInterrupt:
        out.fail("Interrupted")
    out.flush()
    return out.code


def _ran(options: CommandOptions, run: Run, out: CommandOutput) -> None:
    arguments = options.parse(sys.argv[1:])
    if arguments.given("help"):
        from oarlock.cli.options import help_text

        out.text(help_text(options))
    elif arguments.given("version"):
        from oarlock import __version__

        out.line(f"Oarlock version : {__version__}")
    else:
        out.form = arguments.format
        run(Client(arguments.text("server")), arguments, out)
