"""Row logs: what is measured of a job, or of a node on a day, as frames in a file that only grows.

A frame is a head (magic, kind, number of a table, number of a node, count, instant in milliseconds, CRC-32) and a
body: `count` doubles of a row, or `count` bytes of a table of names, of a node's name, or of a note in JSON. A number
means the last table, or node, that was written under it before. What belongs together is appended by one `write`,
so that a process that is killed leaves at most one torn frame, at the end: readers ignore it, and it is cut off before
anything else is appended.

Now and then comes a mark, whose body is its own place in the file: tables and nodes are written again after it, so that
a reader who wants the end alone can begin there.
"""

import itertools
import json
import os
import struct
import zlib
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from oarlock.measure.collect.files.steps import Steps, finish

MAGIC = b"\xa9R"
_TABLE, _NODE, _ROW, _NOTE, _MARK = 1, 2, 3, 4, 5
_HEAD = struct.Struct("<2sBxIIIqI")
_CHECKED_HEAD = struct.Struct("<2sBxIIIq")
_CHECKED = _CHECKED_HEAD.size  # bytes of the head that its CRC covers
_DOUBLE = 8
_MOST = 1 << 26
"""Bytes of the longest body. Whatever announces more is not a frame."""
_MOST_TABLES = 100  # names of executables come and go; above it numbers are used again
_MOST_NAMES = 400_000  # ... and above so many names in them
_PLACE = struct.Struct("<Q")
_SECTIONS = itertools.count(1)

_MARK_BYTES = 1 << 16  # between two marks at least
_MARK_TABLES = 16  # times the bytes of tables that a mark makes to be written again
_PIECE = 4 << 20  # bytes of a file that are read at once
_TAIL = 1 << 18  # bytes that are read at first of the end of a log

Names = tuple[str, ...]


class LogNote(NamedTuple):
    """Something to remember besides values: a gap, a clock that is wrong. `at` is in milliseconds."""

    at: int
    node: str
    about: dict[str, Any]


@dataclass(slots=True)
class RowGroup:
    """All rows of a log with the same names: instants in milliseconds, places in `LogContent.nodes`, packed values.

    Of a log that was surveyed `packed` is empty, and `places` says where in the file the values of each row are.
    """

    names: Names
    times: "array[int]" = field(default_factory=lambda: array("q"))
    nodes: "array[int]" = field(default_factory=lambda: array("I"))
    packed: bytearray = field(default_factory=bytearray)
    places: "array[int]" = field(default_factory=lambda: array("q"))

    def column(self, place: int) -> Sequence[float]:
        """Return the values under one name, in the order of the rows."""
        return array("d", bytes(self.packed))[place :: len(self.names)]


@dataclass(slots=True)
class LogContent:
    """What a log holds. `length` is how many of its bytes are whole frames; `path` is that of one that was surveyed."""

    nodes: list[str] = field(default_factory=list)
    groups: dict[Names, RowGroup] = field(default_factory=dict)
    notes: list[LogNote] = field(default_factory=list)
    length: int = 0
    path: Path | None = None

    @property
    def rows(self) -> int:
        """How many rows it has."""
        return sum(len(group.times) for group in self.groups.values())


Choose = Callable[[Names], Names]
"""Chooses the names of a table that are wanted."""


Watch = Callable[[LogContent], None]
"""Looks at what was read so far; what it raises ends the reading."""


def read_log(data: bytes, choose: Choose | None = None, *, verify: bool = True) -> LogContent:
    """Read a log up to its end, or up to the first frame that is not whole; `choose` leaves out values.

    Without `verify` no sum is checked: for logs that this process itself has written or checked, half the time.
    """
    reader = _LogReader(choose, verify=verify)
    reader.feed(data)
    return reader.content


def read_log_file(
    path: Path,
    choose: Choose | None = None,
    *,
    verify: bool = True,
    inside: tuple[int, int] | None = None,
    watch: Watch = lambda _content: None,
) -> LogContent:
    """Read the log at a path as `read_log` does, a piece at a time: what is left out takes no room.

    `inside`: the first and the last instant of rows that are wanted (milliseconds).
    """
    reader = _LogReader(choose, verify=verify, inside=inside)
    _feed_file(path, reader, watch)
    return reader.content


def survey_log(path: Path) -> LogContent:
    """Read a log without its values: it may be larger than the memory. `RowGroup.places` says where they are."""
    return finish(survey_in_steps(path))


def survey_in_steps(path: Path) -> Steps[LogContent]:
    """Read a log as `survey_log` does, a piece at a time."""
    reader = _LogSurvey()
    reader.content.path = path
    yield from _feed_pieces(path, reader)
    return reader.content


def _feed_file(path: Path, reader: "_LogReader", watch: Watch = lambda _content: None) -> None:
    for _ in _feed_pieces(path, reader):
        watch(reader.content)


def _feed_pieces(path: Path, reader: "_LogReader") -> Iterator[None]:
    rest = b""
    with path.open("rb", buffering=0) as file:
        left = os.fstat(file.fileno()).st_size  # what is appended between two pieces is not read: there may be no end
        while not reader.ended and (piece := file.read(min(_PIECE, left))):
            left -= len(piece)
            data = rest + piece if rest else piece
            rest = data[reader.feed(data) :]
            yield


class _LogReader:
    """One pass over the bytes of a log, which may come in pieces."""

    def __init__(
        self, choose: Choose | None = None, *, verify: bool = True, inside: tuple[int, int] | None = None
    ) -> None:
        self._choose, self._verify, self._inside = choose, verify, inside
        self.content = LogContent()
        self.ended = False
        """Whether something came that is no frame: what follows is not read."""
        self._groups: dict[int, tuple[RowGroup, int, list[int] | None]] = {}
        self._places: dict[int, int] = {}  # of a node's number in the list of nodes
        self.place = 0
        """Where the frame begins that is being read."""

    def feed(self, data: bytes) -> int:
        """Read the whole frames of a piece; return how many bytes that were. What is left comes again with more."""
        view, size, crc32, verify = memoryview(data), len(data), zlib.crc32, self._verify
        unpack, head_size = _HEAD.unpack_from, _HEAD.size
        place, base = 0, self.content.length
        while place + head_size <= size:
            magic, kind, table, node, count, at, crc = unpack(view, place)
            length = count * _DOUBLE if kind == _ROW else count
            begin = place + head_size
            end = begin + length
            if magic != MAGIC or length > _MOST:
                self.ended = True
                break
            if end > size:
                break
            body = view[begin:end]
            self.place = base + place
            if verify and crc32(body, crc32(view[place : place + _CHECKED])) != crc:
                self.ended = True
                break
            if not (
                self._take_row(table, node, at, count, body)
                if kind == _ROW
                else self._take_other(kind, table, node, at, bytes(body))
            ):
                self.ended = True
                break
            place = end
        self.content.length = base + place
        return place

    def _take_row(self, table: int, node: int, at: int, count: int, body: memoryview) -> bool:
        if table not in self._groups or node not in self._places:
            return False
        group, width, places = self._groups[table]
        if count != width:
            return False
        if self._inside is not None and not self._inside[0] <= at <= self._inside[1]:
            return True
        group.times.append(at)
        group.nodes.append(self._places[node])
        if places is None:
            group.packed += body
        else:
            for place in places:
                group.packed += body[place : place + _DOUBLE]
        return True

    def _take_other(self, kind: int, table: int, node: int, at: int, body: bytes) -> bool:
        content = self.content
        if kind == _MARK:
            return True
        try:
            text = body.decode()
            if kind == _TABLE:
                self._take_table(table, tuple(text.split("\n")) if text else ())
            elif kind == _NODE:
                if text not in content.nodes:
                    content.nodes.append(text)
                self._places[node] = content.nodes.index(text)
            elif kind == _NOTE:
                content.notes.append(LogNote(at, content.nodes[self._places[node]], json.loads(text)))
            else:
                return False
        except (ValueError, KeyError):
            return False
        return True

    def _take_table(self, number: int, names: Names) -> None:
        wanted = names if self._choose is None else self._choose(names)
        group = self.content.groups.get(wanted)
        if group is None:
            group = self.content.groups[wanted] = RowGroup(wanted)
        places = None if wanted == names else [names.index(name) * _DOUBLE for name in wanted]
        self._groups[number] = group, len(names), places


TakeRow = Callable[[int, str, Names, memoryview], None]
"""Takes the instant of a row in milliseconds, its node, its names and its packed values."""


def replay_log(
    path: Path, take_row: TakeRow, take_note: Callable[[LogNote], None], share: Choose, *, since: int = 0
) -> int:
    """Hand over the rows of a log in their order, from one byte on, and all notes; return how much of it is whole.

    `share` returns the tuple of names that stands for equal ones: whoever is called knows tables by it.
    """
    reader = _LogReplay(take_row, take_note, share, since)
    _feed_file(path, reader)
    return reader.content.length


class _LogReplay(_LogReader):
    """One pass over the bytes of a log that hands over rows as they come."""

    def __init__(self, take_row: TakeRow, take_note: Callable[[LogNote], None], share: Choose, since: int) -> None:
        super().__init__(share)
        self._hand_over, self._hand_over_note, self._since = take_row, take_note, since

    def _take_row(self, table: int, node: int, at: int, count: int, body: memoryview) -> bool:
        if table not in self._groups or node not in self._places or count != self._groups[table][1]:
            return False
        if self.place >= self._since:
            self._hand_over(at, self.content.nodes[self._places[node]], self._groups[table][0].names, body)
        return True

    def _take_other(self, kind: int, table: int, node: int, at: int, body: bytes) -> bool:
        whole = super()._take_other(kind, table, node, at, body)
        if whole and kind == _NOTE:
            self._hand_over_note(self.content.notes.pop())
        return whole


class _LogSurvey(_LogReader):
    """One pass over the bytes of a log that remembers where rows are, and not what they say."""

    def _take_row(self, table: int, node: int, at: int, count: int, body: memoryview) -> bool:  # noqa: ARG002
        if table not in self._groups or node not in self._places or count != self._groups[table][1]:
            return False
        group = self._groups[table][0]
        group.times.append(at)
        group.nodes.append(self._places[node])
        group.places.append(self.place + _HEAD.size)
        return True


class RowLog:
    """Appends to one log. Of a file that is there already the torn end is cut off first."""

    __slots__ = (
        "_fd",
        "_marked",
        "_names",
        "_nodes",
        "_pending",
        "_size",
        "_table_bytes",
        "_tables",
        "path",
        "section",
    )

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = -1
        self._size = -1
        self.section = next(_SECTIONS)
        """Changes whenever what follows has to be readable without what was written before."""
        self._tables: dict[int, tuple[int, Names]] = {}
        self._nodes: dict[str, int] = {}
        self._pending: list[bytes] = []
        self._names = 0  # in all tables
        self._marked = 0  # where the last mark is
        self._table_bytes = 0  # of tables since then

    @property
    def is_open(self) -> bool:
        """Whether it holds a descriptor."""
        return self._fd >= 0

    def row(self, at: int, node: str, names: Names, packed: bytes) -> None:
        """Add a row to the next `write`. The same tuple of names, not one that is equal, costs no new table."""
        self.refresh()
        entry = self._tables.get(id(names))
        if entry is None:
            if len(self._tables) >= _MOST_TABLES or self._names > _MOST_NAMES:
                self._tables, self._names = {}, 0
            # The tuple is kept, since its id is its name here.
            entry = self._tables[id(names)] = len(self._tables), names
            text = "\n".join(names).encode()
            self._names += len(names)
            self._table_bytes += len(text)
            self._pending.append(_frame(_TABLE, entry[0], 0, 0, text))
        number = self._nodes.get(node)
        if number is None:
            number = self._number_node(node)
        head = _CHECKED_HEAD.pack(MAGIC, _ROW, entry[0], number, len(packed) // _DOUBLE, at)
        self._pending += head, zlib.crc32(packed, zlib.crc32(head)).to_bytes(4, "little"), packed

    def note(self, at: int, node: str, about: Mapping[str, Any]) -> None:
        """Add a note to the next `write`."""
        self.refresh()
        text = json.dumps(about, separators=(",", ":")).encode()
        number = self._nodes[node] if node in self._nodes else self._number_node(node)
        self._pending.append(_frame(_NOTE, 0, number, at, text))

    def refresh(self) -> None:
        """Write a mark, if it is time for one. Call it before anything is added."""
        limit = max(_MARK_BYTES, _MARK_TABLES * self._table_bytes)
        if not self._pending and self._size - self._marked >= limit:
            self._begin_section()
            self._table_bytes = 0
            self._marked = self._size
            self._pending.append(_frame(_MARK, 0, 0, 0, _PLACE.pack(self._size)))

    def _begin_section(self) -> None:
        self._tables, self._nodes, self._names = {}, {}, 0
        self.section = next(_SECTIONS)

    def write(self) -> int:
        """Append what was added, by one `write`; return how many bytes that were.

        Raises `OSError` if the disk does not take all of it; nothing of it is in the log then.
        """
        data, self._pending = b"".join(self._pending), []
        try:
            if self._fd < 0:
                self._open()
            if os.write(self._fd, data) != len(data):
                raise OSError(28, "the disk is full")  # noqa: TRY301
        except OSError:
            # Tables and nodes among it are not in the log, so all are written again.
            self._begin_section()
            self._cut()
            raise
        self._size += len(data)
        return len(data)

    def discard(self) -> None:
        """Forget what was added and not written."""
        self._pending = []
        self._begin_section()

    def close(self) -> None:
        """Release the descriptor; the next `write` opens the file again."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _open(self) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        try:
            self._fd = os.open(self.path, flags, 0o600)
        except FileNotFoundError:
            self.path.parent.mkdir(0o700, parents=True, exist_ok=True)
            self._fd = os.open(self.path, flags, 0o600)
        size = os.fstat(self._fd).st_size
        if self._size < 0 and size:
            self._size = cut_torn_end(self.path)
        elif self._size < 0:
            self._size = 0

    def _cut(self) -> None:
        """Cut off what a failed write may have left; if even that fails, the next opening does it."""
        if self._fd < 0:
            return
        try:
            os.ftruncate(self._fd, self._size)
        except OSError:
            self._size = -1
        self.close()

    def _number_node(self, name: str) -> int:
        number = self._nodes[name] = len(self._nodes)
        self._pending.append(_frame(_NODE, 0, number, 0, name.encode()))
        return number


def recent_instants(path: Path, size: int = 1 << 18) -> frozenset[int]:
    """Return the instants (milliseconds) of the rows in the last `size` bytes of a log; none if there is no log."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - size))
            data = file.read()
    except FileNotFoundError:
        return frozenset()
    instants: set[int] = set()
    place = data.find(MAGIC)
    while 0 <= place <= len(data) - _HEAD.size:
        end = _end_of_frame(data, place)
        if end and data[place + len(MAGIC)] == _ROW:
            instants.add(_HEAD.unpack_from(data, place)[5])
        place = end or data.find(MAGIC, place + 1)
    return frozenset(instants)


def _end_of_frame(data: bytes, place: int) -> int:
    """Return where the frame that begins at a place ends; 0 if none does, since the bytes are part of another one."""
    _, kind, _, _, count, _, crc = _HEAD.unpack_from(data, place)
    begin = place + _HEAD.size
    end = begin + count * (_DOUBLE if kind == _ROW else 1)
    if end > len(data):
        return 0
    whole = zlib.crc32(data[begin:end], zlib.crc32(data[place : place + _CHECKED]))
    return end if whole == crc else 0


def cut_torn_end(path: Path) -> int:
    """Cut off what is not a whole frame at the end of a log; return how long it is now.

    What is before a mark was whole when the mark was written, and is not read.
    """
    begin, content = read_end(path, lambda _names: ())
    length = begin + content.length
    if length < path.stat().st_size:
        os.truncate(path, length)
    return length


def read_end(
    path: Path, choose: Choose | None = None, is_enough: Callable[[LogContent], bool] = lambda _content: True
) -> tuple[int, LogContent]:
    """Read a log from a mark near its end, or from an earlier one until it is enough; return also where it begins."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        length = _TAIL
        while True:
            begin = file.seek(max(size - length, 0))
            data = file.read()
            place = 0 if begin == 0 else _find_mark(data, begin)
            if place is not None:
                content = read_log(data[place:] if place else data, choose)
                if begin == 0 or is_enough(content):
                    return begin + place, content
            length *= 4


def _find_mark(data: bytes, begin: int) -> int | None:
    """Return where the first mark is in a piece of a log that begins at `begin`; None if there is none."""
    word = MAGIC + bytes([_MARK])
    place = data.find(word)
    while place >= 0:
        if data[place : place + _HEAD.size + _PLACE.size] == _frame(_MARK, 0, 0, 0, _PLACE.pack(begin + place)):
            return place
        place = data.find(word, place + 1)
    return None


def _frame(kind: int, table: int, node: int, at: int, body: bytes) -> bytes:
    """Return a frame of bytes; those of rows, whose length is in doubles, are made where they are added."""
    head = _CHECKED_HEAD.pack(MAGIC, kind, table, node, len(body), at)
    return head + zlib.crc32(body, zlib.crc32(head)).to_bytes(4, "little") + body
