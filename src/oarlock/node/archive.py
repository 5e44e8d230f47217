"""Archives of stage-in: tar compressed with gzip, read strictly, in one pass and in bounded memory.

Whoever sends an archive may be hostile to us, and whoever wrote it may be hostile to its sender. So only plain files
and directories below the place of unpacking are taken, and everything is bounded before it is believed. `tarfile`
holds headers of any length in memory and differs between the versions of Python in what it refuses.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

MOST_ENTRIES = 100_000
_BLOCK = 512
_PIECE = 1 << 16
_LONGEST_NAME = 4096
_LONGEST_PART = 255
_DEEPEST = 100
_MOST_NAMES = 32 << 20
_LONGEST_HEADER = 1 << 20  # bytes of an extended header
_SPECIAL_BITS = 0o7000  # setuid, setgid, sticky
_FILE_TYPES, _DIRECTORY, _LONG_NAME, _LONG_LINK, _NEXT_HEADER, _GLOBAL_HEADER = b"0\x007", b"5", b"L", b"K", b"x", b"g"
_OTHERS = {
    b"1": "a link",
    b"2": "a link",
    b"3": "a device",
    b"4": "a device",
    b"6": "a named pipe",
    b"S": "a sparse file",
}
_TAR = "a tar archive compressed with gzip"


class BadArchive(Exception):
    """An archive that is not unpacked; the text is the end of a sentence about it."""


class ArchiveEntry(NamedTuple):
    """A plain file or a directory, by its path below the place of unpacking."""

    path: str
    is_directory: bool
    mode: int
    size: int
    modified: int


class ArchiveReader:
    """Reads an archive from its beginning; `read` returns at most so many bytes of it, none at its end.

    `most`: bytes that it may unpack to.
    """

    def __init__(self, read: Callable[[int], bytes], *, most: int) -> None:
        self._read, self._left, self._most = read, most, most
        self._inflate = zlib.decompressobj(wbits=31)  # gzip, with its checksum
        self._input = b""
        self._unread = 0  # bytes of the present file, and of what fills its last block
        self._size = 0  # ... without the latter
        self._kinds: dict[str, bool] = {}  # path → whether it is a directory
        self._names = 0  # characters in those paths

    def entries(self) -> Iterator[ArchiveEntry]:
        """Yield the files and directories; the content of a file is to be read before the next is asked for."""
        count, extended = 0, dict[str, str]()
        while (header := self._header()) is not None:
            kind, size = header[156:157], _number(header[124:136], "size")
            if kind in {_LONG_NAME, _LONG_LINK, _NEXT_HEADER, _GLOBAL_HEADER}:
                data = self._extension(size)
                if kind == _LONG_NAME:
                    extended["path"] = os.fsdecode(data.rstrip(b"\0"))
                elif kind == _NEXT_HEADER:
                    extended.update(_records(data))
                continue
            count += 1
            if count > MOST_ENTRIES:
                raise BadArchive(f"it holds more than {MOST_ENTRIES} files")
            entry = _entry(header, extended)
            extended = {}
            self._size, self._unread = entry.size, _padded(entry.size)
            if entry.path:
                self._note(entry)
                yield entry
            self._skip()

    def content(self) -> Iterator[bytes]:
        """Yield the content of the file that was yielded last."""
        while self._size:
            data = self._exactly(min(self._size, _PIECE))
            self._size -= len(data)
            self._unread -= len(data)
            yield data

    def check(self) -> None:
        """Read the whole archive; raise `BadArchive` if it would not be unpacked."""
        for _ in self.entries():
            pass

    def _note(self, entry: ArchiveEntry) -> None:
        """Refuse a second file of the same path, and a file where a directory is."""
        parent = os.path.dirname(entry.path)
        while parent and self._add_kind(parent, is_directory=True):
            parent = os.path.dirname(parent)
        there = self._kinds.get(entry.path)
        if parent or not (there is None or (there and entry.is_directory)):
            raise BadArchive(f"it holds {_shown(parent or entry.path)} twice")
        self._add_kind(entry.path, is_directory=entry.is_directory)

    def _add_kind(self, path: str, *, is_directory: bool) -> bool:
        """Note what a path is, if that is new; return whether it is a directory."""
        if path not in self._kinds:
            self._kinds[path] = is_directory
            self._names += len(path)
            if self._names > _MOST_NAMES:
                raise BadArchive(f"the names in it have more than {_MOST_NAMES} characters")
        return self._kinds[path]

    def _header(self) -> bytes | None:
        """Read the next header; None at the end of the archive."""
        block = self._take(_BLOCK)
        if not block or not block.strip(b"\0"):
            return None
        if len(block) < _BLOCK:
            raise BadArchive("it is cut off")
        if sum(block) - sum(block[148:156]) + 8 * 32 != _number(block[148:156], "checksum"):
            raise BadArchive(f"it is not {_TAR}")
        return block

    def _extension(self, size: int) -> bytes:
        if size > _LONGEST_HEADER:
            raise BadArchive(f"it has a header of {size} bytes")
        return self._exactly(_padded(size))[:size]

    def _skip(self) -> None:
        while self._unread:
            self._unread -= len(self._exactly(min(self._unread, _PIECE)))

    def _exactly(self, count: int) -> bytes:
        data = self._take(count)
        if len(data) < count:
            raise BadArchive("it is cut off")
        return data

    def _take(self, count: int) -> bytes:
        """Return so many unpacked bytes, fewer at the end."""
        parts: list[bytes] = []
        while count and (data := self._unpacked(count)):
            parts.append(data)
            count -= len(data)
        return b"".join(parts)

    def _unpacked(self, most: int) -> bytes:
        """Return some unpacked bytes, none at the end of the archive."""
        while True:
            if not self._input and not (fresh := self._read(_PIECE)):
                return b""
            self._input = self._input or fresh
            try:
                data = self._inflate.decompress(self._input, most)
            except zlib.error as error:
                raise BadArchive(f"it is not {_TAR}") from error
            self._input = self._inflate.unconsumed_tail
            if self._inflate.eof:
                # Several members one after the other are one file, as `cat a.gz b.gz` makes them.
                self._input = self._inflate.unused_data.lstrip(b"\0")
                self._inflate = zlib.decompressobj(wbits=31)
            if data:
                self._count(len(data))
                return data

    def _count(self, count: int) -> None:
        self._left -= count
        if self._left < 0:
            raise BadArchive(f"it unpacks to more than {self._most >> 20} MiB")


def _entry(header: bytes, extended: dict[str, str]) -> ArchiveEntry:
    raw = header[:100].partition(b"\0")[0]
    prefix = header[345:500].partition(b"\0")[0] if header[257:263] == b"ustar\0" else b""
    name = extended.get("path") or os.fsdecode(prefix + b"/" + raw if prefix else raw)
    kind = header[156:157]
    is_directory = kind == _DIRECTORY or (kind == b"\0" and name.endswith("/"))
    path = _checked_path(name)
    if not is_directory and kind not in (bytes([each]) for each in _FILE_TYPES):
        what = _OTHERS.get(kind, f"something of the kind {kind!r}")
        raise BadArchive(f"{_shown(name)} is {what}: only files and directories are brought")
    mode = _number(header[100:108], "mode")
    if not is_directory and mode & _SPECIAL_BITS:
        raise BadArchive(f"{_shown(name)} has the mode {mode & 0o7777:04o}: setuid, setgid and sticky are not brought")
    if not is_directory and not path:
        raise BadArchive("it holds a file without a name")
    size = _decimal(extended["size"], "size") if "size" in extended else _number(header[124:136], "size")
    modified = _decimal(extended.get("mtime", "").partition(".")[0] or "0", "date")
    return ArchiveEntry(
        path, is_directory, mode & 0o777, 0 if is_directory else size, modified or _number(header[136:148], "date")
    )


def _checked_path(name: str) -> str:
    """Return a path that stays below the place of unpacking; empty for that place itself."""
    if name.startswith("/"):
        raise BadArchive(f"{_shown(name)} is an absolute path")
    parts = [part for part in name.split("/") if part not in {"", "."}]
    if ".." in parts:
        raise BadArchive(f"{_shown(name)} leads out of the directory")
    lengths = [len(os.fsencode(part)) for part in parts]
    if "\0" in name or sum(lengths) > _LONGEST_NAME or max(lengths, default=0) > _LONGEST_PART or len(parts) > _DEEPEST:
        raise BadArchive(f"{_shown(name)} is no name of a file")
    return "/".join(parts)


def _records(data: bytes) -> Iterator[tuple[str, str]]:
    """Yield the records of an extended header (POSIX): `length key=value`, each with a newline."""
    while data:
        length, _, _ = data.partition(b" ")
        end = _decimal(length.decode("ascii", "replace"), "header")
        key, is_record, value = data[len(length) + 1 : end].partition(b"=")
        if not is_record or not value.endswith(b"\n") or end > len(data):
            raise BadArchive("one of its headers cannot be read")
        if key.startswith(b"GNU.sparse"):
            raise BadArchive("it holds a sparse file: only plain files are brought")
        if key in {b"path", b"size", b"mtime"}:
            yield key.decode(), os.fsdecode(value[:-1])
        data = data[end:]


def _number(field: bytes, what: str) -> int:
    """Parse a number of a header: octal, or binary where it is large."""
    if field[:1] == b"\x80":
        return int.from_bytes(field[1:], "big")
    try:
        value = int(field.strip(b" \0") or b"0", 8)
    except ValueError:
        value = -1
    if value < 0:
        raise BadArchive(f"it is not {_TAR}: the {what} of a file is no number")
    return value


def _decimal(text: str, what: str) -> int:
    if not text.isdecimal() or len(text) > 18:
        raise BadArchive(f"the {what} of a file in it is no number")
    return int(text)


def _padded(size: int) -> int:
    return -(-size // _BLOCK) * _BLOCK


def _shown(name: str) -> str:
    """Return a name that is safe to print."""
    return ascii(name[:200])[1:-1]
