"""Which processes of a job a signal is meant for, and what its owner reads about it."""

from __future__ import annotations

import os
import time

from oarlock.node.cgroup import read


def send(number: int, pids: list[int]) -> None:
    """Send a signal to each; those that are gone are gone."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue


def chosen_for(number: int, pids: list[int], main: int) -> list[int]:
    """Choose who gets a signal of the user's: those that wait for it; if none does, the command itself.

    The command is often a shell that would die of a signal that the program below it is waiting for.
    """
    return [pid for pid in pids if _catches(pid, number)] or [main]


def _catches(pid: int, number: int) -> bool:
    try:
        text = read(f"/proc/{pid}/status")
    except OSError:
        return False
    return caught(text, number)


def caught(status: str, number: int) -> bool:
    """Read in `/proc/<pid>/status` whether a process has a handler for a signal."""
    for line in status.splitlines():
        if line.startswith("SigCgt:"):
            return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return False


def told(job: int, what: str, at: time.struct_time) -> str:
    """Say in the user's stderr what was done to the job, as OAR says it."""
    return f"## OAR [{time.strftime('%Y-%m-%d %H:%M:%S', at)}] Job {job} {what} ##\n"


def write_aside(fd: int, text: str) -> None:
    """Write in a process of its own: a file server that hangs must not hold whoever has to keep time."""
    if os.fork() == 0:
        try:
            os.write(fd, text.encode())
        finally:
            os._exit(0)
