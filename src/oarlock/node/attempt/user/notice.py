"""Notices by program: what a user gave as `--notify exec:…` runs as that user, in a group of its own, with a deadline.

Arguments are a list from the server's hands to exec: no shell reads them.
"""

from __future__ import annotations

import os
import select
import time
from typing import NamedTuple

from oarlock.node.attempt import site_script
from oarlock.node.attempt.link import drain
from oarlock.node.attempt.user.command import FDS
from oarlock.node.attempt.user.environment import PATH
from oarlock.node.attempt.user.identity import User, become, resolve
from oarlock.node.cgroup.base import CgroupDriver, CgroupError, JobCgroup
from oarlock.node.wire.channel import Body
from oarlock.node.wire.messages import BAD, CgroupLimits, NodeRequestRefused

SECONDS = 30.0
"""How long a program may take."""

_LIMITS = CgroupLimits(memory=1 << 30, pids=256)
_EMPTY_SECONDS = 10.0
_LONGEST_TOLD = 500


class Notice(NamedTuple):
    """A program to be run for a user, with all its arguments."""

    job: int
    user: str
    program: str
    arguments: tuple[str, ...]
    uid: int | None = None  # as the server knows the user; another number here is refused

    def body(self) -> Body:
        """Return it as the body of a message."""
        return self._asdict()


def read(body: Body) -> Notice:
    """Parse a notice, or raise `NodeRequestRefused`."""
    job, uid, words = body.get("job"), body.get("uid"), body.get("arguments")
    texts = [body.get("user"), body.get("program"), *(words if isinstance(words, list) else [None])]
    if type(job) is not int or not (uid is None or type(uid) is int) or not all(map(_is_word, texts)):
        raise NodeRequestRefused(BAD, "the notice cannot be read")
    user, program, *arguments = map(str, texts)
    if not os.path.isabs(program):
        raise NodeRequestRefused(BAD, f"{program} is not an absolute path")
    return Notice(job, user, program, tuple(arguments), uid)


def _is_word(word: object) -> bool:
    return isinstance(word, str) and "\0" not in word


def run(notice: Notice, driver: CgroupDriver, wake: int, *, lowest_uid: int, seconds: float = SECONDS) -> str:
    """Run the program to its end or its deadline; return what went wrong, or an empty text.

    `wake` can be read when a child of this process ended. Nothing the program started is left behind.
    """
    try:
        group = driver.create(f"notice.{notice.job}.{os.getpid()}", _LIMITS)
    except (CgroupError, OSError) as error:
        return str(error)
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        _child(notice, group, lowest_uid, writing)
    os.close(writing)
    status = wait_ended(pid, wake, seconds)
    remove_group(group)
    if status is None:
        os.waitpid(pid, 0)
    message = os.read(reading, _LONGEST_TOLD).decode(errors="replace")
    os.close(reading)
    return _problem(notice.program, status, message, seconds)


def _problem(program: str, status: int | None, message: str, seconds: float) -> str:
    if message:
        return message
    if status is None:
        return f"{program} did not end within {seconds:g} s"
    return f"{program} ended with {site_script.describe_exit(status)}" if status else ""


def remove_group(group: JobCgroup) -> None:
    """Kill what is left in the group of a program, and remove it."""
    group.kill()
    if group.wait_empty(_EMPTY_SECONDS):
        group.remove()


def wait_ended(pid: int, wake: int, seconds: float) -> int | None:
    """Wait for a child; `None` when its time is over."""
    end = time.monotonic() + seconds
    watch = select.poll()
    watch.register(wake, select.POLLIN)
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        left = end - time.monotonic()
        if ended or left <= 0:
            return status if ended else None
        watch.poll(left * 1000 + 1)
        drain(wake)


def _child(notice: Notice, group: JobCgroup, lowest_uid: int, status: int) -> None:
    """Exec the program or exit: the child never returns into the supervisor's code."""
    try:
        _go(notice, group, lowest_uid, keep=status)
    except OSError as error:
        os.write(status, f"{notice.program} cannot be run: {error.strerror}".encode()[:_LONGEST_TOLD])
    except BaseException as error:  # noqa: BLE001 - the boundary of a forked child
        os.write(status, str(error).encode()[:_LONGEST_TOLD])
    finally:
        os._exit(127)


def _go(notice: Notice, group: JobCgroup, lowest_uid: int, *, keep: int) -> None:
    os.setsid()
    group.join()
    user = resolve(notice.user, notice.uid, lowest=lowest_uid)
    os.umask(0o022)
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for at in (0, 1, 2):
        os.dup2(null, at, inheritable=True)
    os.closerange(3, keep)
    os.closerange(keep + 1, FDS)
    become(user)
    _go_home(user)
    os.execve(notice.program, [notice.program, *notice.arguments], _environment(user))


def _go_home(user: User) -> None:
    try:
        os.chdir(user.home)
    except OSError:
        os.chdir("/")


def _environment(user: User) -> dict[str, str]:
    names = {"HOME": user.home, "USER": user.name, "LOGNAME": user.name, "SHELL": user.shell}
    return {"PATH": PATH, "LANG": "C.UTF-8", **names}
