"""MUNGE credentials, by the socket of the host's munged: who made one is vouched for by that daemon. Standard library.

A client has a credential made for each request; the server has it decoded by its own munged, which knows the same key
and refuses what is too old, from a clock ahead of its own, or was shown before.
"""

from __future__ import annotations

import socket
import struct
import time
from typing import NamedTuple

SCHEME = "Munge"
"""The scheme of the header Authorization that carries a credential."""

_MAGIC, _VERSION = 0x00606D4B, 4
_ENCODE, _ENCODED, _DECODE, _DECODED = 2, 3, 4, 5
_HEAD = struct.Struct(">IBBBI")
_DEFAULT, _ANYBODY = 1, 0xFFFFFFFF
_LONGEST = 1 << 20
_SECONDS = 5.0
_AWAY_SECONDS = 2.0  # a daemon that is restarted is back by then
_PAUSE = 0.05

_SENTENCES = {
    15: "it is older than munge allows: the clocks of the two hosts differ, or it was long on its way",
    16: "it is from the future: the clock of the host that made it is ahead of this server's",
    17: "it was used before",
    11: "it was made with another key than this server's munge has",
    14: "it was made with another key than this server's munge has, or it was changed",
}


class MungeAway(Exception):
    """No daemon answers at the socket."""


class CredentialRefused(Exception):
    """The daemon does not accept a credential, or makes none; says why, to follow a colon."""


class Credential(NamedTuple):
    """What a credential says, as far as the daemon vouches for it: who had it made, where, and for what."""

    uid: int
    host: str  # an IPv4 address, which the daemon there takes for its own
    payload: bytes


def encode(payload: bytes, path: str) -> str:
    """Return a credential of this process for a payload."""
    # Cipher, MAC and compression as the daemon prefers, no realm, its own lifetime, for any user and group to decode.
    body = struct.pack(">BBBBIIII", _DEFAULT, _DEFAULT, _DEFAULT, 0, 0, _ANYBODY, _ANYBODY, len(payload)) + payload
    reader = _Reader(_ask(path, _ENCODE, _ENCODED, body))
    _refuse(reader)
    return reader.text(">I").rstrip(b"\0").decode("ascii", "replace")


def decode(credential: str, path: str) -> Credential:
    """Return what a credential says; `CredentialRefused` if it is not to be believed."""
    sent = credential.encode("ascii", "replace") + b"\0"
    reader = _Reader(_ask(path, _DECODE, _DECODED, struct.pack(">I", len(sent)) + sent))
    _refuse(reader)
    reader.number("3B")  # cipher, MAC, compression
    reader.text(">B")  # realm
    reader.number(">I")  # lifetime
    address = reader.text(">B")
    reader.number(">II")  # made, decoded
    uid = reader.number(">I")
    reader.number(">III")  # its group; who alone might decode it
    return Credential(uid, socket.inet_ntoa(address) if len(address) == 4 else "", reader.text(">I"))


class _Reader:
    """Takes one field of a message after another."""

    def __init__(self, message: bytes) -> None:
        self._message, self._at = message, 0

    def number(self, form: str) -> int:
        """Return the first of the numbers of a form, and pass all of them."""
        first = struct.unpack_from(form, self._message, self._at)[0]
        self._at += struct.calcsize(form)
        return int(first)

    def text(self, form: str) -> bytes:
        """Return bytes behind their length."""
        length = self.number(form)
        part = self._message[self._at : self._at + length]
        if len(part) < length:
            raise struct.error("a field is cut short")
        self._at += length
        return part


def _refuse(reader: _Reader) -> None:
    number, text = reader.number(">B"), reader.text(">B")
    if number:
        reason = text.rstrip(b"\0").decode("utf-8", "replace")
        raise CredentialRefused(_SENTENCES.get(number) or reason or f"munge refuses it ({number})")


def _ask(path: str, kind: int, expected: int, body: bytes) -> bytes:
    """Send one message to the daemon and return the body of its answer."""
    try:
        with _connected(path) as connection:
            connection.sendall(_HEAD.pack(_MAGIC, _VERSION, kind, 0, len(body)) + body)
            magic, version, answered, _, length = _HEAD.unpack(_read(connection, _HEAD.size))
            if (magic, version, answered) != (_MAGIC, _VERSION, expected) or length > _LONGEST:
                raise MungeAway(f"what answers at {path} is not munge")
            return _read(connection, length)
    except OSError as problem:
        raise MungeAway(f"munge does not answer at {path}: {problem.strerror or problem}") from None
    except struct.error:
        raise MungeAway(f"munge broke off at {path}") from None


def _connected(path: str) -> socket.socket:
    """Connect; a daemon that is just restarted is waited for."""
    deadline = time.monotonic() + _AWAY_SECONDS
    while True:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(_SECONDS)
        try:
            connection.connect(path)
        except (ConnectionRefusedError, FileNotFoundError, BlockingIOError):
            connection.close()
            if time.monotonic() > deadline:
                raise
            time.sleep(_PAUSE)
        except BaseException:
            connection.close()
            raise
        else:
            return connection


def _read(connection: socket.socket, length: int) -> bytes:
    parts, left = [], length
    while left:
        part = connection.recv(left)
        if not part:
            raise struct.error("the connection is closed")
        parts.append(part)
        left -= len(part)
    return b"".join(parts)
