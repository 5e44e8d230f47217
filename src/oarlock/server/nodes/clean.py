"""End what is left on this machine of attempts whose server is gone (`oarlock node clean`)."""

import fcntl
import os
import signal
from contextlib import suppress
from pathlib import Path

from oarlock.model.submission_errors import BadPath
from oarlock.node.attempt.user import logind
from oarlock.node.cgroup.base import CgroupError, processes, remove, wait_until
from oarlock.node.cgroup.processes import descendants
from oarlock.node.cgroup.signals import send
from oarlock.server.nodes.leftovers import JobGroup, Leftovers, SupervisorProcess, read_supervisor

_GRACE_SECONDS = 5.0  # for a job to end by itself, and for its supervisor to clean up after it
_KILL_SECONDS = 10.0


def check_gone(directory: Path) -> None:
    """Refuse a directory where a server is connected to a node right now; one that is missing was removed."""
    for lock in (directory / "lock", directory / "spool" / "lock", *directory.glob("spool/*/lock")):
        if lock.exists() and _is_locked(lock):
            raise BadPath(
                f"The server of {lock.parent} is connected: its jobs are alive.",
                hint="Stop that server first, if it shall not come back.",
            )


def _is_locked(path: Path) -> bool:
    """Return whether a node program works in a spool; its lock is a POSIX lock."""
    with path.open("r+b") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
    return False


def end(left: Leftovers) -> list[str]:
    """End and remove it; return a sentence for each thing that could not be."""
    problems = [problem for process in left.supervisors if (problem := _end_supervisor(process))]
    problems += [problem for group in left.groups if (problem := _end_group(group))]
    for path in left.files:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            problems.append(f"{path} cannot be removed: {error.strerror}")
    for path, line in left.lingering:
        with suppress(OSError):
            logind.remove_line(str(path), line)
    return problems


def _end_supervisor(process: SupervisorProcess) -> str:
    """End the job; its supervisor then cleans up and ends. One that does not is killed with all below it."""

    def is_over() -> bool:
        return read_supervisor(process.pid) != process

    def job() -> list[int]:
        """List what is below its spawner: the spawner itself is a child, with the supervisor's own program."""
        below = descendants(process.pid)
        return [] if is_over() else [pid for pid in below if not _same_program(pid, process.pid)]

    def everything() -> list[int]:
        return [] if is_over() else [process.pid, *descendants(process.pid)]

    send(signal.SIGTERM, job)
    if wait_until(is_over, _GRACE_SECONDS):
        return ""
    spawners = list(descendants(process.pid))
    send(signal.SIGKILL, everything)
    gone = wait_until(lambda: is_over() and not any(_is_ours(pid) for pid in spawners), _KILL_SECONDS)
    return "" if gone else f"process {process.pid} of attempt {process.name} did not end"


def _same_program(pid: int, other: int) -> bool:
    """Return whether a process is a fork of another that has not become something else."""
    try:
        return _command_line(pid) == _command_line(other) and _is_ours(pid)
    except OSError:
        return False


def _command_line(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def _is_ours(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return Path(f"/proc/{pid}").stat().st_uid == os.geteuid() and state != "Z"
    except OSError:
        return False


def _end_group(group: JobGroup) -> str:
    """Kill what is in a group and remove it, in every hierarchy."""

    def pids() -> list[int]:
        return [pid for place in group.places for pid in _below(place)]

    def is_empty() -> bool:
        send(signal.SIGKILL, pids)  # what was forked meanwhile is killed in the next round
        return not pids()

    if not wait_until(is_empty, _KILL_SECONDS):
        return f"processes in {group.path} did not end: {pids()[:5]}"
    try:
        for place in group.places:
            remove(str(place))
            with suppress(OSError):
                place.parent.rmdir()  # that of its node, when nothing else is in it
    except CgroupError as error:
        return str(error)
    return ""


def _below(place: Path) -> list[int]:
    return [pid for group, _, _ in os.walk(place) for pid in processes(group)]
