"""The processes that a supervisor waits for: the user's command, and what it forks itself."""

from __future__ import annotations

import os
import signal
import time

from oarlock.node.attempt.user import command
from oarlock.node.attempt.user.spawner import Spawner, SpawnerUnavailable, SpawnerVanished
from oarlock.node.cgroup.base import JobCgroup


class ChildProcesses:
    """Start the processes of an attempt and collect their wait statuses."""

    def __init__(self) -> None:
        self._spawner: Spawner | None = None
        self._can_spawn = True
        self.reset()

    def reset(self) -> None:
        """Forget the previous attempt."""
        self._statuses: dict[int, int] = {}
        self.main = 0  # PID of the command; 0: not known yet
        self.is_lost = False  # the spawner died with the command's status

    def start(self, spec: command.CommandSpec, group: JobCgroup) -> command.StartedCommand:
        """Start the command: by a spawner where it can enter and leave the cgroup, else by a fork of our own."""
        spawner = self._spawner_for(spec, group)
        if spawner is None:
            started = command.start(spec, group.join)
            self.main = started.pid or 0
            return started
        try:
            return spawner.start(spec, group)
        except BrokenPipeError:  # it ended before it read the request
            spawner.close()
            self._spawner = Spawner(spawner.user, group.return_files)
            return self._spawner.start(spec, group)

    def _spawner_for(self, spec: command.CommandSpec, group: JobCgroup) -> Spawner | None:
        """Return the spawner of this user; a spawner never serves two users."""
        user = spec.user, spec.uid
        if self._spawner is not None and (self._spawner.user != user or not group.return_files):
            self._dismiss_spawner()
        if self._spawner is None and group.return_files and self._can_spawn:
            try:
                self._spawner = Spawner(user, group.return_files)
            except SpawnerUnavailable:
                self._can_spawn = False
        return self._spawner

    def fds(self) -> list[int]:
        """Return the descriptors that become readable when the spawner reports."""
        return [self._spawner.fd] if self._spawner is not None and self._spawner.is_busy else []

    def reap(self) -> None:
        """Collect the wait statuses of children that ended."""
        self._poll_spawner()
        while True:
            try:
                # -1: where the job is a process tree its orphans come to us as well, and would stay zombies.
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self._statuses[pid] = status
            if self._spawner is not None and pid == self._spawner.pid:
                self._poll_spawner()  # it may have sent the command's status before it ended
                # If it was killed during a spawn, its child holds the socket open: no end of file would ever come.
                self.is_lost = self.is_lost or self._spawner.is_busy
                self._spawner.close()
                self._spawner = None

    def _poll_spawner(self) -> None:
        if self._spawner is None:
            return
        try:
            progress = self._spawner.poll()
        except SpawnerVanished:
            self.is_lost = True
            return
        self.main = progress.get("pid", self.main)
        if "status" in progress:
            self._statuses[self.main] = progress["status"]

    def status(self, pid: int) -> int | None:
        """Return the raw wait status of a child that ended."""
        return self._statuses.get(pid)

    def forget_status(self, pid: int) -> None:
        """Forget how an earlier child of this number ended: a new one has it now."""
        self._statuses.pop(pid, None)

    @property
    def outcome(self) -> int | None:
        """The raw wait status of the command, if it is known."""
        return self._statuses.get(self.main)

    @property
    def is_over(self) -> bool:
        """Return whether the command ended, or will never be known to have ended."""
        return self.is_lost or self.main in self._statuses

    def keep_idle_spawner(self) -> None:
        """Keep the spawner for the next attempt, unless it still waits for a command that could not be killed."""
        if self._spawner is not None and self._spawner.is_busy:
            self._dismiss_spawner()

    def _dismiss_spawner(self) -> None:
        if self._spawner is not None:
            self._spawner.dismiss()
            self._spawner = None


NOTE_SECONDS = 60
"""How long a note may take to be written."""


_MOST_NOTES = 20


def format_note(job: int, what: str, at: time.struct_time) -> str:
    """Return the line, in OAR's form, that tells the user in stderr what was done to the job."""
    return f"## OAR [{time.strftime('%Y-%m-%d %H:%M:%S', at)}] Job {job} {what} ##\n"


class NoteWriter:
    """Writes notes into a user's file in a process of its own, one at a time and each with a deadline.

    A file server that hangs must not hold whoever has to keep time, nor be answered with more and more processes.
    """

    def __init__(self, seconds: int = NOTE_SECONDS) -> None:
        self._seconds, self.pending, self.pid = seconds, list[str](), 0

    def add(self, fd: int, text: str) -> None:
        """Write a note, or keep it until the one before is written; too many are not kept."""
        self.pending = [*self.pending, text][-_MOST_NOTES:]
        self.go_on(fd)

    def go_on(self, fd: int) -> None:
        """Write what waits, unless a note is under way."""
        if self.pending and not self.pid:
            text, self.pending = "".join(self.pending), []
            self.pid = _write_aside(fd, text, self._seconds)


def _write_aside(fd: int, text: str, seconds: int) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(seconds)
            os.write(fd, text.encode())
        finally:
            os._exit(0)
    return pid
