"""HTTP and JSON by hand, as far as commands need them. Standard library only.

`json` brings `re`, `enum` and `collections`, two thirds of what a whole command costs with it.
"""

from __future__ import annotations

import _json

TYPE_CHECKING = False  # importing `typing` costs as much as half a command
if TYPE_CHECKING:
    import _socket
    from typing import Any

_PIECE = 1 << 18
_PLAIN = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~,")


class BrokenResponse(Exception):
    """The connection ended before the answer did."""


class NotHttp(Exception):
    """What was said is no HTTP: its beginning."""

    def __init__(self, line: str) -> None:
        super().__init__(line[:40])


class _Plainly:
    """How JSON is read: strictly, into dicts, lists, texts, numbers, truth values and nothing."""

    strict = True
    object_hook = object_pairs_hook = None
    parse_float, parse_int, parse_constant = float, int, float


def read(text: str) -> Any:
    """Read JSON; what is none is a `ValueError`."""
    text = text.strip(" \t\r\n")
    try:
        value, end = _json.make_scanner(_Plainly)(text, 0)  # type: ignore[arg-type]  # any object will do
    except StopIteration:
        raise ValueError(f"no JSON: {text[:40]}") from None
    if end != len(text):
        raise ValueError(f"more than one JSON value: {text[:40]}")
    return value


def written(value: Any) -> str:
    """Write plain data as JSON, in ASCII."""
    if isinstance(value, str):
        return _json.encode_basestring_ascii(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{_json.encode_basestring_ascii(k)}:{written(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(written(item) for item in value) + "]"
    return "null" if value is None else str(value).lower()


def quoted(text: str) -> str:
    """Write a text as a URL can hold it."""
    return "".join(chr(byte) if byte in _PLAIN else f"%{byte:02X}" for byte in text.encode("utf-8", "surrogateescape"))


def switched(connection: _socket.socket) -> tuple[int, bytes]:
    """Read the answer to a request for another protocol: 101 and what follows its head, or the status and a refusal."""
    got = bytearray()
    while (end := got.find(b"\r\n\r\n")) < 0:
        got += _piece(connection)
    status = _status(bytes(got[:end]).decode("latin-1").split("\r\n")[0])
    return (status, bytes(got[end + 4 :])) if status == 101 else received(connection, got)


def received(connection: _socket.socket, got: bytearray | None = None) -> tuple[int, bytes]:
    """Read one answer to its end, of which the beginning may have been read; an answer that was cut off is none."""
    got = bytearray() if got is None else got
    while (end := got.find(b"\r\n\r\n")) < 0:
        got += _piece(connection)
    first, *lines = bytes(got[:end]).decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    del got[: end + 4]
    if headers.get("transfer-encoding", "").lower() == "chunked":
        return _status(first), _chunks(connection, got)
    length = _number(headers.get("content-length", "0"), 10)
    while len(got) < length:
        got += _piece(connection)
    return _status(first), bytes(got[:length])


def _chunks(connection: _socket.socket, got: bytearray) -> bytes:
    whole = bytearray()
    while True:
        while (end := got.find(b"\r\n")) < 0:
            got += _piece(connection)
        size = _number(got[:end].split(b";")[0].decode("latin-1"), 16)
        while len(got) < end + size + 4:
            got += _piece(connection)
        if size == 0:
            return bytes(whole)
        whole += got[end + 2 : end + 2 + size]
        del got[: end + size + 4]


def _piece(connection: _socket.socket) -> bytes:
    if piece := connection.recv(_PIECE):
        return piece
    raise BrokenResponse


def _status(line: str) -> int:
    if not line.startswith("HTTP/1."):
        raise NotHttp(line)
    return _number(line[9:12], 10)


def _number(text: str, base: int) -> int:
    try:
        return int(text, base)
    except ValueError:
        raise NotHttp(text) from None
