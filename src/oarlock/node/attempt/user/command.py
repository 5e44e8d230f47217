"""From fork to exec: how the user's command begins. Everything here runs in the child; root ends in the middle of it.

The child reports a failure on a socket that exec closes; end of file without a message means that the
user's code runs. Before that it sends the account it runs as, so that the next child need not ask the directory service
again; and it hands over a copy of its stderr, so that the supervisor can write to the user's file without ever opening
one.
"""

from __future__ import annotations

import json
import os
import socket
import stat
from typing import Callable, NamedTuple

from oarlock.node.attempt.spool import write_all
from oarlock.node.attempt.user.environment import (
    EnvironmentTooLarge,
    JobFiles,
    node_file,
    property_file,
    tools_folder,
    variables,
)
from oarlock.node.attempt.user.identity import LookUpFailed, User, UserMissing, UserRefused, become, resolve
from oarlock.node.attempt.user.job_key import KeyNotMade, make_pair
from oarlock.node.cgroup.base import JobCgroup
from oarlock.node.wire.messages import GENERATED, Launch

_LOGIN_FLAG = {"bash": ["-l"]}
"""A dash before the name makes every shell a login shell, but bash, with a command, may be built to want the flag."""

_SH, _CSH, _FISH = 'PATH="{folder}:$PATH"; ', 'setenv PATH "{folder}:$PATH"; ', 'set -gx PATH "{folder}" $PATH; '
_SET_PATH = {
    **dict.fromkeys(("sh", "bash", "dash", "ash", "zsh", "ksh", "mksh"), _SH),
    **dict.fromkeys(("csh", "tcsh"), _CSH),
    "fish": _FISH,
}
"""How shells put a folder before all others. Profiles of some systems, such as Debian, set PATH as if it were empty."""

_OUTPUT = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK
FDS = 256
"""More descriptors than a supervisor ever has open."""

LONGEST_MESSAGE = 32 << 10
"""Bytes in a message of the child. An account with thousands of groups does not fit and is looked up each time."""

_OOM_SCORE = "500"  # of 1000: when the node runs out of memory, jobs are killed before system services


class CannotStart(Exception):
    """A step before the user's code failed: the manual's event and a sentence."""

    def __init__(self, event: str, says: str) -> None:
        super().__init__(says)
        self.event = event


class StartedCommand(NamedTuple):
    """A child on its way to the user's command, and the socket on which it reports failures."""

    pid: int | None  # `None`: the spawner reports it later
    status: socket.socket


class CommandSpec(NamedTuple):
    """All that a child needs, built before the fork: every page that a child writes is copied for it."""

    user: str
    uid: int | None
    lowest_uid: int
    directory: str
    stdout: str
    stderr: str
    command: str
    files: tuple[str, ...]  # that root wrote for the user to read
    environment: dict[str, str]  # all but HOME and SHELL
    account: User | None = None  # `None`: the child looks it up, which may hang
    tools: str = ""  # the folder with the commands of jobs


def make_command_spec(
    launch: Launch, group: JobCgroup, files: JobFiles, account: User | None = None, *, lowest_uid: int
) -> CommandSpec:
    """Build what the child needs; raise `CannotStart` if the user's variables are too large."""
    try:
        environment = variables(launch, home="", shell="", files=files, cpuset=group.path)
    except EnvironmentTooLarge as refusal:
        raise CannotStart("USER_SHELL", str(refusal)) from refusal
    return CommandSpec(
        user=launch.user,
        uid=launch.uid,
        lowest_uid=lowest_uid,
        directory=launch.directory,
        stdout=launch.stdout,
        stderr=launch.stderr,
        command=launch.command,
        files=files if launch.has_key else files[:2],
        environment=environment,
        account=account,
        tools=tools_folder(files.runtime),
    )


def status_sockets() -> tuple[socket.socket, socket.socket]:
    """Make the socket pair on which a child reports; our end never blocks."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    return ours, theirs


def start(spec: CommandSpec, join: Callable[[], None]) -> StartedCommand:
    """Fork the child from this process; it reports failures on its socket."""
    ours, theirs = status_sockets()
    pid = fork_child(spec, join, theirs)
    theirs.close()
    return StartedCommand(pid, ours)


def fork_child(spec: CommandSpec, join: Callable[[], None], status: socket.socket) -> int:
    """Fork a child that becomes the user for good and then the command; return its number."""
    pid = os.fork()
    if pid == 0:
        exec_or_exit(lambda: _go(spec, join, status), status)
    return pid


def exec_or_exit(go: Callable[[], None], status: socket.socket) -> None:
    """Run what ends in an exec, or report why not and exit: a child never returns into the code that forked it."""
    try:
        go()
    except CannotStart as failure:
        send_failure(status, failure.event, str(failure))
    except BaseException as failure:  # noqa: BLE001 - the boundary of a forked child
        send_failure(status, "EXIT_VALUE_OAREXEC", f"{type(failure).__name__}: {failure}")
    finally:
        os._exit(127)


def send_failure(status: socket.socket, event: str, says: str) -> None:
    """Send the supervisor the event and the reason why the command cannot run."""
    status.send(json.dumps([event, says]).encode())


def _go(spec: CommandSpec, join: Callable[[], None], status: socket.socket) -> None:
    os.setsid()
    run_step("CPUSET_ERROR", join)
    user = spec.account or look_up_and_send(spec, status)
    chown_files(spec.files, user)
    raise_oom_score()
    os.umask(0o022)
    close_others(keep=(status.fileno(),))  # what is opened later closes at exec
    become(user)
    run_step("WORKING_DIRECTORY", lambda: os.chdir(spec.directory))
    out, err = open_output(spec.stdout), open_output(spec.stderr)
    shell, arguments = login_shell(user, spec)
    environment = {**spec.environment, "HOME": user.home, "SHELL": user.shell}
    socket.send_fds(status, [b"!"], [err])
    _wire(out, err)
    run_step("USER_SHELL", lambda: os.execve(shell, arguments, environment))


def run_step(event: str, action: Callable[[], object]) -> None:
    """Run one step; raise `CannotStart` with this event if it fails."""
    try:
        action()
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        raise CannotStart(event, f"{where}{error.strerror or error}") from error


def look_up(spec: CommandSpec) -> User:
    """Look up the user's account on this node; a directory service may hang."""
    try:
        return resolve(spec.user, spec.uid, lowest=spec.lowest_uid)
    except UserMissing as refusal:
        raise CannotStart("USER_UNKNOWN", str(refusal)) from refusal
    except LookUpFailed as refusal:
        raise CannotStart("USER_LOOKUP_ERROR", str(refusal)) from refusal
    except UserRefused as refusal:
        raise CannotStart("USER_SHELL", str(refusal)) from refusal


def look_up_and_send(spec: CommandSpec, status: socket.socket) -> User:
    """Look the user up and send the account to the supervisor, while only root can write to the socket."""
    user = look_up(spec)
    text = json.dumps(user._asdict()).encode()
    if len(text) <= LONGEST_MESSAGE:
        status.send(text)
    return user


def write_files(launch: Launch, files: JobFiles) -> str:
    """Write node and property file, in a directory where only root writes; nobody else reads them yet.

    Return the public half of the job's key, if the pair is made here.
    """
    try:
        _write_file(files.nodes, node_file(launch))
        _write_file(files.resources, property_file(launch))
        return _prepare_key(launch, files.key) if launch.has_key else ""
    except (OSError, KeyNotMade) as error:
        raise CannotStart("CAN_NOT_WRITE_NODE_FILE", str(error)) from error


def _prepare_key(launch: Launch, path: str) -> str:
    """Make the pair of a job; one that was brought has to be here."""
    if launch.key == GENERATED:
        return make_pair(path, f"{launch.user}@job{launch.job}")
    if not os.path.exists(path):
        raise KeyNotMade(f"the key of job {launch.job} was lost on its way to this node")
    return ""


def _write_file(path: str, text: str) -> None:
    how = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        fd = os.open(path, how, 0o400)
    except FileExistsError:  # left by a power cut, where the runtime directory is not a tmpfs
        os.unlink(path)
        fd = os.open(path, how, 0o400)
    try:
        write_all(fd, text.encode())
    finally:
        os.close(fd)


def chown_files(files: tuple[str, ...], user: User) -> None:
    """Make the user the owner of the files; their mode only lets them be read."""
    try:
        for path in files if os.geteuid() == 0 else ():
            os.chown(path, user.uid, user.gid, follow_symlinks=False)
    except OSError as error:
        raise CannotStart("CAN_NOT_WRITE_NODE_FILE", str(error)) from error


def raise_oom_score() -> None:
    """Raise the OOM score, so that jobs are killed before system services when memory runs out."""
    try:
        fd = os.open("/proc/self/oom_score_adj", os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        return
    os.write(fd, _OOM_SCORE.encode())
    os.close(fd)


def open_output(name: str) -> int:
    """Open an output as the user: appended to, never through a link in its last place, never anything but a file.

    An empty name or `/dev/null` discards the output.
    """
    if not name or name == os.devnull:
        return os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
    try:
        fd = os.open(name, _OUTPUT, 0o666)
    except (OSError, ValueError) as error:
        raise CannotStart("OUTPUT_FILES", f"{name}: {getattr(error, 'strerror', None) or error}") from error
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise CannotStart("OUTPUT_FILES", f"{name} is not a regular file")
    os.set_blocking(fd, True)  # O_NONBLOCK is only for open(2), which blocks on a FIFO
    return fd


def login_shell(user: User, spec: CommandSpec) -> tuple[str, list[str]]:
    """Return the login shell and its arguments."""
    name = os.path.basename(user.shell)
    return user.shell, [f"-{name}", *_LOGIN_FLAG.get(name, []), "-c", set_path(name, spec.tools) + spec.command]


KEEP_TOOLS = 'case ":$PATH:" in *":{folder}:"*) ;; *) PATH="{folder}:$PATH" ;; esac'
"""Run by shells at a terminal before a prompt: profiles of some systems, such as Debian, set PATH anew."""

PATH_FILE = ".path"
"""The file with that, in the folder of the commands."""


def set_path(shell: str, folder: str) -> str:
    """Return what is run before the user's first line, without a line of its own: errors name the user's lines."""
    return _SET_PATH.get(shell, "").format(folder=folder) if folder else ""


def _wire(out: int, err: int) -> None:
    null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    for fd, at in ((null, 0), (out, 1), (err, 2)):
        os.dup2(fd, at, inheritable=True)


def close_others(*, keep: tuple[int, ...]) -> None:
    """Close all descriptors but the standard three and those to keep."""
    ends = (2, *sorted(keep), FDS)
    for before, after in zip(ends, ends[1:]):
        os.closerange(before + 1, after)


def receive_message(status: socket.socket) -> bytes:
    """Receive a message of a child that ended; nothing if there is none left."""
    try:
        return status.recv(LONGEST_MESSAGE)
    except BlockingIOError:
        return b""


def parse_child_message(data: bytes) -> User | CannotStart:
    """Parse a message of a child: the account it runs as, or why it cannot run."""
    try:
        message = json.loads(data)
        if isinstance(message, dict):
            return User(**{**message, "groups": tuple(message["groups"])})
        event, says = message
    except (ValueError, TypeError, KeyError):
        event, says = "EXIT_VALUE_OAREXEC", f"the child said {data[:60]!r}"
    return CannotStart(str(event), str(says))
