"""Send signals to processes of a group, never to others, and choose those that a user's signal is meant for."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Collection
from contextlib import AbstractContextManager, nullcontext
from typing import Callable

from oarlock.node.cgroup.base import read

_AT_ONCE = 128  # descriptors held at a time

Listed = Callable[[], Collection[int]]
"""Lists the processes of a group as they are now."""

Hold = Callable[[], AbstractContextManager[None]]
"""Keeps the processes of a group from ending while it is entered."""


def send(number: int, listed: Listed, pids: Collection[int] | None = None, hold: Hold = nullcontext) -> None:
    """Send a signal to every process that is listed, or to those of them in `pids`; those that are gone are gone.

    A PID that was read may belong to another process a moment later, and we are root. So each process is held by a
    pidfd, the group is listed again, and only processes still in it are signalled through the pidfd, which
    never means another process. Linux before 5.3 has no pidfds; there `hold` keeps PIDs from being reused.
    """
    wanted = list(listed() if pids is None else pids)
    for first in range(0, len(wanted), _AT_ONCE):
        try:
            _send_held(number, wanted[first : first + _AT_ONCE], listed)
        except OSError as error:
            # pidfd_open came with Linux 5.3.
            if error.errno != errno.ENOSYS:
                raise
            with hold():
                _send_by_number(number, set(listed()).intersection(wanted))
            return


def _send_held(number: int, pids: list[int], listed: Listed) -> None:
    held: dict[int, int] = {}
    try:
        for pid in pids:
            try:
                held[pid] = os.pidfd_open(pid)
            except ProcessLookupError:
                continue
        # Only now: who was in both lists was in the group while its pidfd was held, so its number was not given anew.
        there = listed() if held else ()
        for pid in held.keys() & set(there):
            try:
                signal.pidfd_send_signal(held[pid], number)
            except (ProcessLookupError, PermissionError):  # gone, or another user's where we are not root
                continue
    finally:
        for fd in held.values():
            os.close(fd)


def _send_by_number(number: int, pids: Collection[int]) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            continue


def choose_targets(number: int, pids: list[int], main: int) -> list[int]:
    """Return the processes that get a user's signal: those with a handler for it; if none has one, the command itself.

    The command is often a shell that would die of a signal that the program below it is waiting for.
    """
    return [pid for pid in pids if _catches(pid, number)] or [main]


def _catches(pid: int, number: int) -> bool:
    try:
        text = read(f"/proc/{pid}/status")
    except OSError:
        return False
    return has_handler(text, number)


def has_handler(status: str, number: int) -> bool:
    """Read in `/proc/<pid>/status` whether a process has a handler for a signal."""
    for line in status.splitlines():
        if line.startswith("SigCgt:"):
            return bool(int(line.split()[1], 16) >> (number - 1) & 1)  # bit n-1 stands for signal n
    return False
