"""The spool of a node: one file per attempt, in a directory that only the program's user can enter.

The file appears under its name complete and locked, and a name can be made once: so an attempt starts once. While a
supervisor lives it holds the lock, which the kernel frees with it. The first line is the launch, behind a MAC made
with a key that is never written on a node; the second is the outcome. One file, since making and removing files is
what the disk of a busy node is slow at.

Nothing in a file is acted on whose MAC is wrong: it was written by another instance, or by somebody else.
"""

from __future__ import annotations

import fcntl
import json
import os
import re

from oarlock.node import trust
from oarlock.node.wire.channel import Body, encode_body
from oarlock.node.wire.messages import SEEN, NodeRequestRefused, mac_of_bytes, same_mac

_NAME = re.compile(r"(\d+)\.(\d+)")
_SOCKET_SUFFIX = ".control"

Key = tuple[int, int]
"""A job and its attempt."""


class SpoolEntry:
    """The file of one attempt, held open."""

    def __init__(self, spool: str, key: Key, fd: int, *, is_new: bool = False) -> None:
        self.spool, self.key, self.fd = spool, key, fd
        self._ends_with_launch = is_new  # and we are at its end

    @property
    def path(self) -> str:
        return os.path.join(self.spool, entry_name(self.key))

    @property
    def socket_name(self) -> str:
        """The name in the spool of the socket where a supervisor waits for the next program."""
        return entry_name(self.key) + _SOCKET_SUFFIX

    @property
    def is_removed(self) -> bool:
        """Whether the file has no name any more: what is written to it goes with the last descriptor."""
        return os.fstat(self.fd).st_nlink == 0

    def read_launch(self, key: str) -> Body | None:
        """Read the launch; `None` if it makes no sense, or does not carry a MAC made with this key."""
        mac, _, text = self._lines()[0].partition(b" ")
        if not same_mac(mac.decode("ascii", "replace"), mac_of_bytes(text, key)):
            return None
        return _read(text)

    def claimed(self) -> Body:
        """Read the launch without checking its MAC: to be shown to people, never to be acted on."""
        return _read(self._lines()[0].partition(b" ")[2]) or {}

    def outcome(self) -> Body | None:
        """Read the outcome; `None` until one was written completely."""
        return _read(self._lines()[1])

    def _lines(self) -> tuple[bytes, bytes]:
        first, _, rest = os.pread(self.fd, os.fstat(self.fd).st_size, 0).partition(b"\n")
        return first, rest

    def write(self, outcome: Body | bytes, *, durable: bool = False) -> None:
        """Write the outcome, replacing an earlier one; forced to the disk before returning only if `durable`."""
        if not self._ends_with_launch:
            first, _ = self._lines()
            # Only what follows the launch is cut off: a crash in here costs an outcome, never the attempt.
            os.ftruncate(self.fd, len(first))
            os.lseek(self.fd, 0, os.SEEK_END)
        self._ends_with_launch = False
        write_all(self.fd, b"\n" + (outcome if isinstance(outcome, bytes) else encode_body(outcome).encode()))
        if durable:
            # The data before the name: after a power cut a name must not lead to an empty file.
            os.fsync(self.fd)
            self._sync_directory()

    def _sync_directory(self) -> None:
        directory = open_directory(self.spool)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def locked_elsewhere(self) -> bool:
        """Return whether a living supervisor holds the lock. If none does, we hold it from now on."""
        try:
            fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False

    def close(self) -> None:
        """Close the file, which frees the lock."""
        os.close(self.fd)


def _read(line: bytes) -> Body | None:
    try:
        value = json.loads(line)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def write_all(fd: int, data: bytes) -> None:
    """Write every byte."""
    while data:
        data = data[os.write(fd, data) :]


def entry_name(key: Key) -> str:
    """Return the file name of an attempt."""
    return f"{key[0]}.{key[1]}"


def prepare(spool: str) -> None:
    """Make the spool, closed to everybody else, or refuse one that others could write."""
    trust.prepare(spool, 0o700)


def open_directory(spool: str) -> int:
    """Open the spool itself: a path through this descriptor is short enough to bind a socket to."""
    return os.open(spool, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def create_entry(spool: str, key: Key, launch: bytes, mac_key: str) -> SpoolEntry:
    """Create the file of an attempt with its launch, locked; raise `NodeRequestRefused` if it was here before."""
    text = launch.replace(
        b"\n", b" "
    )  # a newline separates launch and outcome; JSON allows it only where a space is allowed
    making = os.path.join(spool, f"new.{os.getpid()}")
    fd = os.open(making, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    entry = SpoolEntry(spool, key, fd, is_new=True)
    try:
        # Lock before the name exists: an unlocked file thus always belongs to a dead supervisor.
        fcntl.flock(entry.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # No fsync: a power cut also ends the job, and the boot id then says so; it would cost each launch
        # milliseconds.
        write_all(entry.fd, mac_of_bytes(text, mac_key).encode() + b" " + text)
        os.link(making, entry.path)  # link(2) fails if the name exists; a rename would replace it
    except OSError as error:
        entry.close()
        if isinstance(error, FileExistsError):
            raise NodeRequestRefused(SEEN, f"attempt {entry_name(key)} was here before") from error
        raise
    finally:
        os.unlink(making)
    return entry


def open_entry(spool: str, key: Key) -> SpoolEntry | None:
    """Open the file of an attempt, if there is one."""
    try:
        fd = os.open(os.path.join(spool, entry_name(key)), os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    return SpoolEntry(spool, key, fd)


def file_path(spool: str, sha256: str) -> str:
    """Return where a file that was brought here for jobs is kept, by its content."""
    return f"{spool}/files/{sha256}"


def out_path(spool: str, key: Key) -> str:
    """Return where the archive with what a job wrote waits for the server."""
    return f"{spool}/out/{entry_name(key)}"


def list_attempts(spool: str) -> list[Key]:
    """List the attempts, in order; remove unfinished files of supervisors that died before the link."""
    keys = []
    for name in os.listdir(spool):
        if match := _NAME.fullmatch(name):
            keys.append((int(match[1]), int(match[2])))
        elif name.startswith("new."):
            _clear_unfinished(os.path.join(spool, name))
    return sorted(keys)


def _clear_unfinished(path: str) -> None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # a supervisor that is still writing it holds the lock
        # Under the lock: it is the file of a supervisor that died before it could link it.
        os.unlink(path)
    except (BlockingIOError, FileNotFoundError):
        return
    finally:
        os.close(fd)


def forget(spool: str, key: Key) -> None:
    """Remove the file of an attempt whose end the server has written down."""
    for name in (entry_name(key), entry_name(key) + _SOCKET_SUFFIX):
        remove(os.path.join(spool, name))
    remove(out_path(spool, key))


def remove(path: str) -> None:
    """Remove a file in a directory where only we write; one that is gone already is as good."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return


class HighestJob:
    """The highest number of a job that this spool has seen, and the instance that it belonged to.

    It outlives the files of attempts, so that a server whose database was restored from an old copy notices. It is not
    forced to the disk: the server's own mark survives a power cut here.
    """

    _LINE = 64  # bytes; written in one piece, over what was there

    def __init__(self, spool: str, instance: str) -> None:
        self._fd = os.open(os.path.join(spool, "highest"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self.before = self._read()
        self._instance = instance
        self._job = self.before[1]

    def _read(self) -> tuple[str, int]:
        words = os.pread(self._fd, self._LINE, 0).decode("ascii", "replace").split()
        return (words[0], int(words[1])) if len(words) == 2 and words[1].isdecimal() else ("", 0)

    def see(self, job: int) -> None:
        """Record the number of a job that is about to start here."""
        if job > self._job:
            # One write of constant length: no reader finds half a number.
            os.pwrite(self._fd, f"{self._instance or '-'} {job}\n".ljust(self._LINE).encode(), 0)
            self._job = job
