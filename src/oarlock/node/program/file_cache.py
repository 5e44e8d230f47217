"""Files that the server brings to this node for jobs: each received once, by its content, and kept for the next job.

A file travels in raw frames of its own stream, each of which is acknowledged: the server sends a few ahead, so that
whatever else it has to say to this node waits for those few at most.
"""

from __future__ import annotations

import os
import struct
import time

from oarlock.node import trust
from oarlock.node.attempt.spool import file_path, out_path, remove, write_all
from oarlock.node.program.attempts import key_of
from oarlock.node.wire.channel import Body
from oarlock.node.wire.messages import BAD, SHA256, UNKNOWN, NodeRequestRefused

VERBS = frozenset({"file-open", "file-close"})
READ = "file-read"
EVENT = "STAGE_IN_ERROR"
_IN_USE_SECONDS = 900.0  # a file that was used so short a time ago may be about to be unpacked
_SPARE = 64 << 20  # bytes of the disk that no file takes
_LONGEST_PIECE = 1 << 20
_TOTAL = struct.Struct(">Q")


class _Incoming:
    """A file that is being received, under a name of its own."""

    def __init__(self, path: str, sha256: str, size: int) -> None:
        from hashlib import sha256 as new_digest  # imported late: it maps OpenSSL, and most nodes never receive a file

        self.path, self.sha256, self._size = path, sha256, size
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        self._digest = new_digest()
        self.received = 0
        self.problem: OSError | None = None

    @property
    def is_whole(self) -> bool:
        """Return whether everything came, as it was sent."""
        return self.received == self._size and self._digest.hexdigest() == self.sha256

    def take(self, data: bytes) -> None:
        """Write a piece; the first problem is kept, and nothing is written after it."""
        self.received += len(data)
        if self.problem is None and self.received <= self._size:
            try:
                write_all(self._fd, data)
                self._digest.update(data)
            except OSError as error:
                self.problem = error

    def close(self) -> None:
        """Remove what was received, unless it was moved to its place."""
        os.close(self._fd)
        remove(self.path)


class FileCache:
    """The files of one node. A program that dies leaves at most parts of files, which the next one removes."""

    def __init__(self, spool: str, kept_seconds: float) -> None:
        self._spool, self._kept_seconds = spool, kept_seconds
        self._folder = os.path.dirname(file_path(spool, ""))
        self._incoming: dict[int, _Incoming] = {}

    def do(self, body: Body) -> Body:
        """Carry out a request about a file."""
        stream = body.get("stream")
        if not isinstance(stream, int):
            raise NodeRequestRefused(BAD, f"{stream!r} is not the number of a stream")
        try:
            return self._open(stream, body) if body["verb"] == "file-open" else self._close(stream, body)
        except (OSError, trust.UnsafeDirectory) as error:
            self._drop(stream)
            raise NodeRequestRefused(EVENT, f"the archive cannot be kept on the node: {error}") from error

    def receive(self, stream: int, data: bytes) -> bytes | None:
        """Take a piece of a file; return its acknowledgement, or `None` if no file comes by this stream.

        A piece that cannot be written is acknowledged as well: the server learns why when it closes the file.
        """
        incoming = self._incoming.get(stream)
        if incoming is None:
            return None
        incoming.take(data)
        return _TOTAL.pack(incoming.received)

    def _open(self, stream: int, body: Body) -> Body:
        sha256, size = body.get("sha256"), body.get("size")
        if not isinstance(sha256, str) or not SHA256.fullmatch(sha256) or not isinstance(size, int) or size < 0:
            raise NodeRequestRefused(BAD, "the file cannot be read")
        path = file_path(self._spool, sha256)
        try:
            if os.stat(path).st_size == size:
                os.utime(path)
                return {"have": True}
        except FileNotFoundError:
            pass
        trust.prepare(self._folder, 0o700)
        self._make_room(size)
        self._incoming[stream] = _Incoming(f"{self._folder}/new.{os.getpid()}.{stream}", sha256, size)
        return {"have": False}

    def _close(self, stream: int, body: Body) -> Body:
        incoming = self._incoming.get(stream)
        if incoming is None:
            raise NodeRequestRefused(BAD, f"no file comes by stream {stream}")
        if body.get("abort"):
            self._drop(stream)
            return {}
        if incoming.problem is not None:
            raise incoming.problem
        if not incoming.is_whole:
            self._drop(stream)
            raise NodeRequestRefused(EVENT, "the archive arrived on the node with another sum")
        os.rename(incoming.path, file_path(self._spool, incoming.sha256))
        self._drop(stream)
        return {}

    def _drop(self, stream: int) -> None:
        """Forget a file that is no longer received; what there is of it is removed."""
        if (incoming := self._incoming.pop(stream, None)) is not None:
            incoming.close()

    def _make_room(self, size: int) -> None:
        """Remove files that nobody used for long, and as many others as are in the way."""
        now = time.time()
        files = sorted(self._unused(now), reverse=True)
        while files and (now - files[-1][0] > self._kept_seconds or self._free() < size + _SPARE):
            remove(files.pop()[1])
        if self._free() < size + _SPARE:
            raise NodeRequestRefused(
                EVENT, f"the node has no room for an archive of {size >> 20} MiB: {self._free() >> 20} MiB are free"
            )

    def _unused(self, now: float) -> list[tuple[float, str]]:
        """List the files that no launch is about to use, and parts that dead programs left, with their last use."""
        files = []
        for name in os.listdir(self._folder):
            path = f"{self._folder}/{name}"
            if name.startswith("new."):
                files += [] if os.path.exists(f"/proc/{name.split('.')[1]}") else [(0.0, path)]
            elif (used := os.stat(path).st_mtime) < now - _IN_USE_SECONDS:
                files.append((used, path))
        return files

    def _free(self) -> int:
        about = os.statvfs(self._folder)
        return about.f_bavail * about.f_frsize


def read_piece(spool: str, body: Body) -> bytes:
    """Read a piece of the archive with what a job wrote; refuse one that is not here."""
    offset, size = body.get("offset"), body.get("size")
    if not (isinstance(offset, int) and isinstance(size, int) and offset >= 0 and 0 < size <= _LONGEST_PIECE):
        raise NodeRequestRefused(BAD, f"{size!r} bytes from {offset!r} on are not a piece of a file")
    try:
        fd = os.open(out_path(spool, key_of(body)), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise NodeRequestRefused(UNKNOWN, f"its archive is not here: {error.strerror}") from error
    try:
        return os.pread(fd, size, offset)
    finally:
        os.close(fd)
