"""Curves of very many nodes as one: of each stretch of time the least, the mean and the most over all of them.

A job on a thousand nodes has more curves than can be drawn, or kept in memory. What is joined takes some hundred
kilobytes, however many nodes and samples there are. A metric that a node has several times, of each GPU say, is added
up there if it is a counter; of others it is the mean.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Struct

from oarlock.measure.collect.files.hdf5 import Track, definition_of
from oarlock.measure.collect.files.rowlog import Names
from oarlock.measure.collect.sums.stretches import CELL, PARTS, regroup
from oarlock.measure.metrics import MetricKind
from oarlock.node.sources.probe import split

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

_WIDTH = 10_000  # milliseconds of the narrowest stretch: each node has a sample in it, usually
_MOST_STRETCHES = 1024
_GAP_PERIODS = 3


class JoinedNodes(Struct):
    """What many nodes said, by stretches; of counters the rates. `columns` are metrics, without labels.

    `last` is the last row of each node, its instant and its values: rates go on from it. `are_rates`: what comes of
    counters are rates already.
    """

    columns: Names
    are_rates: bool = False
    width: int = _WIDTH
    period: float = 0.0
    times: bytes = b""
    cells: bytes = b""
    last: dict[str, bytes] = {}


class NodeRows(NamedTuple):
    """Rows of many nodes: instants (milliseconds), places in `names`, and the values of each column.

    `least` and `most` differ from `mean` in thinned files only.
    """

    names: Sequence[str]
    nodes: "Array"
    times: "Array"
    least: "Array"
    mean: "Array"
    most: "Array"


def is_counter(series: str) -> bool:
    """Return whether a series of a job is a counter."""
    metric = definition_of(series)
    return metric is not None and metric.kind is MetricKind.COUNTER


def places_of(columns: Names, series: Sequence[str]) -> list[list[int]]:
    """Return where the series of each column stand, which differ in their labels."""
    names = [split(name)[0] for name in series]
    return [[place for place, name in enumerate(names) if name == column] for column in columns]


def by_column(columns: Names, places: Sequence[Sequence[int]], values: "Array") -> "Array":
    """Return a value of each column out of the values of each series, row by row; no number where there is none."""
    import numpy as np

    by_metric = np.full((len(values), len(columns)), np.nan)
    for at, (column, stand) in enumerate(zip(columns, places, strict=True)):
        if stand:
            part = values[:, stand]
            is_number = np.isfinite(part)
            counts = is_number.sum(axis=1)
            sums = np.where(is_number, part, 0.0).sum(axis=1)
            has_value = counts == len(stand) if is_counter(column) else counts > 0
            by_metric[has_value, at] = sums[has_value] if is_counter(column) else sums[has_value] / counts[has_value]
    return by_metric


def join_rows(joined: JoinedNodes, rows: NodeRows) -> None:
    """Join rows, in any order, to what was joined before."""
    import numpy as np

    if not len(rows.times):
        return
    seen = [place for place, name in enumerate(rows.names) if name in joined.last]
    before = np.frombuffer(b"".join(joined.last[rows.names[place]] for place in seen), "<f8")
    before = before.reshape(len(seen), 1 + len(joined.columns))
    times, nodes = np.r_[before[:, 0], rows.times], np.r_[np.array(seen, "<i8"), rows.nodes]
    order = np.lexsort((times, nodes))
    times, nodes = times[order], nodes[order]
    least, mean, most = (np.vstack([before[:, 1:], part])[order] for part in (rows.least, rows.mean, rows.most))
    _keep_last(joined, rows.names, nodes, np.column_stack([times, most]))
    follows, steps = np.r_[False, nodes[1:] == nodes[:-1]], np.diff(times, prepend=times[0])
    if follows.any():
        joined.period = max(float(np.median(steps[follows])), 1.0)
    is_known = follows & (steps > 0) & (steps <= _GAP_PERIODS * joined.period)
    for place, column in enumerate(joined.columns):
        if is_counter(column) and not joined.are_rates:
            least[:, place] = mean[:, place] = most[:, place] = _rates(most[:, place], steps, is_known)
    is_new = order >= len(seen)
    _append(joined, times[is_new], least[is_new], mean[is_new], most[is_new])


def _keep_last(joined: JoinedNodes, names: Sequence[str], nodes: "Array", rows: "Array") -> None:
    """Keep the last row of each node; rows are by node and time."""
    import numpy as np

    for place in np.flatnonzero(np.r_[nodes[1:] != nodes[:-1], True]).tolist():
        joined.last[names[int(nodes[place])]] = rows[place].tobytes()


def _rates(column: "Array", steps: "Array", is_known: "Array") -> "Array":
    """Return the rate of a counter at each row; no number where it is not known."""
    import numpy as np

    with np.errstate(invalid="ignore", divide="ignore"):
        grown = np.diff(column, prepend=np.nan)
        rates: Array = np.where(is_known & (grown >= 0), grown * 1000 / steps, np.nan)
        return rates


def _append(joined: JoinedNodes, times: "Array", least: "Array", mean: "Array", most: "Array") -> None:
    import numpy as np

    is_number = np.isfinite(mean)
    cells = np.empty((len(times), PARTS, len(joined.columns)))
    cells[:, 0], cells[:, 2] = np.where(is_number, least, np.nan), np.where(is_number, most, np.nan)
    cells[:, 1], cells[:, 3] = np.where(is_number, mean, 0.0), is_number
    before = np.frombuffer(joined.times, "<i8")
    all_times = np.r_[before, times.astype("<i8")]
    all_cells = np.vstack([np.frombuffer(joined.cells, "<f8").reshape(len(before), *cells.shape[1:]), cells])
    order = np.argsort(all_times, kind="stable")
    joined.times, joined.cells = all_times[order].tobytes(), all_cells[order].tobytes()
    regroup(joined)
    while len(joined.times) > _MOST_STRETCHES * CELL:
        joined.width *= 2
        regroup(joined)


def joined_tracks(joined: JoinedNodes, choose: Callable[[str], bool] = lambda _metric: True) -> list[Track]:
    """Return the curves of metrics that are wanted. What stands for the node says how many they are."""
    import numpy as np

    times = np.frombuffer(joined.times, "<i8")
    cells = np.frombuffer(joined.cells, "<f8").reshape(len(times), PARTS, len(joined.columns))
    tracks = []
    for place, column in enumerate(joined.columns):
        here = cells[:, 3, place] > 0
        if choose(column) and here.any():
            least, total, most, count = cells[here, :, place].T
            instants, mean = times[here].tolist(), (total / count).tolist()
            tracks.append(Track(column, label(len(joined.last)), instants, mean, least.tolist(), most.tolist()))
    return tracks


def label(nodes: int) -> str:
    """Return what stands for the name of a node where many are joined."""
    return f"{nodes} nodes"


def join_tracks(tracks: Sequence[Track], *, are_rates: bool) -> list[Track]:
    """Join the curves of many nodes, one for each metric; `are_rates`: those of counters are rates already."""
    by_metric: dict[str, dict[str, list[Track]]] = {}
    for track in tracks:
        by_metric.setdefault(split(track.series)[0], {}).setdefault(track.node, []).append(track)
    curves = []
    for metric, by_node in by_metric.items():
        joined = JoinedNodes((metric,), are_rates=are_rates)
        for node, of_node in by_node.items():
            join_rows(joined, _rows_of(node, of_node, metric))
        curves += joined_tracks(joined)
    return curves


def _rows_of(node: str, tracks: Sequence[Track], metric: str) -> NodeRows:
    """Return the tracks of a metric on one node as rows."""
    import numpy as np

    times = np.unique(np.concatenate([np.array(track.times, "<i8") for track in tracks]))
    values = np.full((3, len(times), len(tracks)), np.nan)
    for place, track in enumerate(tracks):
        here = np.searchsorted(times, track.times)
        for part, column in zip(values, (track.least, track.mean, track.most), strict=True):
            part[here, place] = column
    stands = [list(range(len(tracks)))]
    parts = (by_column((metric,), stands, part) for part in values)
    return NodeRows([node], np.zeros(len(times), "<i8"), times, *parts)
