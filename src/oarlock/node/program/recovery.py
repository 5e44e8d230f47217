"""Take over from an earlier node program: end it, reconnect to its supervisors, collect reports in the spool."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import struct
import time
from collections.abc import Iterator
from typing import NamedTuple, Union

from oarlock.node.attempt import debug_log, job_cgroup, spool
from oarlock.node.attempt.spool import Key, SpoolEntry
from oarlock.node.attempt.staging import work_folder
from oarlock.node.attempt.user import logind
from oarlock.node.attempt.user.environment import JobFiles
from oarlock.node.cgroup.base import CgroupDriver, CgroupError
from oarlock.node.cgroup.signals import send
from oarlock.node.wire.channel import REQUEST, Body, encode_frame
from oarlock.node.wire.messages import (
    LOST,
    NOT_NOW,
    NodeRequestRefused,
    NodeSettings,
    Report,
    parse_launch,
    sign_report,
)

_FLOCK = struct.Struct("hhqqi")  # struct flock of 64-bit Linux: type, whence, start, length, pid
_OLDER_SECONDS = 5.0
_CONNECT_SECONDS = 2.0
_UNSIGNED_SECONDS = 1.0
_LOST = "EXIT_VALUE_OAREXEC"


def take_over(directory: str) -> None:
    """Become the only program of this spool: an older one gets SIGTERM, then SIGKILL."""
    fd = os.open(os.path.join(directory, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    begin = time.monotonic()
    while not _locked(fd):
        waited = time.monotonic() - begin
        # TERM ends a program that runs; one that somebody stopped (SIGSTOP) takes only KILL.
        send(signal.SIGTERM if waited < _OLDER_SECONDS else signal.SIGKILL, lambda: _holders(fd))
        time.sleep(0.01)


def _locked(fd: int) -> bool:
    """Try to lock the spool. A POSIX lock, not flock: forked supervisors must not share it; it is held until we end."""
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _holders(fd: int) -> list[int]:
    """Ask the kernel which process holds the lock; none if none does any more, or one that has no number here."""
    query = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    kind, _, _, _, pid = _FLOCK.unpack(fcntl.fcntl(fd, fcntl.F_GETLK, query))
    return [int(pid)] if kind != fcntl.F_UNLCK and pid > 0 else []


class UnsignedEntry(NamedTuple):
    """A file in the spool that this server did not sign; `alive` while a process holds its lock."""

    alive: bool
    user: str  # as the file says


class UnsignedEntries:
    """The files in a spool that this server did not sign."""

    def __init__(self, spool: str) -> None:
        self._spool = spool
        self._entries: dict[Key, UnsignedEntry] = {}
        self._look_at = 0.0  # when their locks are looked at again, in seconds of `time.monotonic`

    def __contains__(self, key: Key) -> bool:
        return key in self._entries

    def add(self, key: Key, entry: UnsignedEntry) -> None:
        """Remember a file."""
        self._entries[key] = entry

    def has_job(self, job: int) -> bool:
        """Return whether a file of this job is here."""
        return any(key[0] == job for key in self._entries)

    def bodies(self) -> list[Body]:
        """Describe them for the server."""
        return [
            {"job": job, "attempt": number, "tag": "", "user": entry.user, "alive": entry.alive}
            for (job, number), entry in sorted(self._entries.items())
        ]

    def discard(self, key: Key) -> None:
        """Forget a file; refuse that while a process holds it."""
        if self._entries[key].alive:
            raise NodeRequestRefused(NOT_NOW, f"a process still holds {spool.entry_name(key)}")
        del self._entries[key]

    def ended(self, now: float) -> list[Key]:
        """Return those whose process is gone since the last look; there is one each second."""
        if not self._entries or now < self._look_at:
            return []
        self._look_at = now + _UNSIGNED_SECONDS
        gone = [key for key, entry in self._entries.items() if entry.alive and not _is_held(self._spool, key)]
        for key in gone:
            self._entries[key] = self._entries[key]._replace(alive=False)
        return gone


def _is_held(directory: str, key: Key) -> bool:
    entry = spool.open_entry(directory, key)
    if entry is None:
        return True  # it was removed while its process lives; nothing says that it ended
    try:
        return entry.locked_elsewhere()
    finally:
        entry.close()


RecoveredAttempt = Union[Body, socket.socket, UnsignedEntry, None]
"""The report of an attempt that is over, a line to its supervisor, a file of somebody else, or nothing: a supervisor
lives but is busy."""


def recover_attempts(
    settings: NodeSettings, driver: CgroupDriver, boot: str
) -> Iterator[tuple[Key, RecoveredAttempt, Body]]:
    """Yield each attempt of the spool with its state and its signed launch."""
    end = time.monotonic() + _CONNECT_SECONDS
    for key in _listed(settings):
        yield key, examine_attempt(settings, driver, boot, key, until=end), _signed_launch(settings, key)


def _signed_launch(settings: NodeSettings, key: Key) -> Body:
    entry = spool.open_entry(settings.spool, key)
    if entry is None:
        return {}
    try:
        return entry.read_launch(settings.spool_key) or {}
    finally:
        entry.close()


def _listed(settings: NodeSettings) -> list[Key]:
    """List the attempts; release users kept for attempts that a power cut took from the spool."""
    held = logind.kept_users(settings.node)  # read before the spool: an attempt is in the spool before its user is kept
    keys = spool.list_attempts(settings.spool)
    debug_log.prune(settings.spool)
    for user, key in held:
        if key not in keys:
            logind.release_user(user, settings.node, key)
    return keys


def examine_attempt(
    settings: NodeSettings, driver: CgroupDriver, boot: str, key: Key, *, until: float = 0.0
) -> RecoveredAttempt:
    """Return the state of an attempt. A supervisor that just lost its program opens its socket soon: wait for it."""
    entry = spool.open_entry(settings.spool, key)
    if entry is None:
        return None
    try:
        if entry.read_launch(settings.spool_key) is None:
            return UnsignedEntry(entry.locked_elsewhere(), str(entry.claimed().get("user", ""))[:64])
        while _saved_report(entry) is None and entry.locked_elsewhere():
            line = _connect(entry)
            if line is not None or time.monotonic() >= until:
                return line
            time.sleep(0.005)
        return _ended(settings, driver, boot, entry)
    finally:
        entry.close()


def _connect(entry: SpoolEntry) -> socket.socket | None:
    line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    directory = spool.open_directory(entry.spool)
    try:
        line.connect(f"/proc/self/fd/{directory}/{entry.socket_name}")
    except OSError:
        line.close()
        return None
    finally:
        os.close(directory)
    return line


def ask_to_end(settings: NodeSettings, key: Key) -> bool:
    """Ask the supervisor of an unsigned file to end its attempt; return whether it could be reached.

    Nothing in the file is read: only we can make a socket in our directory.
    """
    entry = spool.open_entry(settings.spool, key)
    line = _connect(entry) if entry is not None else None
    if entry is None or line is None:
        return False
    try:
        line.sendall(encode_frame(REQUEST, 1, {"verb": "kill", "job": key[0], "attempt": key[1]}))
        line.settimeout(_CONNECT_SECONDS)
        return bool(line.recv(1))  # its answer: it has read the request, and may be left
    except OSError:
        return False
    finally:
        line.close()
        entry.close()


def _saved_report(entry: SpoolEntry) -> Body | None:
    """Read the report, if the supervisor lived to write one."""
    outcome = entry.outcome()
    return outcome if outcome is not None and "report" in outcome else None


def report_lost(settings: NodeSettings, driver: CgroupDriver, boot: str, key: Key) -> Body | None:
    """Report an attempt whose supervisor is gone; `None` if it has no spool entry."""
    entry = spool.open_entry(settings.spool, key)
    if entry is None:
        return None
    try:
        return _ended(settings, driver, boot, entry)
    finally:
        entry.close()


def _ended(settings: NodeSettings, driver: CgroupDriver, boot: str, entry: SpoolEntry) -> Body:
    """Return the report, or end what the job left behind and write one."""
    # Read again, now that nobody else holds the lock: it may have been written after the first look.
    body = _saved_report(entry)
    if body is not None:
        return body
    report, secret = _write_lost_report(settings, driver, boot, entry)
    body = sign_report(report, secret)
    # Forced to the disk before anybody hears of it: every later program sends the same report.
    entry.write(body, durable=True)
    return body


def _write_lost_report(
    settings: NodeSettings, driver: CgroupDriver, boot: str, entry: SpoolEntry
) -> tuple[Report, str]:
    job, attempt = entry.key
    crash = (entry.outcome() or {}).get("crash")
    says = f"its supervisor failed: {crash}" if crash else "its supervisor vanished"
    report = Report(job, attempt, settings.node, boot, LOST, event=_LOST, says=says)
    try:
        launch = work_folder.place(parse_launch(entry.read_launch(settings.spool_key) or {}), settings)
    except NodeRequestRefused as refusal:
        return report._replace(says=f"{says}; {refusal}"), "00" * 32
    logind.release_user(launch.user, settings.node, entry.key)
    for path in JobFiles.of(settings.runtime, spool.entry_name(entry.key)):
        spool.remove(path)
    if launch.boot and launch.boot != boot:
        return report._replace(says="the node was started again while it ran"), launch.secret
    try:
        job_cgroup.end_leftovers(launch, driver, settings.node)
    except (CgroupError, OSError) as error:
        report = report._replace(events=(("CPUSET_CLEAN_ERROR", str(error)),))
    return report, launch.secret
