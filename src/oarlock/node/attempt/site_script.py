"""Programs of the site that run as root around a job (prologue, epilogue): only files that root alone can write.

The file is opened, checked and executed through that one descriptor, so that it cannot be exchanged in between.
"""

from __future__ import annotations

import json
import os
import signal
import stat
from collections.abc import Callable
from typing import NamedTuple

from oarlock.node.cgroup.base import CgroupDriver, CgroupError
from oarlock.node.wire.channel import Body
from oarlock.node.wire.messages import EXIT, TIMEOUT, UNUSABLE, CgroupLimits, Launch

ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/", "SHELL": "/bin/sh", "LANG": "C.UTF-8"}

_EXEC = "cannot be executed: "
_SAFE_PLACE = "/etc/oarlock"


class UntrustedScript(Exception):
    """A program that cannot be run: missing, somebody else could have written it, or the kernel does not execute it."""


class ScriptProblem(NamedTuple):
    """What went wrong with a program of the site: a sentence, and a word for the server (`messages.UNUSABLE`, …)."""

    says: str
    cause: str


def why_unusable(path: str) -> str:
    """Return why a program of the site could not be run, or nothing."""
    try:
        os.close(open_trusted(path))
    except UntrustedScript as error:
        return str(error)
    return ""


def open_trusted(path: str) -> int:
    """Open a program of the site; raise `UntrustedScript` if others can write it or a directory above it."""
    if not os.path.isabs(path):
        raise UntrustedScript(f"{path} is not an absolute path")
    parts = os.path.realpath(path).strip("/").split("/")
    fd = os.open("/", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    for place, part in enumerate(parts):
        kind = os.O_DIRECTORY if place < len(parts) - 1 else 0
        try:
            # Each part below the descriptor of the one before, which was checked: nobody can exchange it on the way.
            # O_NONBLOCK, since a FIFO would wait for a writer.
            below = os.open(part, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | kind, dir_fd=fd)
        except OSError as error:
            raise UntrustedScript(f"{path} cannot be opened: {error.strerror}") from error
        finally:
            os.close(fd)
        fd = below
        _check(fd, "/" + "/".join(parts[: place + 1]))
    try:
        _check_program(fd, path)
    except UntrustedScript:
        os.close(fd)
        raise
    return fd


def _check_program(fd: int, path: str) -> None:
    mode = os.fstat(fd).st_mode
    if not stat.S_ISREG(mode):
        raise UntrustedScript(f"{path} is not a regular file")
    if not mode & 0o111:
        raise UntrustedScript(f"{path} is not executable: `chmod +x {path}`")
    first, *_ = os.pread(fd, 256, 0).split(b"\n")
    words = first[2:].split()
    if first.startswith(b"#!") and words and not os.path.exists(words[0]):
        raise UntrustedScript(
            f"{path} cannot be executed: its interpreter {words[0].decode(errors='replace')} is missing"
        )


def describe_exit(status: int) -> str:
    """Describe a raw wait status in words: `exit 3`, `signal 9 (SIGKILL)`."""
    if os.WIFEXITED(status):
        return f"exit {os.WEXITSTATUS(status)}"
    number = os.WTERMSIG(status)
    name = next(
        (candidate.name for candidate in signal.Signals if candidate == number), ""
    )  # real-time signals have none
    return f"signal {number} ({name})" if name else f"signal {number}"


def _check(fd: int, path: str) -> None:
    info = os.fstat(fd)
    if info.st_uid not in {0, os.geteuid()} or info.st_mode & 0o022:
        os.close(fd)
        raise UntrustedScript(f"{path} may be written by others than root: {suggest_fix(path, info)}")


def suggest_fix(path: str, info: os.stat_result) -> str:
    """Return what an administrator can do about a file or folder that others can write.

    A folder with the sticky bit is meant to be everybody's (`/tmp`): taking that away would break other programs.
    """
    if stat.S_ISDIR(info.st_mode) and info.st_mode & stat.S_ISVTX:
        return f"it is a folder for everybody; move the file to one that only root can write, such as {_SAFE_PLACE}"
    owner = "" if info.st_uid in {0, os.geteuid()} else f"chown root {path}"
    mode = f"chmod go-w {path}" if info.st_mode & 0o022 else ""
    return f"`{' && '.join(command for command in (owner, mode) if command)}`"


def start(
    path: str, arguments: list[str], body: Body, variables: dict[str, str], join: Callable[[], object], out: int = -1
) -> int:
    """Start a program of the site with JSON on its stdin; return its PID. It leads a session of its own.

    What it prints goes to `out`, or nowhere. `UntrustedScript` if it cannot be executed.
    """
    program = open_trusted(path)
    # Not a pipe: a script that reads nothing would block whoever writes a long job into it.
    stdin = os.memfd_create("job")
    os.write(stdin, json.dumps(body).encode())
    os.lseek(stdin, 0, os.SEEK_SET)
    status, complaint = os.pipe()  # exec closes it: an end of file without a message means that the program runs
    pid = os.fork()
    if pid == 0:
        says = "its group cannot be entered: "
        try:
            os.setsid()
            join()
            says = _EXEC
            _execute(program, stdin, out, [path, *arguments], {**ENVIRONMENT, **variables})
        except OSError as error:
            os.write(complaint, f"{says}{error.strerror}".encode())
        finally:
            os._exit(126)
    for fd in (program, stdin, complaint):
        os.close(fd)
    why = os.read(status, 512).decode(errors="replace")
    os.close(status)
    if why:
        os.waitpid(pid, 0)
        raise UntrustedScript(f"{path} {why}") if why.startswith(_EXEC) else OSError(why)
    return pid


def _execute(program: int, stdin: int, out: int, arguments: list[str], environment: dict[str, str]) -> None:
    os.chdir("/")
    os.umask(0o022)
    null = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
    for fd, at in ((stdin, 0), (null if out < 0 else out, 1), (null, 2)):
        os.dup2(fd, at, inheritable=True)
    os.set_inheritable(program, True)  # an interpreter opens the script a second time, by this number
    os.execve(f"/proc/self/fd/{program}", arguments, environment)


_KILL_AFTER = 10.0  # seconds between TERM and KILL
_EMPTY_SECONDS = 60.0

Wait = Callable[[int, float], "int | None"]
"""Waits so many seconds for a process; gives its status, or `None`."""


class HookContext(NamedTuple):
    """Which script runs, and for which job."""

    word: str  # `prologue` or `epilogue`
    path: str
    launch: Launch
    node: str
    node_file: str

    def arguments(self) -> list[str]:
        """OAR's four: job, user, node file, walltime."""
        launch = self.launch
        return [str(launch.job), launch.user, self.node_file, str(launch.walltime)]

    def body(self) -> Body:
        """The job as JSON, without what is the user's own business."""
        fields = {**self.launch.body(), "hook": self.word, "node": self.node}
        return {name: value for name, value in fields.items() if name not in {"secret", "environment", "command"}}


def run_hook(context: HookContext, driver: CgroupDriver, wait: Wait) -> ScriptProblem | None:
    """Run a script to its end or its deadline; return what went wrong, if anything did."""
    job, path, seconds = context.launch.job, context.path, context.launch.hooks.timeout
    variables = {"OARLOCK_JOB_ID": str(job), "OARLOCK_HOOK": context.word}
    try:
        group = driver.create(f"{context.word}.{job}", CgroupLimits())
        pid = start(path, context.arguments(), context.body(), variables, group.join)
    except UntrustedScript as error:
        return ScriptProblem(str(error), UNUSABLE)
    except (CgroupError, OSError) as error:
        return ScriptProblem(f"{path}: {error}", "")
    status = wait(pid, seconds)
    if status is None:
        group.signal(signal.SIGTERM)
        wait(pid, _KILL_AFTER)
    group.kill()
    if group.wait_empty(_EMPTY_SECONDS):
        group.remove()
    if status is None:
        return ScriptProblem(f"{path} did not end within {seconds} s", TIMEOUT)
    return ScriptProblem(f"{path} ended with {describe_exit(status)}", EXIT) if status else None
