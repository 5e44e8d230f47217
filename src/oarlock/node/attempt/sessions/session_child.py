"""From fork to exec of a session: a shell or a command of the job's user, in the job's group, with a terminal or pipes.

As in `attempt/command.py`, everything after the fork runs in the child, which reports a failure on a socket that exec
closes.
"""

from __future__ import annotations

import fcntl
import os
import socket
import struct
import termios
from typing import Callable, NamedTuple

from oarlock.node.attempt.user.command import (
    FDS,
    KEEP_TOOLS,
    PATH_FILE,
    CannotStart,
    CommandSpec,
    chown_files,
    exec_or_exit,
    look_up_and_send,
    raise_oom_score,
    run_step,
    set_path,
    status_sockets,
)
from oarlock.node.attempt.user.identity import User, become
from oarlock.node.cgroup.base import CgroupError
from oarlock.node.wire.terminal_modes import set_modes

_TERMINAL_MODE = 0o620
_READ_ENV = frozenset({"sh", "dash", "ash", "ksh", "ksh93", "mksh"})
"""Shells that read the file $ENV names before the first prompt at a terminal, as POSIX says."""


class SessionSpec(NamedTuple):
    """What a session runs, and with what."""

    command: str | None  # run by the user's shell; `None`: a login shell
    terminal: tuple[int, int] | None  # rows and columns; `None`: three pipes
    modes: dict[str, int]  # of that terminal
    must_have_directory: bool  # or it begins at home, where the directory of the job is not on this node


class SessionPipes(NamedTuple):
    """Our ends of what a session reads and writes; a terminal is one descriptor for all, and -1 for stderr."""

    stdin: int
    stdout: int
    stderr: int


class StartedSession(NamedTuple):
    """A session on its way to exec."""

    pid: int
    pipes: SessionPipes
    status: socket.socket


def start_session(session: SessionSpec, spec: CommandSpec, join: Callable[[], None]) -> StartedSession:
    """Fork the session; it reports failures on its socket."""
    ours, theirs = status_sockets()
    pipes, ends = _open_terminal(session.terminal, session.modes) if session.terminal else _open_pipes()
    pid = os.fork()
    if pid == 0:
        exec_or_exit(lambda: _go(session, spec, join, theirs, ends), theirs)
    theirs.close()
    for fd in set(ends):
        os.close(fd)
    for fd in pipes:
        if fd >= 0:
            os.set_blocking(fd, False)
    return StartedSession(pid, pipes, ours)


def set_size(fd: int, rows: int, columns: int) -> None:
    """Set the size of a terminal; whoever runs in it gets SIGWINCH."""
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def _open_terminal(size: tuple[int, int], modes: dict[str, int]) -> tuple[SessionPipes, tuple[int, int, int]]:
    ours, theirs = os.openpty()
    set_modes(theirs, modes)
    set_size(ours, *size)
    return SessionPipes(ours, ours, -1), (theirs, theirs, theirs)


def _open_pipes() -> tuple[SessionPipes, tuple[int, int, int]]:
    stdin, to_stdin = os.pipe()
    from_stdout, stdout = os.pipe()
    from_stderr, stderr = os.pipe()
    return SessionPipes(to_stdin, from_stdout, from_stderr), (stdin, stdout, stderr)


def _go(
    session: SessionSpec,
    spec: CommandSpec,
    join: Callable[[], None],
    status: socket.socket,
    ends: tuple[int, int, int],
) -> None:
    os.setsid()
    _join(join)
    user = spec.account or look_up_and_send(spec, status)
    chown_files(spec.files, user)
    raise_oom_score()
    os.umask(0o022)
    for at, fd in enumerate(ends):
        os.dup2(fd, at, inheritable=True)
    os.closerange(3, status.fileno())
    os.closerange(status.fileno() + 1, FDS)
    if session.terminal:
        _own_terminal(user)
    elif session.command is None:
        _set_path_first(user.shell, spec.tools)
    become(user)
    _enter_directory(session, spec, user)
    shell, arguments = _arguments(session, user)
    environment = {**spec.environment, "HOME": user.home, "SHELL": user.shell}
    if session.terminal and session.command is None:
        _keep_tools(environment, os.path.basename(shell), spec.tools)
    run_step("USER_SHELL", lambda: os.execve(shell, arguments, environment))


def _keep_tools(environment: dict[str, str], shell: str, folder: str) -> None:
    """Have a shell at a terminal put the folder of the commands into PATH again after its profiles."""
    if shell == "bash":
        environment.setdefault("PROMPT_COMMAND", KEEP_TOOLS.format(folder=folder))
    elif shell in _READ_ENV and folder:
        environment.setdefault("ENV", f"{folder}/{PATH_FILE}")


def _join(join: Callable[[], None]) -> None:
    try:
        run_step("CPUSET_ERROR", join)
    except CgroupError as error:  # of the site's own program
        raise CannotStart("CPUSET_ERROR", str(error)) from error


def _set_path_first(shell: str, folder: str) -> None:
    """Put what sets PATH before all input, on its first line: profiles set it anew, and the shell reads them first.

    To be called as root: the pipe is root's. Our end is written to only after exec.
    """
    if text := set_path(os.path.basename(shell), folder):
        fd = os.open("/proc/self/fd/0", os.O_WRONLY | os.O_CLOEXEC)
        os.write(fd, text.encode())
        os.close(fd)


def _own_terminal(user: User) -> None:
    """Make the terminal ours, and the user's: programs open it by its name (`/dev/pts/3`), too."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    if os.geteuid() != 0:
        return
    import grp  # here: what supervisors load makes each of their forks dearer

    try:
        group = grp.getgrnam("tty").gr_gid
    except KeyError:
        group = user.gid
    os.fchown(0, user.uid, group)
    os.fchmod(0, _TERMINAL_MODE)


def _enter_directory(session: SessionSpec, spec: CommandSpec, user: User) -> None:
    if session.must_have_directory:
        run_step("WORKING_DIRECTORY", lambda: os.chdir(spec.directory))
        return
    for path in (spec.directory, user.home, "/"):
        try:
            os.chdir(path)
        except OSError:
            continue
        return


def _arguments(session: SessionSpec, user: User) -> tuple[str, list[str]]:
    """Return the user's shell and its arguments: a dash before its name makes it a login shell, as sshd does it."""
    name = os.path.basename(user.shell)
    if session.command is None:
        return user.shell, [f"-{name}"]
    return user.shell, [name, "-c", session.command]
