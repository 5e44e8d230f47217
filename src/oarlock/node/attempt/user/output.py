"""The end of what a job wrote, read by a process of its user: root never opens a file whose name a user chose."""

from __future__ import annotations

import os
import signal
import stat
from typing import NamedTuple

from oarlock.node.attempt.user.command import FDS
from oarlock.node.attempt.user.identity import become, resolve
from oarlock.node.attempt.user.notice import wait_ended
from oarlock.node.wire.channel import Body
from oarlock.node.wire.messages import BAD, NodeRequestRefused

LONGEST = 64 << 10
"""Bytes that are read from the end of a file."""

SECONDS = 5.0
"""How long it may take; a file server that hangs costs this and no more."""

_LONGEST_TOLD = 500
_END_SECONDS = 1.0


class OutputRequest(NamedTuple):
    """A file of a user. `uid`: as the server knows the user; another number here is refused."""

    user: str
    path: str
    uid: int | None = None

    def body(self) -> Body:
        """Return it as the body of a message."""
        return self._asdict()


def read(body: Body) -> OutputRequest:
    """Parse a request, or raise `NodeRequestRefused`."""
    user, path, uid = body.get("user"), body.get("path"), body.get("uid")
    texts = isinstance(user, str) and isinstance(path, str) and "\0" not in user + path
    if not texts or not (uid is None or type(uid) is int):
        raise NodeRequestRefused(BAD, "the request for an output cannot be read")
    if not os.path.isabs(str(path)):
        raise NodeRequestRefused(BAD, f"{path} is not an absolute path")
    return OutputRequest(str(user), str(path), uid)


def run(request: OutputRequest, wake: int, *, lowest_uid: int, seconds: float = SECONDS) -> Body:
    """Return the end of the file (`out`) and its `size`, or what went wrong (`says`).

    `wake` can be read when a child of this process ended.
    """
    out = os.memfd_create("output")
    reading, writing = os.pipe()
    try:
        pid = os.fork()
        if pid == 0:
            _child(request, lowest_uid, out, writing)
        os.close(writing)
        status = wait_ended(pid, wake, seconds)
        if status is None:
            os.kill(pid, signal.SIGKILL)
            wait_ended(pid, wake, _END_SECONDS)
            return {"out": "", "size": 0, "says": f"{request.path} could not be read within {seconds:g} s"}
        message = os.read(reading, _LONGEST_TOLD).decode(errors="replace")
        if status:
            return {"out": "", "size": 0, "says": message or f"{request.path} could not be read"}
        text = os.pread(out, LONGEST, 0).decode(errors="replace")
        return {"out": text, "size": int(message), "says": ""}
    finally:
        os.close(out)
        os.close(reading)


def _child(request: OutputRequest, lowest_uid: int, out: int, report: int) -> None:
    """Copy the end of the file and exit: the child never returns into the supervisor's code."""
    status = 1
    try:
        _copy(request, lowest_uid, out, report)
        status = 0
    except OSError as error:
        os.write(report, f"{request.path}: {error.strerror}".encode()[:_LONGEST_TOLD])
    except BaseException as error:  # noqa: BLE001 - the boundary of a forked child
        os.write(report, str(error).encode()[:_LONGEST_TOLD])
    finally:
        os._exit(status)


def _copy(request: OutputRequest, lowest_uid: int, out: int, report: int) -> None:
    os.setsid()
    user = resolve(request.user, request.uid, lowest=lowest_uid)
    first, last = sorted((out, report))
    os.closerange(3, first)
    os.closerange(first + 1, last)
    os.closerange(last + 1, FDS)
    become(user)
    os.chdir("/")
    # A FIFO would block without O_NONBLOCK; a link in the last place may point anywhere the user cannot write to.
    fd = os.open(request.path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC)
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        raise NodeRequestRefused(BAD, f"{request.path} is not a regular file")
    os.write(out, os.pread(fd, LONGEST, max(status.st_size - LONGEST, 0)))
    os.write(report, str(status.st_size).encode())
