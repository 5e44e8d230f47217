"""Keep logind from ending the user's things while a job runs: a linger file, as `loginctl enable-linger` makes.

Without it, and with RemoveIPC=yes as logind comes, a user who logs in and out deletes the shared memory of their own
running jobs. A line in the file stands for each attempt, and the time of the file is 0 while nobody else touched it:
what an administrator wanted to stay is never removed.
"""

from __future__ import annotations

import fcntl
import os
import re

DIRECTORY, _LOGIND = "/var/lib/systemd/linger", "/run/systemd/users"


def keep_user(user: str, node: str, key: tuple[int, int]) -> bool:
    """Keep a user lingering while an attempt runs; return whether `release_user` must be called afterwards.

    Where logind does not run, or files cannot be written, do nothing.
    """
    try:
        if not os.path.isdir(_LOGIND):
            return False
        add_line(os.path.join(DIRECTORY, user), _line(node, key))
    except OSError:
        return False
    return True


def release_user(user: str, node: str, key: tuple[int, int]) -> None:
    """Remove an attempt's line; the last one of a user removes the file, unless somebody else wrote it."""
    try:
        remove_line(os.path.join(DIRECTORY, user), _line(node, key))
    except OSError:
        return


def kept_users(node: str, directory: str = DIRECTORY) -> list[tuple[str, tuple[int, int]]]:
    """List the users who are kept for attempts of a node, with the attempts.

    After a power cut the file may be there and what it said be lost: it is given as that of attempt 0.0.
    """
    users: list[tuple[str, tuple[int, int]]] = []
    for user in _names(directory):
        lines, ours = _read(os.path.join(directory, user))
        keys = [match for line in lines if (match := re.fullmatch(rf"oarlock {re.escape(node)} (\d+)\.(\d+)", line))]
        users.extend((user, (int(match[1]), int(match[2]))) for match in keys)
        if ours and not lines:
            users.append((user, (0, 0)))
    return users


def _names(directory: str) -> list[str]:
    try:
        return [name for name in sorted(os.listdir(directory)) if not name.startswith(".")]
    except FileNotFoundError:
        return []


def _line(node: str, key: tuple[int, int]) -> str:
    return f"oarlock {node} {key[0]}.{key[1]}"


def add_line(path: str, line: str) -> None:
    """Write a line into the file of a user; one that lingers already for other reasons is left alone."""
    lock = _locked(path)  # read and rename under one lock: another node's program may share the file
    try:
        lines, ours = _read(path)
        if lines or ours:
            _write(path, [*lines, line], ours=ours)
    finally:
        os.close(lock)


def remove_line(path: str, line: str) -> None:
    """Remove a line from the file of a user."""
    lock = _locked(path)
    try:
        lines, ours = _read(path)
        left = [other for other in lines if other != line]
        if ours and not left:
            _remove(path)
        elif left != lines:
            _write(path, left, ours=ours)
    finally:
        os.close(lock)


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return


def _locked(path: str) -> int:
    """Lock the directory against other writers; closing the descriptor unlocks it."""
    fd = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    fcntl.flock(fd, fcntl.LOCK_EX)
    return fd


def _read(path: str) -> tuple[list[str], bool]:
    """Return the lines, and whether only we wrote the file (its mtime is 0); a missing file counts as ours."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return [], True
    try:
        lines = os.read(fd, 1 << 20).decode(errors="replace").splitlines()
        return lines, os.fstat(fd).st_mtime_ns == 0
    finally:
        os.close(fd)


def _write(path: str, lines: list[str], *, ours: bool) -> None:
    """Replace the file by a rename: a half-written file with a fresh mtime would look like an administrator's."""
    making = os.path.join(os.path.dirname(path), ".oarlock")  # logind overlooks names with a dot
    fd = os.open(making, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    try:
        os.write(fd, "".join(f"{line}\n" for line in lines).encode())
        if ours:
            os.utime(fd, ns=(0, 0))
    finally:
        os.close(fd)
    # No fsync: after a power cut the file may be empty, which `kept_users` takes for ours.
    os.rename(making, path)
