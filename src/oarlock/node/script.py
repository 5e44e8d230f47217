"""Programs of the site that run as root around a job: only what nobody else could have written.

The file is opened, checked and executed through that one descriptor, so that it cannot be exchanged in between.
"""

from __future__ import annotations

import json
import os
import signal
import stat
from typing import Callable

from oarlock.node.channel import Body

ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/", "SHELL": "/bin/sh", "LANG": "C.UTF-8"}


class Untrusted(Exception):
    """A file that somebody else could have written, or that is none."""


def trusted(path: str) -> int:
    """Open a program of the site; every directory on the way must be as safe as itself."""
    if not os.path.isabs(path):
        raise Untrusted(f"{path} is not an absolute path")
    parts = os.path.realpath(path).strip("/").split("/")
    fd = os.open("/", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    for place, part in enumerate(parts):
        kind = os.O_DIRECTORY if place < len(parts) - 1 else 0
        try:
            below = os.open(part, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | kind, dir_fd=fd)
        except OSError as error:
            raise Untrusted(f"{path} cannot be opened: {error.strerror}") from error
        finally:
            os.close(fd)
        fd = below
        _check(fd, "/" + "/".join(parts[: place + 1]))
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise Untrusted(f"{path} is not a regular file")
    return fd


def describe_exit(status: int) -> str:
    """Return a raw wait status in words: `exit 3`, `signal 9 (SIGKILL)`."""
    if os.WIFEXITED(status):
        return f"exit {os.WEXITSTATUS(status)}"
    number = os.WTERMSIG(status)
    name = next((known.name for known in signal.Signals if known == number), "")  # real-time signals have none
    return f"signal {number} ({name})" if name else f"signal {number}"


def _check(fd: int, path: str) -> None:
    found = os.fstat(fd)
    if found.st_uid not in {0, os.geteuid()} or found.st_mode & 0o022:
        os.close(fd)
        raise Untrusted(f"{path} may be written by others than root")


def start(
    path: str, arguments: list[str], body: Body, variables: dict[str, str], join: Callable[[], object], out: int = -1
) -> int:
    """Start a program of the site with JSON on its stdin; give its process. It is the head of its own session.

    What it prints goes to `out`, or nowhere.
    """
    program = trusted(path)
    given = os.memfd_create("job")
    os.write(given, json.dumps(body).encode())
    os.lseek(given, 0, os.SEEK_SET)
    pid = os.fork()
    if pid == 0:
        try:
            os.setsid()
            join()
            _execute(program, given, out, [path, *arguments], {**ENVIRONMENT, **variables})
        finally:
            os._exit(126)
    os.close(program)
    os.close(given)
    return pid


def _execute(program: int, given: int, out: int, arguments: list[str], environment: dict[str, str]) -> None:
    os.chdir("/")
    os.umask(0o022)
    null = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
    for fd, at in ((given, 0), (null if out < 0 else out, 1), (null, 2)):
        os.dup2(fd, at, inheritable=True)
    os.set_inheritable(program, True)  # an interpreter opens the script a second time, by this number
    os.execve(f"/proc/self/fd/{program}", arguments, environment)
