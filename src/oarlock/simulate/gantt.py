"""A Gantt chart of part of a replay, as SVG: who was where, around the instant at which most jobs waited."""

from collections.abc import Iterator, Sequence
from html import escape

from oarlock.plan.layout import lay_out
from oarlock.plan.sets import lowest
from oarlock.plan.settings import PlanSettings
from oarlock.simulate.replay import Ran
from oarlock.simulate.site import Site

_WIDTH, _HEIGHT, _LEFT = 1200, 260, 58
_MOST_BARS = 250
_MOST_ROWS = 512
_COLOURS = 8

Window = tuple[int, int]


def busiest_window(ran: Sequence[Ran]) -> Window:
    """Choose a stretch of time around the instant at which most jobs waited, with not too many jobs in it."""
    changes = sorted([*((one.start, -1) for one in ran), *((one.job.submitted, 1) for one in ran)])
    level = most = 0
    centre = changes[0][0]
    for instant, change in changes:
        level += change
        if level > most:
            most, centre = level, instant
    begin, end = min(one.job.submitted for one in ran), max(one.end for one in ran)
    length = max(end - begin, 1)
    while length > 1 and sum(1 for _ in _inside(ran, (centre - length // 2, centre + length // 2))) > _MOST_BARS:
        length //= 2
    first = max(begin, min(centre - length // 2, end - length))
    return first, first + length


def gantt(ran: Sequence[Ran], site: Site, window: Window) -> str:
    """Draw the jobs that ran in a window; rows are nodes, or processors given from the lowest on."""
    rows, placed = _on_rows(list(_inside(ran, window)), site)
    begin, end = window
    across, down = (_WIDTH - _LEFT - 4) / max(end - begin, 1), (_HEIGHT - 24) / max(rows, 1)
    bars = [f'<rect class="floor" x="{_LEFT}" y="4" width="{_WIDTH - _LEFT - 4}" height="{_HEIGHT - 24}"/>']
    for one, bits in placed:
        x, stop = (_LEFT + across * (min(max(at, begin), end) - begin) for at in (one.start, one.end))
        job = one.job
        title = f"job {job.number} of {job.user}: {job.processors} processors, waited {one.wait} s, ran {job.run} s"
        pieces = "".join(
            f'<rect x="{x:.1f}" y="{4 + down * low:.1f}" width="{max(stop - x, 1):.1f}" '
            f'height="{down * (high - low):.1f}"/>'
            for low, high in _runs(bits)
        )
        bars.append(f'<g class="bar c{job.number % _COLOURS}"><title>{escape(title)}</title>{pieces}</g>')
    inside = "".join([*bars, _labels(rows, site, window)])
    return f'<svg class="gantt" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="Gantt chart">{inside}</svg>'


def _labels(rows: int, site: Site, window: Window) -> str:
    what = "processors" if site.ground is not None else "nodes"
    count = site.size if site.ground is not None else rows
    hours = (window[1] - window[0]) / 3600
    ends = "".join(
        f'<text class="note" x="{_LEFT + (_WIDTH - _LEFT - 4) * part / 4:.0f}" y="{_HEIGHT - 4}" '
        f'text-anchor="{"start" if not part else "end" if part == 4 else "middle"}">+{hours * part / 4:.3g} h</text>'
        for part in range(5)
    )
    return f'<text class="note" x="0" y="16">{count:,}</text><text class="note" x="0" y="30">{what}</text>{ends}'


def _inside(ran: Sequence[Ran], window: Window) -> Iterator[Ran]:
    return (one for one in ran if one.start < window[1] and one.end > window[0])


def _on_rows(ran: list[Ran], site: Site) -> tuple[int, list[tuple[Ran, int]]]:
    """Say which rows each job takes, as a set; and how many rows there are."""
    if site.ground is not None:
        return _given_rows(ran, site.size)
    nodes = [node.bits for node in lay_out(site.resources, PlanSettings().order).nodes]
    touched = [sum(1 << at for at, bits in enumerate(nodes) if one.resources & bits) for one in ran]
    return len(nodes), list(zip(ran, touched, strict=True))


def _given_rows(ran: list[Ran], size: int) -> tuple[int, list[tuple[Ran, int]]]:
    """Give processors that are all alike to jobs, the lowest first; on a large machine a row is several."""
    each = -(-size // _MOST_ROWS)
    rows = -(-size // each)
    free, running, placed = (1 << rows) - 1, list[tuple[int, int]](), list[tuple[Ran, int]]()
    for one in sorted(ran, key=lambda one: one.start):
        for end, bits in running:
            if end <= one.start:
                free |= bits
        running = [(end, bits) for end, bits in running if end > one.start]
        mine = lowest(free, min(max(one.job.processors // each, 1), free.bit_count()))
        free ^= mine
        running.append((one.end, mine))
        placed.append((one, mine))
    return rows, placed


def _runs(bits: int) -> Iterator[tuple[int, int]]:
    """Give the stretches of neighbours in a set, as [low, high)."""
    low = 0
    while bits:
        gap = (bits & -bits).bit_length() - 1
        bits >>= gap
        low += gap
        length = (~bits & (bits + 1)).bit_length() - 1
        yield low, low + length
        bits >>= length
        low += length
