"""Thinned copies of the curves of jobs that run, so that a plot of a large job does not read its log.

A copy has the metrics that are drawn if none is named. Rows are kept as they come, some dozens, and then joined into
stretches with the least, the sum, the most and the count of each series; counters as rates. While few jobs run a
stretch is a sample; it becomes longer when a copy has no more room, so that all copies together keep within some
megabytes. They are stored with the sums of jobs, and go on from there after a crash.

numpy does the joining. Without it there are no copies, and logs are read.
"""

import struct
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from oarlock.measure.collect.files.hdf5 import Gap, Track
from oarlock.measure.collect.files.rowlog import Names
from oarlock.measure.collect.sums.joined_nodes import (
    JoinedNodes,
    NodeRows,
    is_counter,
    join_rows,
    joined_tracks,
    places_of,
)
from oarlock.measure.collect.sums.stretches import CELL, PARTS, regroup
from oarlock.node.sources.probe import split

if TYPE_CHECKING:
    import numpy as np

METRICS = ("cpu_seconds_total", "memory_anonymous_bytes", "memory_cache_bytes", "read_bytes_total",
           "written_bytes_total", "gpu_utilization_ratio")  # fmt: skip
"""What copies have of each job."""

MOST_NODES = 400
"""A job on more nodes has more curves than are drawn at once: its copy has what they say together."""

_ROOM = 16 << 20  # bytes of all copies together
_MOST_STRETCHES, _LEAST_STRETCHES = 1024, 16
_WAITING = 32  # rows that wait to be joined
_MOST_GAPS = 500
_GAP_PERIODS = 3
_MOST_TABLES = 10_000
_JOINED_WAITING = 1 << 18  # bytes of rows of many nodes that wait to be joined


class NodeCopy(Struct):
    """The curves of a job on a node. `times` are the last instants of its stretches, `cells` their parts by series.

    Instants and `width`, that of a stretch, are in milliseconds. `waiting` are rows that are not joined yet, and
    `last` is the last one that is; `latest` is the instant of the last row of all.
    """

    series: Names
    width: int = 1
    period: float = 0.0
    times: bytes = b""
    cells: bytes = b""
    last: bytes = b""
    latest: int = -1
    waiting: bytearray = field(default_factory=bytearray)

    @property
    def row_bytes(self) -> int:
        """The bytes of a row: its instant and its values."""
        return CELL * (1 + len(self.series))


class WideCopy(Struct):
    """The curves of a job on very many nodes. `waiting` are rows (number of the node, instant, values) of `names`."""

    joined: JoinedNodes = field(default_factory=lambda: JoinedNodes(METRICS))
    names: dict[str, int] = {}
    waiting: bytearray = field(default_factory=bytearray)


class JobCopy(Struct):
    """The curves of a job: by node, one for each set of series that it had there, or of very many nodes together."""

    nodes: dict[str, list[NodeCopy]] = {}
    gaps: list[tuple[str, int, int, str]] = []
    is_whole: bool = True
    """Whether it has all that was logged of the job."""
    wide: WideCopy | None = None


class _Layout:
    """Where in a row the values of a copy stand. `take` returns them after the instant, as doubles."""

    __slots__ = ("_pack", "_unpack", "names", "places", "series")

    def __init__(self, names: Names) -> None:
        self.names = names  # kept, since its id is its name
        wanted = [split(name)[0] in METRICS for name in names]
        self.series = tuple(name for name, is_wanted in zip(names, wanted, strict=True) if is_wanted)
        self._unpack = struct.Struct("<" + "".join("d" if is_wanted else "8x" for is_wanted in wanted)).unpack
        self._pack = struct.Struct(f"<{1 + len(self.series)}d").pack
        self.places = places_of(METRICS, self.series)

    def take(self, at: float, packed: bytes | memoryview) -> bytes:
        return self._pack(at, *self._unpack(packed))


class ThinnedCopies:
    """Feeds the copies of all jobs. `room` is how many bytes they may have together."""

    def __init__(self, room: int = _ROOM) -> None:
        self._room = room
        self._count = 0  # of nodes in all copies
        self._layouts: dict[int, _Layout] = {}
        self._is_possible = find_spec("numpy") is not None

    def take(self, copy: JobCopy, node: str, at: int, names: Names, packed: bytes | memoryview) -> None:
        """Take a row of a job, at an instant in milliseconds; one that is not later than the last is left out."""
        layout = self._layouts.get(id(names))
        if layout is None:
            if len(self._layouts) > _MOST_TABLES:
                self._layouts = {}
            layout = self._layouts[id(names)] = _Layout(names)
        if not layout.series or not copy.is_whole:
            return
        if copy.wide is None and self._is_wide(copy, node):
            self._begin_wide(copy)
        if copy.wide is not None:
            _take_wide(copy.wide, node, layout.places, layout.take(float(at), packed))
        if copy.wide is not None or not copy.is_whole:
            return
        part = self._copy_of(copy, node, layout.series)
        if part is not None and at > part.latest:
            part.latest = at
            part.waiting += layout.take(float(at), packed)
            if len(part.waiting) >= _WAITING * part.row_bytes:
                self._join(copy, node, part)

    def note_gap(self, copy: JobCopy, gap: Gap) -> None:
        """Remember a stretch in which nothing was kept."""
        noted = gap.node, gap.since, gap.until, gap.why
        # After a crash a log is read on from somewhere, but all of its notes come again.
        if len(copy.gaps) < _MOST_GAPS and noted not in copy.gaps:
            copy.gaps.append(noted)

    def count(self, copy: JobCopy) -> None:
        """Count a copy that was stored, or that another one replaces."""
        self._count += sum(map(len, copy.nodes.values()))

    def forget(self, copy: JobCopy) -> None:
        """Make room: the job is over."""
        self._count -= sum(map(len, copy.nodes.values()))

    def read(self, copy: JobCopy, choose: Callable[[str], bool]) -> "CopiedCurves | None":
        """Return the curves of a job that are wanted; None if the copy does not have all of the job."""
        if copy.wide is not None and copy.is_whole:
            return _read_wide(copy, copy.wide, choose)
        if not self._is_possible or not copy.is_whole or not copy.nodes:
            return None
        tracks: dict[tuple[str, str], Track] = {}
        width = 1
        for node, parts in copy.nodes.items():
            for part in parts:
                if any(map(choose, part.series)):
                    self._join(copy, node, part)
                    width = max(width, part.width)
                    for track in _tracks(node, part, choose):
                        before = tracks.get((track.series, node))
                        tracks[track.series, node] = track if before is None else _joined(before, track)
        return CopiedCurves(width, [track for _, track in sorted(tracks.items())], _gaps(copy))

    def _is_wide(self, copy: JobCopy, node: str) -> bool:
        return self._is_possible and len(copy.nodes) >= MOST_NODES and node not in copy.nodes

    def _begin_wide(self, copy: JobCopy) -> None:
        """Join what was copied of each node; what is joined to stretches already cannot be."""
        self.forget(copy)
        nodes, copy.nodes = copy.nodes, {}
        if any(part.times for parts in nodes.values() for part in parts):
            copy.is_whole = False
            return
        copy.wide = WideCopy()
        for node, parts in nodes.items():
            for part in parts:
                places, size = places_of(METRICS, part.series), part.row_bytes
                for begin in range(0, len(part.waiting), size):
                    _take_wide(copy.wide, node, places, bytes(part.waiting[begin : begin + size]))

    def _copy_of(self, copy: JobCopy, node: str, series: Names) -> NodeCopy | None:
        parts = copy.nodes.get(node)
        if parts is not None:
            # The last is the one that rows go to: series that come and go make others, in turn.
            for part in reversed(parts):
                if part.series == series:
                    return part
        if not self._is_possible or len(parts or ()) >= _LEAST_STRETCHES:
            self.forget(copy)
            copy.nodes, copy.is_whole = {}, False
            return None
        part = NodeCopy(series)
        copy.nodes.setdefault(node, []).append(part)
        self._count += 1
        return part

    def _join(self, copy: JobCopy, node: str, part: NodeCopy) -> None:
        """Join the rows that wait to the stretches; note where nothing came for long."""
        if not part.waiting:
            return
        for before, after in _fold(part):
            self.note_gap(copy, Gap(node, before, after, "nothing came"))
        bytes_each = CELL * (1 + PARTS * len(part.series))
        most = self._room // max(self._count, 1) // bytes_each
        _widen(part, min(max(most, _LEAST_STRETCHES), _MOST_STRETCHES))


class CopiedCurves(Struct, frozen=True):
    """Curves out of a copy, those of counters as rates, and its gaps. `width`: milliseconds of the widest stretch.

    `joined`: of how many nodes they are together, if they are.
    """

    width: int
    tracks: list[Track]
    gaps: list[Gap]
    joined: int = 0


def _gaps(copy: JobCopy) -> list[Gap]:
    return sorted((Gap(*gap) for gap in copy.gaps), key=lambda gap: (gap.since, gap.node))


def _take_wide(wide: WideCopy, node: str, places: Sequence[Sequence[int]], row: bytes) -> None:
    """Take a row of a node: its instant, and the values of series that stand at these places for each metric."""
    at, *values = struct.unpack(f"<{len(row) // CELL}d", row)
    by_metric = [
        values[stand[0]] if len(stand) == 1 else _on_node(metric, [values[place] for place in stand])
        for metric, stand in zip(METRICS, places, strict=True)
    ]
    wide.waiting += struct.pack(f"<{2 + len(METRICS)}d", wide.names.setdefault(node, len(wide.names)), at, *by_metric)
    if len(wide.waiting) >= _JOINED_WAITING:
        _join_wide(wide)


def _on_node(metric: str, values: list[float]) -> float:
    """Return the value of a metric that a node has several times, or not at all."""
    total = sum(values) if values else float("nan")
    return total if is_counter(metric) else total / max(len(values), 1)


def _join_wide(wide: WideCopy) -> None:
    import numpy as np

    rows = np.frombuffer(bytes(wide.waiting), "<f8").reshape(-1, 2 + len(METRICS))
    wide.waiting = bytearray()
    values = rows[:, 2:]
    join_rows(wide.joined, NodeRows(list(wide.names), rows[:, 0].astype("<i8"), rows[:, 1], values, values, values))


def _read_wide(copy: JobCopy, wide: WideCopy, choose: Callable[[str], bool]) -> CopiedCurves | None:
    """Return the curves of metrics that are wanted; None if only some of their labels are."""
    _join_wide(wide)
    tracks = joined_tracks(wide.joined, choose)
    return CopiedCurves(wide.joined.width, tracks, _gaps(copy), len(wide.names)) if tracks else None


def _fold(part: NodeCopy) -> list[tuple[int, int]]:
    """Append the rows that wait, each as a stretch of its own; return between which instants nothing came."""
    import numpy as np

    size = part.row_bytes // CELL
    rows = np.frombuffer(part.last + part.waiting, "<f8").reshape(-1, size)
    new = rows[1:] if part.last else rows
    steps = np.diff(rows[:, 0])
    if len(steps) > 1:
        part.period = max(float(np.sort(steps)[len(steps) // 2]), 1.0)
    limit = _GAP_PERIODS * part.period or float("inf")
    values = new[:, 1:].copy()
    for place, series in enumerate(part.series):
        if is_counter(series):
            values[:, place] = _rates(rows[:, place + 1], steps, limit)[-len(new) :]
    is_number = np.isfinite(values)
    values[~is_number] = np.nan
    cells = np.empty((len(new), PARTS, len(part.series)))
    cells[:, 0] = cells[:, 2] = values
    cells[:, 1], cells[:, 3] = np.where(is_number, values, 0.0), is_number
    part.last = new[-1].tobytes()
    part.waiting = bytearray()
    part.times += new[:, 0].astype("<i8").tobytes()
    part.cells += cells.tobytes()
    if part.width > 1:
        regroup(part)
    holes = np.flatnonzero(steps > limit).tolist()
    return [(int(rows[place, 0]), int(rows[place + 1, 0])) for place in holes]


def _rates(column: "np.ndarray[Any, Any]", steps: "np.ndarray[Any, Any]", limit: float) -> "np.ndarray[Any, Any]":
    """Return the rate of a counter at each of its instants; no number where it is not known."""
    import numpy as np

    with np.errstate(invalid="ignore"):
        grown = np.diff(column)
        is_known = (steps <= limit) & (grown >= 0)
        rates: np.ndarray[Any, Any] = np.r_[np.nan, np.where(is_known, grown * 1000 / steps, np.nan)]
        return rates


def _widen(part: NodeCopy, most: int) -> None:
    """Make stretches wider until there are at most so many."""
    while len(part.times) > most * CELL:
        first, last = (struct.unpack_from("<q", part.times, place)[0] for place in (0, len(part.times) - CELL))
        part.width = max(2 * part.width, 2 * (last - first) // most)
        regroup(part)


def _tracks(node: str, part: NodeCopy, choose: Callable[[str], bool]) -> Sequence[Track]:
    import numpy as np

    times = np.frombuffer(part.times, "<i8")
    cells = np.frombuffer(part.cells, "<f8").reshape(len(times), PARTS, -1)
    tracks = []
    for place, series in enumerate(part.series):
        here = cells[:, 3, place] > 0
        if choose(series) and here.any():
            least, total, most, count = cells[here, :, place].T
            tracks.append(
                Track(series, node, times[here].tolist(), (total / count).tolist(), least.tolist(), most.tolist())
            )
    return tracks


def _joined(first: Track, second: Track) -> Track:
    """Return one track of two: series that came and went have one for each table that they stood in."""
    rows = sorted(zip((*first.times, *second.times), (*first.mean, *second.mean), (*first.least, *second.least),
                      (*first.most, *second.most), strict=True))  # fmt: skip
    return Track(first.series, first.node, *map(list, zip(*rows, strict=True)))
