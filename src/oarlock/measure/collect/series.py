"""Curves of jobs and nodes, read from logs and files: few points, with the least, the mean and the most of each.

Counters are read as rates; where one falls (a reboot, a wrap) that stretch has no value. Where nothing came for more
than three periods, the curve has a point without values.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from difflib import get_close_matches
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct

from oarlock.measure.collect.files import hdf5
from oarlock.measure.collect.files.hdf5 import Gap, Track, definition_of, typical_period
from oarlock.measure.collect.files.places import SamplePlaces, day_of
from oarlock.measure.collect.files.rowlog import LogContent, Names, read_log_file
from oarlock.measure.collect.files.steps import Steps, finish
from oarlock.measure.collect.sums.joined_nodes import (
    JoinedNodes,
    NodeRows,
    by_column,
    join_rows,
    join_tracks,
    joined_tracks,
    places_of,
)
from oarlock.measure.collect.sums.thinned_copy import METRICS, CopiedCurves
from oarlock.measure.metrics import MetricKind, catalogue
from oarlock.model.errors import BadRequest, NotFound
from oarlock.node.sources.probe import split

COLMET_PREFIX = "colmet_"
"""Before the names of what Colmet sent and our catalogue has no name for."""

MOST_POINTS = 500
MOST_CURVES = 400
"""Curves in one answer: a job on many nodes, or a metric with many labels, is asked for in parts."""

USUAL_JOB = METRICS
USUAL_NODE = ("cpu_seconds_total", "load_1min", "meminfo_mem_available_bytes")
MOST_READ = 20_000_000
"""Values that are read for one answer: each takes some bytes of memory, and meanwhile nothing is logged."""

_LARGE_LOG = 64 << 20  # bytes: one that is larger is not read where a copy has the metrics, however coarse
_GAP_PERIODS = 3
_FEW = 1000  # values: above it numpy draws a curve
_DAY = 86_400
_FOREVER = 1 << 62


class NoSamples(NotFound):
    """Nothing was measured of what was asked for."""


def no_curves(job: int) -> NoSamples:
    """Return the refusal for a job of which no curve is kept."""
    return NoSamples(
        f"There are no curves of job {job}: it was not measured yet, ran too short, or they were deleted.",
        hint=f"`oarstat -j {job} --usage` shows what it used in all.",
    )


Point = tuple[float, float | None, float | None, float | None]
"""An instant (epoch seconds), the least, the mean and the most; three times None where a gap begins."""


class CurveView(Struct, frozen=True):
    """One series of one node. `kind` is `gauge` or `rate`; `points` are instant, least, mean, most."""

    metric: str
    series: str
    node: str
    kind: str
    unit: str
    points: list[Point]


class SeriesView(Struct, frozen=True, kw_only=True):
    """Curves of a job or a node between two instants (epoch seconds).

    `live`: the job is not over, or its file is not made yet. `thinned`: seconds that a point of a thinned file stands
    for. `gaps` are stretches in which nothing was kept, and why. `involved_jobs` are the jobs that were on the node;
    `agent_jobs` says what those of other resource managers are called there (`17@alpha`), by number. Where curves would
    be too many, there is one a metric, of `joined_nodes` together: the least, the mean and the most over them.
    """

    job_id: int | None = None
    node: str | None = None
    since: float
    until: float
    live: bool = True
    thinned: int | None = None
    series: list[CurveView]
    gaps: list[tuple[str, float, float, str]] = []
    involved_jobs: list[int] = []
    agent_jobs: dict[int, str] = {}
    joined_nodes: int = 0


class SeriesRange(NamedTuple):
    """What is wanted: metrics (none: the usual ones), instants in epoch seconds (None: all there is), points."""

    metrics: Sequence[str] = ()
    since: float | None = None
    until: float | None = None
    points: int = MOST_POINTS


ReadCopy = Callable[[Callable[[str], bool]], CopiedCurves | None]
"""Returns the wanted curves of a job that runs out of its thinned copy, if there is one."""


def read_job(
    places: SamplePlaces,
    job: int,
    wanted: SeriesRange,
    *,
    live: Collection[Path] = (),
    read_copy: ReadCopy = lambda _choose: None,
) -> SeriesView:
    """Read curves of a job from its copy or its log, or from its file once it has one.

    Logs in `live` need not be checked.
    """
    return finish(read_in_steps(places, job, wanted, live=live, read_copy=read_copy))


def read_in_steps(
    places: SamplePlaces,
    job: int,
    wanted: SeriesRange,
    *,
    live: Collection[Path] = (),
    read_copy: ReadCopy = lambda _choose: None,
) -> Steps[SeriesView]:
    """Read curves as `read_job` does; a file of very many nodes is read some thousand rows at a time."""
    choose = chooser(wanted.metrics or USUAL_JOB, "job", named=bool(wanted.metrics))
    since, until = span(wanted)
    log, file = places.log(job), places.kept(job) or places.archived(job)
    if all(split(metric)[0] in METRICS for metric in wanted.metrics) and (copy := read_copy(choose)) is not None:
        tracks = [part for track in copy.tracks if (part := _inside(track, since, until)).times]
        if copy.joined or copy.width <= _width(tracks, wanted) or _size(log) > _LARGE_LOG:
            return make_view(
                tracks, copy.gaps, wanted, scope="job", job_id=job, are_rates=True, joined_nodes=copy.joined
            )
    try:
        content = read_log_file(
            log, _names(choose), verify=log not in live, inside=(since, until), watch=refuse_above(MOST_READ)
        )
    except FileNotFoundError:
        return (yield from _read_file(file, job, choose, since, until, wanted))
    tracks = tracks_of(content, since, until)
    return make_view(tracks, hdf5.gaps(content), wanted, scope="job", job_id=job)


def _inside(track: Track, since: int, until: int) -> Track:
    """Return the part of a track between two instants (milliseconds)."""
    first, last = bisect_left(track.times, since), bisect_right(track.times, until)
    return Track(track.series, track.node, *(part[first:last] for part in track[2:]))  # type: ignore[arg-type]


def _width(tracks: Sequence[Track], wanted: SeriesRange) -> float:
    """Return for how many milliseconds a point of the answer stands."""
    first, last = _ends(tracks, wanted)
    return max((last - first) / max(min(wanted.points, MOST_POINTS), 1), 1)


def _ends(tracks: Sequence[Track], wanted: SeriesRange) -> tuple[int, int]:
    first = min((track.times[0] for track in tracks), default=0) if wanted.since is None else int(wanted.since * 1000)
    last = max((track.times[-1] for track in tracks), default=0) if wanted.until is None else int(wanted.until * 1000)
    return first, last


def _size(log: Path) -> int:
    try:
        return log.stat().st_size
    except FileNotFoundError:
        return 0


def _read_file(
    file: Path, job: int, choose: Callable[[str], bool], since: int, until: int, wanted: SeriesRange
) -> Steps[SeriesView]:
    try:
        about = hdf5.read_about(file)
        gaps, thinned = [Gap(*gap) for gap in about.get("gaps", ())], about.get("thinned")
        if find_spec("numpy") is not None and hdf5.count_tracks(file, choose) > MOST_CURVES:
            tracks, nodes = yield from _join_file(file, choose, since, until)
            if nodes > 1:
                return make_view(
                    tracks, gaps, wanted, scope="job", job_id=job, live=False, thinned=thinned,
                    are_rates=True, joined_nodes=nodes,
                )  # fmt: skip
        tracks = hdf5.read_tracks(file, choose, since, until, check=refuse_count_above(MOST_READ))
    except FileNotFoundError:
        raise no_curves(job) from None
    return make_view(tracks, gaps, wanted, scope="job", job_id=job, live=False, thinned=thinned)


def _join_file(file: Path, choose: Callable[[str], bool], since: int, until: int) -> Steps[tuple[list[Track], int]]:
    """Join the curves of all nodes in a file, some thousand rows at a time; return also how many nodes they are."""
    tables: dict[str, JoinedNodes] = {}
    for table in hdf5.read_rows(file, choose, since, until):
        joined = tables.get(table.table)
        if joined is None:
            metrics = tuple(dict.fromkeys(split(series)[0] for series in table.series))
            joined = tables[table.table] = JoinedNodes(metrics)
        places = places_of(joined.columns, table.series)
        parts = (by_column(joined.columns, places, part) for part in (table.least, table.mean, table.most))
        join_rows(joined, NodeRows(table.hosts, table.nodes, table.times, *parts))
        yield
    nodes = {node for joined in tables.values() for node in joined.last}
    return [track for joined in tables.values() for track in joined_tracks(joined)], len(nodes)


def read_node(places: SamplePlaces, node: str, wanted: SeriesRange, *, now: float) -> SeriesView:
    """Read curves of a node from its logs; without `since`, those of the last day."""
    wanted = wanted._replace(since=now - _DAY if wanted.since is None else wanted.since)
    since, until = span(wanted)
    choose = chooser(wanted.metrics or USUAL_NODE, "node", named=bool(wanted.metrics))
    files = node_days(places, node, since, until)
    if not files:
        raise NoSamples(
            f"There are no curves of node {node} from then.",
            hint="Nodes are measured while jobs run on them; `oarnodes` lists their names.",
        )
    tracks: dict[tuple[str, str], Track] = {}
    gaps: list[Gap] = []
    jobs: set[int] = set()
    for path in files:
        day_tracks, day_gaps, day_jobs = _read_day(path, choose, since, until)
        gaps += day_gaps
        jobs.update(day_jobs)
        for track in day_tracks:
            tracks[track.series, track.node] = _joined(tracks.get((track.series, track.node)), track)
    return make_view(list(tracks.values()), gaps, wanted, scope="node", node=node, involved_jobs=sorted(jobs))


def node_days(places: SamplePlaces, node: str, since: int, until: int) -> list[Path]:
    """Return the logs and files of a node that have something between two instants (milliseconds), a path a day."""
    # A file comes before a log of the same day, of which it was made.
    days = {day_of(path): path for path in reversed(places.node_files(node))}
    return [path for day, path in sorted(days.items()) if since < (day + _DAY) * 1000 and day * 1000 <= until]


def _read_day(
    path: Path, choose: Callable[[str], bool], since: int, until: int
) -> tuple[list[Track], list[Gap], list[int]]:
    """Read the series, the gaps and the jobs of a node on one day, from its log or its file."""
    if path.suffix == ".h5":
        about = hdf5.read_about(path)
        gaps = [Gap(*gap) for gap in about.get("gaps", ())]
        return hdf5.read_tracks(path, choose, since, until), gaps, list(about.get("involved_jobs", ()))
    content = read_log_file(path, _names(choose), inside=(since, until))
    return tracks_of(content, since, until), hdf5.gaps(content), hdf5.involved_jobs(content, since, until)


def _joined(before: Track | None, after: Track) -> Track:
    if before is None:
        return after
    values = [[*left, *right] for left, right in zip(before[2:], after[2:], strict=True)]
    return Track(before.series, before.node, *values)  # type: ignore[arg-type]


def chooser(metrics: Iterable[str], scope: str, *, named: bool) -> Callable[[str], bool]:
    """Return whether a series is one of the metrics, which may have labels; refuse `named` ones that do not exist."""
    wanted = frozenset(metrics)
    names = [name for kind, name in catalogue() if kind == scope]
    unknown = [metric for metric in wanted if split(metric)[0] not in names and not metric.startswith(COLMET_PREFIX)]
    if unknown and named:
        alike = get_close_matches(unknown[0], names, n=1)
        raise BadRequest(
            f"There is no metric `{unknown[0][:80]}` of a {scope}.",
            hint=f"Did you mean `{alike[0]}`?" if alike else "docs/reference/metrics.md lists them.",
        )
    return lambda series: series in wanted or split(series)[0] in wanted


def usual_metrics(scope: str) -> tuple[str, ...]:
    """Return the metrics that are drawn if none is named."""
    return USUAL_NODE if scope == "node" else USUAL_JOB


def refuse_above(most: int) -> Callable[[LogContent], None]:
    """Return what refuses a log while it is read, once more than so many values are wanted of it."""
    check = refuse_count_above(most)
    return lambda content: check(sum(len(names) * len(group.times) for names, group in content.groups.items()))


def refuse_count_above(most: int) -> Callable[[int], None]:
    """Return what refuses to read more than so many values."""

    def check(count: int) -> None:
        if count > most:
            raise BadRequest(
                f"That would be more than {most} values; so many are not read at once.",
                hint="Name fewer metrics, or a shorter time, or download the HDF5 file.",
            )

    return check


def _names(choose: Callable[[str], bool]) -> Callable[[Names], Names]:
    return lambda names: tuple(name for name in names if choose(name))


def span(wanted: SeriesRange) -> tuple[int, int]:
    """Return the first and the last millisecond."""
    since = 0 if wanted.since is None else int(wanted.since * 1000)
    until = _FOREVER if wanted.until is None else int(wanted.until * 1000)
    if since >= until:
        raise BadRequest(f"From {wanted.since:g} to {wanted.until:g} is no stretch of time.", hint="Swap the two.")
    return since, until


def tracks_of(content: LogContent, since: int = 0, until: int = _FOREVER) -> list[Track]:
    """Return the series of a log, each by node, between two instants (milliseconds). What is not finite is left out."""
    values: dict[tuple[str, int], tuple[list[int], list[float]]] = {}
    for group in content.groups.values():
        for place, series in enumerate(group.names):
            column = group.column(place)
            for at, node, value in zip(group.times, group.nodes, column, strict=True):
                if since <= at <= until and value - value == 0:
                    track = values.get((series, node))
                    if track is None:
                        track = values[series, node] = ([], [])
                    track[0].append(at)
                    track[1].append(value)
    return [
        _track(series, content.nodes[node], times, numbers)
        for (series, node), (times, numbers) in sorted(values.items())
    ]


def _track(series: str, node: str, times: list[int], values: list[float]) -> Track:
    """Return a track by time: a series that stood in several tables in turn was read table by table."""
    if any(before > after for before, after in pairwise(times)):
        order = sorted(range(len(times)), key=times.__getitem__)
        times, values = [times[place] for place in order], [values[place] for place in order]
    return Track(series, node, times, values, values, values)


def make_view(
    tracks: Sequence[Track],
    gaps: Iterable[Gap],
    wanted: SeriesRange,
    *,
    scope: str,
    job_id: int | None = None,
    node: str | None = None,
    live: bool = True,
    thinned: int | None = None,
    involved_jobs: list[int] | None = None,
    are_rates: bool = False,
    joined_nodes: int = 0,
) -> SeriesView:
    """Draw tracks; `are_rates`: those of counters are rates already. Very many of several nodes are joined."""
    if len(tracks) > MOST_CURVES:
        joined_nodes = len({track.node for track in tracks})
        if joined_nodes == 1 or find_spec("numpy") is None:
            raise BadRequest(
                f"That would be {len(tracks)} curves; at most {MOST_CURVES} are drawn at once.",
                hint="Name fewer metrics, or download all samples.",
            )
        tracks, are_rates = join_tracks(tracks, are_rates=are_rates), True
    first, last = _ends(tracks, wanted)
    return SeriesView(
        job_id=job_id,
        node=node,
        since=first / 1000,
        until=last / 1000,
        live=live,
        thinned=thinned,
        series=[_curve(track, scope, first, last, wanted.points, is_rate=are_rates) for track in tracks],
        gaps=[
            (gap.node, gap.since / 1000, gap.until / 1000, gap.why)
            for gap in gaps
            if gap.until >= first and gap.since <= last
        ],
        involved_jobs=involved_jobs or [],
        joined_nodes=joined_nodes,
    )


def _curve(track: Track, scope: str, since: int, until: int, points: int, *, is_rate: bool) -> CurveView:
    metric = definition_of(track.series, scope)
    name = split(track.series)[0]
    counts = metric.kind is MetricKind.COUNTER if metric else name.endswith("_total")
    unit = metric.unit if metric else ""
    drawn = draw(track, counts=counts and not is_rate, since=since, until=until, points=min(points, MOST_POINTS))
    kind, unit = ("rate", f"{unit}/s") if counts else ("gauge", unit)
    return CurveView(name, track.series, track.node, kind, unit, drawn)


class _Item(NamedTuple):
    """A value to draw, and whether a gap lies before it. Milliseconds."""

    at: int
    least: float
    mean: float
    most: float
    after_gap: bool


def draw(track: Track, *, counts: bool, since: int, until: int, points: int) -> list[Point]:
    """Reduce a track to at most `points` points between two instants (milliseconds)."""
    if len(track.times) > _FEW and find_spec("numpy") is not None:
        return _draw_many(track, counts=counts, since=since, until=until, points=points)
    limit = _GAP_PERIODS * typical_period(track.times)
    items = list(_rates(track, limit) if counts else _gauges(track, limit))
    gaps = sum(item.after_gap for item in items)
    if len(items) + gaps <= points:
        return _single_points(items)
    return _joined_points(items, since, max(1, -(-(until - since + 1) // points)))


def _draw_many(track: Track, *, counts: bool, since: int, until: int, points: int) -> list[Point]:
    """Do what `draw` does, with numpy: for thousands of values."""
    import numpy as np

    at = np.array(track.times, "<i8")
    least, mean, most = (np.array(part, "<f8") for part in (track.least, track.mean, track.most))
    steps = np.diff(at)
    is_gap = steps > _GAP_PERIODS * max(int(np.partition(steps, len(steps) // 2)[len(steps) // 2]), 1)
    if counts:
        grown = np.diff(most)
        is_known = ~is_gap & (steps > 0) & (grown >= 0)
        gaps = np.cumsum(is_gap)[is_known]  # before and up to each
        least = mean = most = grown[is_known] * 1000 / steps[is_known]
        at, after_gap = at[1:][is_known], np.diff(gaps, prepend=0) > 0
    else:
        after_gap = np.r_[False, is_gap]
    if len(at) + int(after_gap.sum()) <= points:
        columns = (column.tolist() for column in (at, least, mean, most, after_gap))
        return _single_points(map(_Item, *columns))
    places = (at - since) // max(1, -(-(until - since + 1) // points))
    begins = np.flatnonzero(np.r_[True, places[1:] != places[:-1]])
    ends = np.r_[begins[1:], len(at)] - 1
    is_hole = after_gap[begins] & np.r_[False, np.diff(places[begins]) > 1]
    joined = zip(
        at[ends].tolist(),
        np.minimum.reduceat(least, begins).tolist(),
        (np.add.reduceat(mean, begins) / (ends - begins + 1)).tolist(),
        np.maximum.reduceat(most, begins).tolist(),
        zip(is_hole.tolist(), at[begins].tolist(), strict=True),
        strict=True,
    )
    drawn: list[Point] = []
    for instant, low, middle, high, (is_after_hole, begin) in joined:
        if is_after_hole:
            drawn.append(_hole(drawn[-1][0], begin / 1000))
        drawn.append((instant / 1000, low, middle, high))
    return drawn


def _gauges(track: Track, limit: float) -> Iterator[_Item]:
    before: int | None = None
    for at, least, mean, most in zip(track.times, track.least, track.mean, track.most, strict=True):
        yield _Item(at, least, mean, most, before is not None and at - before > limit)
        before = at


def _rates(track: Track, limit: float) -> Iterator[_Item]:
    """Yield the rate of a counter at the end of each stretch; of thinned ones the last value is the most."""
    broken = False
    for (before, low), (at, high) in pairwise(zip(track.times, track.most, strict=True)):
        if at - before > limit:
            broken = True
        elif at > before and high >= low:
            rate = (high - low) * 1000 / (at - before)
            yield _Item(at, rate, rate, rate, broken)
            broken = False


def _single_points(items: Iterable[_Item]) -> list[Point]:
    drawn: list[Point] = []
    for at, least, mean, most, after_gap in items:
        if after_gap and drawn:
            drawn.append(_hole(drawn[-1][0], at / 1000))
        drawn.append((at / 1000, least, mean, most))
    return drawn


def _hole(before: float, after: float) -> Point:
    return (round((before + after) / 2, 3), None, None, None)


def _joined_points(items: Iterable[_Item], since: int, width: int) -> list[Point]:
    """Join the values of each stretch of `width` milliseconds into one point, at the instant of its last value."""
    drawn: list[Point] = []
    stretch, count, total = -1, 0, 0.0
    at, low, high = 0, 0.0, 0.0
    previous = -1
    for item in items:
        place = (item.at - since) // width
        if place != stretch:
            if count:
                drawn.append((at / 1000, low, total / count, high))
                previous = stretch
            if item.after_gap and place > previous + 1 and drawn:
                drawn.append(_hole(at / 1000, item.at / 1000))
            stretch, count, total, low, high = place, 0, 0.0, item.least, item.most
        at, count, total = item.at, count + 1, total + item.mean
        low, high = min(low, item.least), max(high, item.most)
    if count:
        drawn.append((at / 1000, low, total / count, high))
    return drawn
