"""The part of the demonstration that needs a terminal: a shell in a job on two nodes, and `oarsh` to the second one."""

import os
import pwd
import select
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from oarlock.model.errors import OarlockError

_CONNECTED = b"Connect to OAR job"
_SECONDS = 60.0
_QUIET = 0.3  # seconds without output after which the next line is typed
_OARSUB = "import sys; from oarlock.cli.jobs.oarsub import main; sys.exit(main())"


class ShellFailed(OarlockError):
    """A shell of the demonstration that did not do what it should."""


class ShellPlace(NamedTuple):
    """Where the demonstration is: its socket, who runs its jobs, in which directory, and two of its nodes."""

    socket: Path
    user: str
    home: Path
    nodes: tuple[str, str]


class _TypedLine(NamedTuple):
    """A line that is typed into the shell, and what has to appear then."""

    line: str
    shows: bytes


def has_terminal() -> bool:
    """Return whether somebody sits at a terminal."""
    return os.isatty(0) and os.isatty(1)


def show_shell(place: ShellPlace, say: Callable[[str], None]) -> None:
    """Open a shell in a job, type into it as a user would, and show everything that appears; raise `ShellFailed`."""
    first, second = place.nodes
    say(f"An interactive job on {first} and {second}: what follows is typed into its shell.")
    lines = [
        _TypedLine("uniq $OAR_NODEFILE", second.encode()),
        _TypedLine(f"oarsh {second} 'id -un; echo job $OAR_JOB_ID; dirname $OARSH_SOCKET'", f"/run/{second}".encode()),
        _TypedLine("exit", b"Disconnected from OAR job"),
    ]
    master, slave = os.openpty()
    try:
        with _oarsub(place, stdin=slave, stdout=slave, stderr=slave, start_new_session=True) as process:
            os.close(slave)
            missing = _converse(master, lines)
            if missing:
                process.kill()
    finally:
        os.close(master)
    if missing or process.returncode:
        why = f"`{missing}` did not show what it should" if missing else f"oarsub ended with {process.returncode}"
        raise ShellFailed(f"The shell of the demonstration failed: {why}.")
    say(f"A shell in a job, and a command on {second} by `oarsh`: no key, no ssh.")


def give_shell(place: ShellPlace, say: Callable[[str], None]) -> None:
    """Hand the terminal over to a shell in a job, until its user leaves it."""
    first, second = place.nodes
    say(f"Your turn: a shell in a job on {first} and {second}. Try `oarsh {second}`, `oarstat`; `exit` leaves it.")
    with _oarsub(place) as process:
        process.wait()


def _oarsub(place: ShellPlace, **streams: Any) -> "subprocess.Popen[bytes]":
    account = pwd.getpwnam(place.user)
    nodes = ", ".join(f"'{node}'" for node in place.nodes)
    words = ["-I", "-n", "demo", "-p", f"network_address IN ({nodes})", "-l", "/network_address=2,walltime=0:30:0"]
    kept = ("PATH", "PYTHONPATH", "TERM", "LANG", "LC_ALL")
    environment = {name: os.environ[name] for name in kept if name in os.environ}
    own = {"HOME": account.pw_dir, "USER": place.user, "OARLOCK_SERVER": str(place.socket)}
    numbers = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
    become: dict[str, Any] = numbers if os.geteuid() == 0 else {}
    try:
        return subprocess.Popen(  # noqa: S603 - our own oarsub, as the user of the demonstration
            [sys.executable, "-P", "-c", _OARSUB, *words], cwd=place.home, env=environment | own, **become, **streams
        )
    except OSError as problem:
        raise ShellFailed(
            f"{place.user} cannot run {sys.executable}: {problem.strerror}.",
            hint="Install Oarlock where every user can read it, or do without the shell: `oarlock demo --tour | cat`.",
        ) from problem


def _converse(master: int, lines: Sequence[_TypedLine]) -> str:
    """Type line after line, each once the one before has shown what it should; return the line that did not."""
    left, shown, wanted = list(lines), b"", _TypedLine("oarsub -I", _CONNECTED)
    end = time.monotonic() + _SECONDS
    while time.monotonic() < end:
        is_complete = wanted.shows in shown
        if select.select([master], [], [], _QUIET)[0]:
            data = _read(master)
            if not data:
                return "" if is_complete and not left else wanted.line
            shown += data
            os.write(1, data)
        elif is_complete and left:
            wanted, shown = left.pop(0), b""
            os.write(master, f"{wanted.line}\n".encode())
    return wanted.line


def _read(master: int) -> bytes:
    try:
        return os.read(master, 1 << 16)
    except OSError:  # EIO: nobody has the other end open any more
        return b""
