"""What sessions printed last, kept for clients that were away when their job ended.

The supervisor that held a session is gone by then, or has its next job. A client that comes back within a while reads
the rest from here, exit status included; who knows the name of the session, a secret of its client, may.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Iterator
from typing import NamedTuple

from oarlock.node import trust
from oarlock.node.attempt.spool import Key, entry_name, remove, write_all
from oarlock.node.wire.stream import DATA, PIECE

KEPT_SECONDS = 600.0
"""How long a client may stay away: longer than any tries to come back."""

LONGEST_NAME = 64
_HEAD = struct.Struct(">QQ")


class Undelivered(NamedTuple):
    """The rest of a stream: the place of its first byte, the bytes, and how much was received from the client."""

    begin: int
    data: bytes
    received: int

    def frames(self, received: int) -> Iterator[bytes] | None:
        """Yield the frames for a client that has so many bytes of the stream; `None` if it cannot have."""
        if not self.begin <= received <= self.begin + len(self.data):
            return None
        rest = self.data[received - self.begin :]
        return (DATA + rest[at : at + PIECE] for at in range(0, len(rest), PIECE))


def _folder(spool: str) -> str:
    return f"{spool}/undelivered"


def _path(spool: str, key: Key, session: str) -> str:
    return f"{_folder(spool)}/{entry_name(key)}.{session}"


def write(spool: str, key: Key, session: str, rest: Undelivered) -> None:
    """Keep the rest of a session. It is not forced to the disk: a power cut ends the client's patience as well."""
    path = _path(spool, key, session)
    trust.prepare(_folder(spool), 0o700)
    fd = os.open(f"{path}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        write_all(fd, _HEAD.pack(rest.begin, rest.received) + rest.data)
        os.rename(f"{path}.new", path)
    except OSError:
        remove(f"{path}.new")
        raise
    finally:
        os.close(fd)


def read(spool: str, key: Key, session: object) -> Undelivered | None:
    """Return the rest of a session; `None` if nothing of it is kept here."""
    if not (isinstance(session, str) and session.isalnum() and len(session) <= LONGEST_NAME):
        return None
    try:
        with open(_path(spool, key, session), "rb") as file:
            head, data = file.read(_HEAD.size), file.read()
    except OSError:
        return None
    if len(head) < _HEAD.size:
        return None
    begin, received = _HEAD.unpack(head)
    return Undelivered(begin, data, received)


def remove_old(spool: str, *, now: float | None = None) -> None:
    """Remove what nobody came back for."""
    now = time.time() if now is None else now
    try:
        paths = [entry.path for entry in os.scandir(_folder(spool)) if now - entry.stat().st_mtime > KEPT_SECONDS]
    except OSError:
        return
    for path in paths:
        remove(path)
