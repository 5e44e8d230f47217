"""The process that starts the commands of one user for one supervisor, without a fork.

After a fork every page that either side writes is copied or taken back: hundreds for a supervisor and its child, which
was the dearest part of a job. So somebody else becomes the user for a moment, enters the group, opens what the user may
open, spawns the command and comes back. Root stays behind as the saved id meanwhile, which exec forgets: no code of the
user's ever runs with it. In that moment the user can send it signals. It therefore serves one user only, keeps no
time, and knows of a single job: who ends it spoils nothing but the start of a job of their own.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import struct

from oarlock.node.attempt.link import receive_with_fd
from oarlock.node.attempt.user.command import (
    FDS,
    CannotStart,
    CommandSpec,
    StartedCommand,
    chown_files,
    fork_child,
    login_shell,
    look_up_and_send,
    open_output,
    raise_oom_score,
    run_step,
    send_failure,
    status_sockets,
)
from oarlock.node.attempt.user.identity import User, become_temporarily, return_to_root
from oarlock.node.cgroup.base import JobCgroup, join_cgroup
from oarlock.node.wire.channel import encode_body

_NUMBER = struct.Struct("=I")
_CHUNK = 1 << 18
_PATIENCE = struct.pack(
    "ll", 10, 0
)  # struct timeval of SO_SNDTIMEO: its user may have stopped it (SIGSTOP), so that it reads nothing
_NOT_STARTED = 0


class SpawnerUnavailable(Exception):
    """Commands cannot be started in this way here."""


class SpawnerVanished(Exception):
    """Whoever started the command is gone, and with it the knowledge of how it ended."""


class Spawner:
    """The spawner as its supervisor sees it: one command at a time."""

    def __init__(self, user: tuple[str, int | None], return_files: tuple[str, ...]) -> None:
        """Fork it, to return to `return_files` after each job; raise `SpawnerUnavailable` if it cannot work here."""
        self.user = user
        self._line, theirs = socket.socketpair()
        self._line.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _PATIENCE)
        self.pid = os.fork()
        if self.pid == 0:
            _serve(theirs, return_files)
        theirs.close()
        self.fd = self._line.fileno()
        self._expects: list[str] = []
        if self._number() == _NOT_STARTED:
            self._line.close()
            raise SpawnerUnavailable

    def start(self, spec: CommandSpec, group: JobCgroup) -> StartedCommand:
        """Send the command to be started; its socket carries the same messages as that of a forked child.

        `BrokenPipeError` if the spawner ended before it had the whole request.
        """
        ours, theirs = status_sockets()
        data = _encode_request(spec, group.procs_files)
        with theirs:
            self._send_request(data, theirs, ours)
        self._expects = ["pid", "status"]
        return StartedCommand(None, ours)

    def _send_request(self, data: bytes, theirs: socket.socket, ours: socket.socket) -> None:
        message = _NUMBER.pack(len(data)) + data
        try:
            # The descriptor travels with the first byte; what did not fit follows without it.
            sent = socket.send_fds(self._line, [message], [theirs.fileno()])
            if sent < len(message):
                self._line.sendall(message[sent:])
        except BrokenPipeError:
            ours.close()
            raise
        except OSError as error:
            ours.close()
            raise SpawnerVanished(f"the order was not taken: {error}") from error

    def poll(self) -> dict[str, int]:
        """Return what the spawner reported since the last call: `pid` of the command, its raw wait `status`."""
        progress: dict[str, int] = {}
        while self._expects:
            try:
                number = self._number(socket.MSG_DONTWAIT)
            except BlockingIOError:
                break
            field = self._expects.pop(0)
            if field == "pid" and number == _NOT_STARTED:
                self._expects = []  # nothing was started; the reason is on the status socket
            else:
                progress[field] = number
        return progress

    def _number(self, how: int = 0) -> int:
        try:
            number = self._line.recv(_NUMBER.size, how)
        except ConnectionError:
            number = b""
        if not number:
            self._expects = []
            raise SpawnerVanished("the process that waited for the command is gone")
        return int(_NUMBER.unpack(number)[0])

    @property
    def is_busy(self) -> bool:
        """Return whether it has yet to report how a command ended."""
        return bool(self._expects)

    def dismiss(self) -> None:
        """End it. Only before it was waited for: its PID may be another process's afterwards."""
        self.close()
        os.kill(self.pid, signal.SIGKILL)

    def close(self) -> None:
        """Close the line to a spawner that is gone."""
        self._line.close()


def _serve(line: socket.socket, return_files: tuple[str, ...]) -> None:
    """Start commands, wait for them and report, until the supervisor closes the line."""
    try:
        # What was inherited from the supervisor: its wake-up pipe, its handler, its descriptors.
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.closerange(3, line.fileno())
        os.closerange(line.fileno() + 1, FDS)
        os.umask(0o022)
        raise_oom_score()
        home = _SupervisorCgroup(return_files)
        line.send(_NUMBER.pack(_is_able(home)))
        while _serve_request(line, home):
            pass
    finally:
        os._exit(0)


class _SupervisorCgroup:
    """The cgroups of supervisors, to return to; their `cgroup.procs` are kept open, since every job needs them."""

    def __init__(self, procs_files: tuple[str, ...]) -> None:
        self._procs_files = procs_files
        self._fds: list[int] = []

    def enter(self) -> None:
        """Move this process back."""
        if not self._fds:
            self._fds = [os.open(path, os.O_WRONLY | os.O_CLOEXEC) for path in self._procs_files]
        for fd in self._fds:
            os.write(fd, b"0")


def _is_able(home: _SupervisorCgroup) -> bool:
    """Return whether we can return to this cgroup, and whether this Python can spawn into a new session."""
    try:
        home.enter()
        os.posix_spawn("/", ["/"], {}, setsid=True)
    except PermissionError:
        return True  # "/" cannot be executed; everything before the exec worked
    except (OSError, NotImplementedError):
        return False
    return False


def _serve_request(line: socket.socket, home: _SupervisorCgroup) -> bool:
    header, status_fd = receive_with_fd(line, _NUMBER.size)
    if not header:
        return False
    procs_files, spec = _decode_request(_receive_exactly(line, _NUMBER.unpack(header)[0]))
    with socket.socket(fileno=status_fd) as status:
        pid = _start_command(spec, procs_files, home, status)
    line.send(_NUMBER.pack(pid))  # last: when the supervisor sees the PID, all messages are on the status socket
    if pid != _NOT_STARTED:
        line.send(_NUMBER.pack(os.waitpid(pid, 0)[1]))
    return True


def _start_command(
    spec: CommandSpec, procs_files: tuple[str, ...], home: _SupervisorCgroup, status: socket.socket
) -> int:
    """Start the command and return its PID, or report why that failed. Exits if it cannot return to the cgroup."""
    try:
        run_step("CPUSET_ERROR", lambda: join_cgroup(procs_files))
        user = spec.account or look_up_and_send(spec, status)
        chown_files(spec.files, user)
        try:
            return _as_user(spec, user, status)
        except CannotStart as failure:
            # FUSE without allow_other checks the saved uid too (root here): fork a child that drops root for good.
            if not isinstance(failure.__cause__, PermissionError):
                raise
            return fork_child(spec._replace(account=user), lambda: None, status)
    except CannotStart as failure:
        send_failure(status, failure.event, str(failure))
    except Exception as failure:  # noqa: BLE001 - it is the supervisor's to know, whatever it is
        send_failure(status, "EXIT_VALUE_OAREXEC", f"{type(failure).__name__}: {failure}")
    finally:
        home.enter()
    return _NOT_STARTED


def _as_user(spec: CommandSpec, user: User, status: socket.socket) -> int:
    groups = os.getgroups()
    try:
        become_temporarily(user)
        run_step("WORKING_DIRECTORY", lambda: os.chdir(spec.directory))
        return _spawn_with_outputs(spec, user, status)
    finally:
        _return(groups)


def _return(groups: list[int]) -> None:
    """Become root again or exit: the command may run already, so a failure must not be reported."""
    try:
        return_to_root(groups)
        os.chdir("/")
    except OSError:
        os._exit(1)


def _spawn_with_outputs(spec: CommandSpec, user: User, status: socket.socket) -> int:
    """Open the outputs, hand a copy of stderr to the supervisor, and spawn."""
    out = open_output(spec.stdout)
    try:
        err = open_output(spec.stderr)
        try:
            socket.send_fds(status, [b"!"], [err])
            return _spawn(spec, user, out, err)
        finally:
            os.close(err)
    finally:
        os.close(out)


def _spawn(spec: CommandSpec, user: User, out: int, err: int) -> int:
    shell, arguments = login_shell(user, spec)
    environment = {**spec.environment, "HOME": user.home, "SHELL": user.shell}
    null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    wires = [(os.POSIX_SPAWN_DUP2, fd, at) for fd, at in ((null, 0), (out, 1), (err, 2))]
    try:
        return os.posix_spawn(shell, arguments, environment, file_actions=wires, setsid=True)
    except OSError as error:
        raise CannotStart("USER_SHELL", str(error)) from error
    finally:
        os.close(null)


def _receive_exactly(line: socket.socket, length: int) -> bytes:
    text = b""
    while len(text) < length:
        part = line.recv(min(length - len(text), _CHUNK))
        if not part:
            raise EOFError("the supervisor is gone")
        text += part
    return text


def _encode_request(spec: CommandSpec, procs_files: tuple[str, ...]) -> bytes:
    return encode_body([procs_files, spec, spec.account]).encode()


def _decode_request(text: bytes) -> tuple[tuple[str, ...], CommandSpec]:
    """Decode a request of the supervisor; in JSON a named tuple is a list."""
    procs_files, fields, account = json.loads(text)
    spec = CommandSpec(*fields)
    user = User(*account) if account else None
    user = user and user._replace(groups=tuple(user.groups))
    return tuple(procs_files), spec._replace(files=tuple(spec.files), account=user)
