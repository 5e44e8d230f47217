"""A user whose job runs has not gone: logind is told so by a file, as `loginctl enable-linger` does.

Without it, and with RemoveIPC=yes as logind comes, a user who logs in and out deletes the shared memory of their own
running jobs. A line in the file stands for each attempt, and the time of the file is 0 while nobody else touched it:
what an administrator wanted to stay is never removed.
"""

from __future__ import annotations

import fcntl
import os

_DIRECTORY, _LOGIND = "/var/lib/systemd/linger", "/run/systemd/users"


def keep(user: str, node: str, key: tuple[int, int]) -> None:
    """Keep a user's things while an attempt runs. Where logind does not run, or files cannot be written, do nothing."""
    try:
        if os.path.isdir(_LOGIND):
            hold(os.path.join(_DIRECTORY, user), _line(node, key))
    except OSError:
        return


def give_back(user: str, node: str, key: tuple[int, int]) -> None:
    """The attempt is over. The last one of a user removes the file, unless somebody else wants it to stay."""
    try:
        release(os.path.join(_DIRECTORY, user), _line(node, key))
    except OSError:
        return


def _line(node: str, key: tuple[int, int]) -> str:
    return f"oarlock {node} {key[0]}.{key[1]}"


def hold(path: str, line: str) -> None:
    """Write a line into the file of a user; one that lingers already for other reasons is left alone."""
    fd, made = _opened(path, os.O_CREAT)
    try:
        lines = _lines(fd)
        if made or lines:
            _write(fd, [*lines, line], ours=made or _is_ours(fd))
    finally:
        os.close(fd)


def release(path: str, line: str) -> None:
    """Take a line out of it again."""
    fd, _ = _opened(path, 0)
    try:
        lines = _lines(fd)
        if line not in lines:
            return
        left, ours = [other for other in lines if other != line], _is_ours(fd)
        if ours and not left:
            os.unlink(path)
        else:
            _write(fd, left, ours=ours)
    finally:
        os.close(fd)


def _opened(path: str, create: int) -> tuple[int, bool]:
    """Open and lock the file that has the name now; say whether we made it."""
    while True:
        made = bool(create) and not os.path.lexists(path)
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | create | (os.O_EXCL if made else 0), 0o644)
        except FileExistsError:
            continue
        fcntl.flock(fd, fcntl.LOCK_EX)
        if os.fstat(fd).st_nlink:
            return fd, made
        os.close(fd)


def _lines(fd: int) -> list[str]:
    return os.pread(fd, 1 << 20, 0).decode(errors="replace").splitlines()


def _is_ours(fd: int) -> bool:
    return os.fstat(fd).st_mtime_ns == 0


def _write(fd: int, lines: list[str], *, ours: bool) -> None:
    os.ftruncate(fd, 0)
    os.pwrite(fd, "".join(f"{line}\n" for line in lines).encode(), 0)
    if ours:
        os.utime(fd, ns=(0, 0))
