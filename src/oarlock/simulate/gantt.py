"""A Gantt chart of part of a replay, as SVG: who was where, around the instant at which most jobs waited."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from oarlock.model.plan import lowest, positions
from oarlock.plan.sets.layout import ResourceLayout, bits_at, make_layout
from oarlock.plan.settings import PlanSettings
from oarlock.simulate import plot
from oarlock.simulate.platform import Platform
from oarlock.simulate.replay import ReplayedJob

_MOST = 512


@dataclass(frozen=True, slots=True)
class GanttRows:
    """How many rows, of how many resources each, what the first and the last are called, and which belong together.

    Of each group: its first row, and its name.
    """

    count: int
    each: int
    what: str
    ends: tuple[str, str]
    groups: Sequence[tuple[int, str]] = ()

    def description(self) -> str:
        """Return what a row is, in a sentence."""
        return f"A row is a {self.what}." if self.each == 1 else f"A row is {self.each:,} {self.what}s."


Placed = list[tuple[ReplayedJob, int]]


def assign_rows(ran: Sequence[ReplayedJob], site: Platform) -> tuple[GanttRows, Placed]:
    """Return which rows each job takes, as a set; on a large machine a row is several resources."""
    each = -(-site.size // _MOST)
    count = -(-site.size // each)
    if site.ground is not None:
        return GanttRows(count, each, "processor", ("1", f"{site.size:,}")), _assigned(ran, count, each)
    layout = make_layout(site.resources, PlanSettings().order)
    row_at = {place: at // each for at, place in enumerate(sorted(layout.place))}
    placed = [(job, bits_at([row_at[at] for at in positions(job.resources)])) for job in ran]
    nodes = _nodes(layout, row_at)
    return GanttRows(count, each, "resource", (nodes[0][1], nodes[-1][1]), nodes), placed


def _nodes(layout: ResourceLayout, row_at: dict[int, int]) -> list[tuple[int, str]]:
    return [(row_at[positions(node.bits)[0]], node.name) for node in layout.nodes if node.bits]


def _assigned(ran: Sequence[ReplayedJob], rows: int, each: int) -> Placed:
    """Assign identical processors to jobs, the lowest first."""
    free, running, placed = (1 << rows) - 1, list[tuple[int, int]](), list[tuple[ReplayedJob, int]]()
    for job in sorted(ran, key=lambda job: job.start):
        for end, bits in running:
            if end <= job.start:
                free |= bits
        running = [(end, bits) for end, bits in running if end > job.start]
        mine = lowest(free, min(max(job.job.processors // each, 1), free.bit_count()))
        free ^= mine
        running.append((job.end, mine))
        placed.append((job, mine))
    return placed


def stretches(bits: int) -> Iterator[tuple[int, int]]:
    """Yield the runs of consecutive members of a set, as [low, high)."""
    low = 0
    while bits:
        gap = (bits & -bits).bit_length() - 1  # zeros below the lowest set bit
        bits >>= gap
        low += gap
        length = (~bits & (bits + 1)).bit_length() - 1  # adding 1 carries through the lowest run of ones
        yield low, low + length
        bits >>= length
        low += length


_WIDTH, _LEFT, _RIGHT, _TOP, _BOTTOM = 1200, 88, 12, 4, 24
_TALL = 240  # of all rows together
_MOST_BARS = 250
_COLOURS = 8
_EDGE = 3
_LINE = 13  # what a name needs
_LETTERS = 12  # of a node's name
_ROOM = (48, 13)  # how wide and high a bar must be to bear its number

Window = tuple[int, int]


def busiest_window(ran: Sequence[ReplayedJob]) -> Window:
    """Choose a stretch of time around the instant at which most jobs waited, with not too many jobs in it."""
    changes = sorted([*((job.start, -1) for job in ran), *((job.job.submitted, 1) for job in ran)])
    level = most = 0
    centre = changes[0][0]
    for instant, change in changes:
        level += change
        if level > most:
            most, centre = level, instant
    begin, end = min(job.job.submitted for job in ran), max(job.end for job in ran)
    length = max(end - begin, 1)
    while length > 1 and sum(1 for _ in _inside(ran, (centre - length // 2, centre + length // 2))) > _MOST_BARS:
        length //= 2
    first = max(begin, min(centre - length // 2, end - length))
    return first, first + length


def gantt(ran: Sequence[ReplayedJob], site: Platform, window: Window, *, since: int) -> str:
    """Draw the jobs that ran in a window; `since` is the instant that is called 0."""
    rows, placed = assign_rows(list(_inside(ran, window)), site)
    high = _TOP + _TALL + _BOTTOM
    floor = f'<rect class="floor" x="{_LEFT}" y="{_TOP}" width="{_WIDTH - _LEFT - _RIGHT}" height="{_TALL}"/>'
    bars = (_bar(job, bits, window, _TALL / rows.count) for job, bits in placed)
    inside = "".join([floor, _times(window, since), *bars, _names(rows)])
    return f'<svg class="gantt" viewBox="0 0 {_WIDTH} {high}" role="img" aria-label="Gantt chart">{inside}</svg>'


def _bar(replayed: ReplayedJob, bits: int, window: Window, down: float) -> str:
    """Draw a job: a tint with a solid edge where it begins, and its number where there is room."""
    job = replayed.job
    x, stop = (_across(min(max(at, window[0]), window[1]), window) for at in (replayed.start, replayed.end))
    wide = max(stop - x, 1)
    pieces = [(_TOP + down * low, down * (high - low)) for low, high in stretches(bits)]
    tints = "".join(f'<rect x="{x:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{tall:.1f}"/>' for y, tall in pieces)
    edge = min(_EDGE, wide)
    edges = "".join(f"M{x + edge / 2:.1f} {y:.1f}v{tall:.1f}" for y, tall in pieces)
    title = f"job {job.number} of {job.user}: {job.processors} processors, waited {replayed.wait} s, ran {job.run} s"
    return (
        f'<g class="bar c{job.number % _COLOURS}"><title>{escape(title)}</title>{tints}'
        f'<path d="{edges}" stroke-width="{edge:.1f}"/>{_number(job.number, x, wide, pieces)}</g>'
    )


def _number(number: int, x: float, wide: float, pieces: Sequence[tuple[float, float]]) -> str:
    y, tall = max(pieces, key=lambda piece: piece[1], default=(0.0, 0.0))
    if wide < _ROOM[0] or tall < _ROOM[1]:
        return ""
    return f'<text class="number" x="{x + 7:.1f}" y="{y + tall / 2 + 4:.1f}">{number}</text>'


def _across(instant: float, window: Window) -> float:
    return _LEFT + (_WIDTH - _LEFT - _RIGHT) * (instant - window[0]) / max(window[1] - window[0], 1)


def _times(window: Window, since: int) -> str:
    drawn = []
    for at, text in plot.instants(window[0] - since, window[1] - since):
        x = _across(at + since, window)
        anchor = "end" if x > _WIDTH - 40 else "middle"
        drawn.append(f'<line class="grid" x1="{x:.1f}" y1="{_TOP}" x2="{x:.1f}" y2="{_TOP + _TALL}"/>'
                     f'<text class="note" x="{x:.1f}" y="{_TOP + _TALL + 16}" text-anchor="{anchor}">'
                     f"{text}</text>")  # fmt: skip
    return "".join(drawn)


def _names(rows: GanttRows) -> str:
    """Write beside the rows what they are: each group where that can be read, else the first and the last."""
    down = _TALL / rows.count
    groups = rows.groups if down * rows.count >= _LINE * len(rows.groups) else ()
    lines = (f"M{_LEFT} {_TOP + down * at:.1f}H{_WIDTH - _RIGHT}" for at, _ in groups[1:])
    names = (
        f'<text class="note" x="{_LEFT - 6}" y="{y:.1f}" text-anchor="end">{escape(name[:_LETTERS])}</text>'
        for y, name in (_beside(groups, rows.count) if groups else _ends(rows))
    )
    return f'<path class="grid" d="{"".join(lines)}"/>{"".join(names)}'


def _beside(groups: Sequence[tuple[int, str]], count: int) -> Iterator[tuple[float, str]]:
    """Put each name at the middle of its rows."""
    for (at, name), (until, _) in zip(groups, [*groups[1:], (count, "")], strict=True):
        yield _TOP + _TALL * (at + until) / 2 / count + 4, name


def _ends(rows: GanttRows) -> Iterator[tuple[float, str]]:
    first, last = rows.ends
    yield _TOP + 10, first
    if first != last:
        yield _TOP + _TALL, last


def _inside(ran: Sequence[ReplayedJob], window: Window) -> Iterator[ReplayedJob]:
    return (job for job in ran if job.start < window[1] and job.end > window[0])
