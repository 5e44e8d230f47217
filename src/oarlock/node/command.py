"""From fork to exec: how the user's command begins. Everything here runs in the child; root ends in the middle of it.

The child tells the supervisor of a failure through a socket that exec closes; nothing on it and its end mean that the
user's code runs. Before, it says as whom it runs, so that the next child need not ask the site's directory service
again; and it hands over a copy of its stderr, so that the supervisor can write to the user's file without ever opening
one.
"""

from __future__ import annotations

import json
import os
import socket
import stat
from typing import Callable, NamedTuple

from oarlock.node.cgroup import Group
from oarlock.node.environment import Files, TooMuch, node_file, property_file, variables
from oarlock.node.messages import Launch
from oarlock.node.spool import write_all
from oarlock.node.user import User, UserRefused, become, resolve

_LOGIN_FLAG = {"bash": ["-l"]}
"""A dash before the name makes every shell a login shell, but bash, with a command, may be built to want the flag."""

_OUTPUT = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK
FDS = 256
"""More descriptors than a supervisor ever has open."""

LONGEST_SAID = 32 << 10
"""Bytes in a message of the child; who is in thousands of groups is looked up each time."""

_OOM_SCORE = "500"  # when the node runs out of memory a job goes before what keeps the node alive


class CannotStart(Exception):
    """A step before the user's code failed: the manual's event and a sentence."""

    def __init__(self, event: str, says: str) -> None:
        super().__init__(says)
        self.event = event


class Begun(NamedTuple):
    """A child on its way to the user's command, and the socket on which it would complain."""

    pid: int
    status: socket.socket


class Made(NamedTuple):
    """What needs no child: made before the fork, because every page a child writes is copied for it."""

    texts: dict[str, str]  # file -> what stands in it
    environment: dict[str, str]  # all but HOME and SHELL


def begin(launch: Launch, group: Group, files: Files, known: User | None = None, *, lowest_uid: int) -> Begun:
    """Fork the child; it says on its socket what it cannot do. Who is not `known` is looked up there: that may hang."""
    made = _made(launch, group, files)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pid = os.fork()
    if pid == 0:
        _child(launch, group, made, theirs, lambda: known or _found(launch, lowest_uid, theirs))
    theirs.close()
    ours.setblocking(False)
    return Begun(pid, ours)


def _made(launch: Launch, group: Group, files: Files) -> Made:
    try:
        environment = variables(launch, home="", shell="", files=files, cpuset=group.path)
    except TooMuch as refusal:
        raise CannotStart("USER_SHELL", str(refusal)) from refusal
    return Made({files.nodes: node_file(launch), files.resources: property_file(launch)}, environment)


def _child(launch: Launch, group: Group, made: Made, status: socket.socket, find: Callable[[], User]) -> None:
    """Go all the way or die: whatever happens, the child never returns into the supervisor's code."""
    try:
        _go(launch, group, made, status, find)
    except CannotStart as failure:
        _complain(status, failure.event, str(failure))
    except BaseException as failure:  # noqa: BLE001 - the boundary of a forked child
        _complain(status, "EXIT_VALUE_OAREXEC", f"{type(failure).__name__}: {failure}")
    finally:
        os._exit(127)


def _complain(status: socket.socket, event: str, says: str) -> None:
    status.send(json.dumps([event, says]).encode())


def _go(launch: Launch, group: Group, made: Made, status: socket.socket, find: Callable[[], User]) -> None:
    os.setsid()
    _step("CPUSET_ERROR", group.join)
    user = find()
    write_files(made.texts, user)
    _raise_oom_score()
    os.umask(0o022)
    _close_others(keep=status.fileno())  # what is opened later closes at exec
    become(user)
    _step("WORKING_DIRECTORY", lambda: os.chdir(launch.directory))
    out, err = opened(launch.stdout), opened(launch.stderr)
    shell, arguments = _login_shell(user, launch.command)
    environment = {**made.environment, "HOME": user.home, "SHELL": user.shell}
    socket.send_fds(status, [b"!"], [err])
    _wire(out, err)
    _step("USER_SHELL", lambda: os.execve(shell, arguments, environment))


def _step(event: str, step: Callable[[], object]) -> None:
    """Do one thing; its failure is the event named."""
    try:
        step()
    except OSError as error:
        raise CannotStart(event, str(error)) from error


def _found(launch: Launch, lowest_uid: int, status: socket.socket) -> User:
    """Look the user up, and say who that is while nobody but root can speak here."""
    try:
        user = resolve(launch.user, launch.uid, lowest=lowest_uid)
    except UserRefused as refusal:
        raise CannotStart("USER_SHELL", str(refusal)) from refusal
    text = json.dumps(user._asdict()).encode()
    if len(text) <= LONGEST_SAID:
        status.send(text)
    return user


def write_files(texts: dict[str, str], user: User) -> None:
    """Write node and property file for the user to read, in a directory where only root writes."""
    try:
        for path, text in texts.items():
            _write_file(path, text, user)
    except OSError as error:
        raise CannotStart("CAN_NOT_WRITE_NODE_FILE", str(error)) from error


def _write_file(path: str, text: str, user: User) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o400)
    try:
        write_all(fd, text.encode())
        if os.geteuid() == 0:
            os.fchown(fd, user.uid, user.gid)
    finally:
        os.close(fd)


def _raise_oom_score() -> None:
    try:
        fd = os.open("/proc/self/oom_score_adj", os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        return
    os.write(fd, _OOM_SCORE.encode())
    os.close(fd)


def opened(name: str) -> int:
    """Open an output as the user: appended to, never through a link in its last place, never anything but a file."""
    if not name:
        return os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
    try:
        fd = os.open(name, _OUTPUT, 0o666)
    except (OSError, ValueError) as error:
        raise CannotStart("OUTPUT_FILES", f"{name}: {error}") from error
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        raise CannotStart("OUTPUT_FILES", f"{name} is not a regular file")
    os.set_blocking(fd, True)  # it was opened so only that a FIFO cannot hold us
    return fd


def _login_shell(user: User, command: str) -> tuple[str, list[str]]:
    name = os.path.basename(user.shell)
    return user.shell, [f"-{name}", *_LOGIN_FLAG.get(name, []), "-c", command]


def _wire(out: int, err: int) -> None:
    null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    for fd, at in ((null, 0), (out, 1), (err, 2)):
        os.dup2(fd, at, inheritable=True)


def _close_others(*, keep: int) -> None:
    """Close all but the standard three and one; a supervisor has only a handful open."""
    os.closerange(3, keep)
    os.closerange(keep + 1, FDS)


def heard(said: bytes) -> User | CannotStart:
    """Read what a child said: as whom it runs, or why it cannot."""
    try:
        found = json.loads(said)
        if isinstance(found, dict):
            return User(**{**found, "groups": tuple(found["groups"])})
        event, says = found
    except (ValueError, TypeError, KeyError):
        event, says = "EXIT_VALUE_OAREXEC", f"the child said {said[:60]!r}"
    return CannotStart(str(event), str(says))
