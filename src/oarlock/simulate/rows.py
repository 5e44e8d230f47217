"""The rows of a Gantt chart: which of them each job takes, and their labels."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from oarlock.model.plan import lowest, positions
from oarlock.plan.sets.layout import ResourceLayout, bits_at, make_layout
from oarlock.plan.settings import PlanSettings
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
