"""The platform of a replay: a number of identical processors, or a tree of nodes and their parts."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from msgspec.structs import replace

from oarlock.model.resource import DEFAULT_TYPE, Value
from oarlock.model.snapshot import ResourceTable
from oarlock.plan.inputs import PlanInputs
from oarlock.plan.sets.layout import NODE
from oarlock.plan.timeline.counted import counted_inputs
from oarlock.simulate.trace import Trace, TraceRefused, flat

_NODE_NAMES = {"node": NODE, "nodes": NODE, "host": NODE, "network_address": NODE}
_LEVEL = re.compile(r"(?:([a-z_][a-z0-9_]*)=([0-9]+)|([0-9]+)\*([a-z_][a-z0-9_]*))", re.IGNORECASE)
_MOST = 1_000_000
_HINT = "A number (`--resources 100`), or a tree: `switch=4/nodes=8/core=32`, also written `4*switch/8*nodes/32*core`."

Level = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Platform:
    """What there is: `size` processors (resources of type `default`).

    Where they are all alike there is a `ground`, and no table to speak of.
    """

    size: int
    resources: ResourceTable
    ground: PlanInputs | None = None


def uniform(size: int) -> Platform:
    """Return a platform of so many identical processors."""
    return Platform(size, ResourceTable((), {}), counted_inputs(size))


def from_table(resources: ResourceTable) -> Platform:
    """Return a platform of a table, everything in it ready for use."""
    count = len(resources.ids)
    usual: dict[str, Value] = {
        "state": "Alive", "next_state": "UnChanged", "type": DEFAULT_TYPE, "scheduler_priority": 0,
        "suspended_jobs": "NO",
    }  # fmt: skip
    ready = {name: (value,) * count for name, value in usual.items() if name not in resources.columns}
    columns = resources.columns | ready | {name: (usual[name],) * count for name in ("state", "next_state")}
    processors = sum(kind == DEFAULT_TYPE for kind in columns["type"])
    return Platform(processors, ResourceTable(resources.ids, columns))


def parse(text: str | None, trace: Trace) -> Platform:
    """Read `--resources`; without it, what the trace says of its machine. `TraceRefused` where that is nothing."""
    if text is None:
        if trace.resources is not None:
            return from_table(trace.resources)
        if trace.processors:
            return uniform(trace.processors)
        raise TraceRefused(f"{trace.name} does not say how large its machine was.", hint=f"Give --resources. {_HINT}")
    if text.isdigit():
        return uniform(_bounded(int(text), text))
    return from_table(_tree(text))


def fitted(trace: Trace, where: Platform) -> Trace:
    """Ask only what a site can tell apart: where processors are all alike, for a number of them."""
    if where.ground is None:
        return trace
    return replace(trace, jobs=tuple(replace(job, shape=flat(job.processors)) for job in trace.jobs))


def _bounded(size: int, text: str) -> int:
    if not 0 < size <= _MOST:
        raise TraceRefused(f"`{text}` means {size} resources; 1 to {_MOST:,} can be replayed.", hint=_HINT)
    return size


def _tree(text: str) -> ResourceTable:
    """Make the table of a tree, or of several joined by `+`."""
    rows: list[dict[str, Value]] = []
    for tree in text.split("+"):
        levels = [_level(level, text) for level in tree.strip().strip("/").split("/")]
        size = _bounded(_product(levels) + len(rows), text)
        if NODE not in [name for name, _ in levels]:
            raise TraceRefused(f"`{text}` has no nodes.", hint=_HINT)
        rows += _rows(levels, len(rows))
        if len(rows) != size:
            raise AssertionError("a tree has as many leaves as its levels multiply to")
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = {name: tuple(row.get(name) for row in rows) for name in names}
    return ResourceTable(tuple(range(1, len(rows) + 1)), columns)


def _level(level: str, text: str) -> Level:
    match = _LEVEL.fullmatch(level.strip())
    if match is None:
        raise TraceRefused(f"`{level}` in `{text}` is not a level of a tree.", hint=_HINT)
    name, count = (match[1], match[2]) if match[1] else (match[4], match[3])
    return _NODE_NAMES.get(name.lower(), name.lower()), int(count)


def _product(levels: list[Level]) -> int:
    total = 1
    for _, count in levels:
        total *= count
    return total


def _rows(levels: list[Level], before: int) -> Iterator[dict[str, Value]]:
    """Yield the leaves of a tree; a value of a level is numbered across the whole cluster."""
    total = _product(levels)
    for leaf in range(total):
        row: dict[str, Value] = {}
        below = total
        for name, count in levels:
            below //= count
            number = before + leaf // below
            row[name] = f"node{number + 1:06d}" if name == NODE else number
        yield row
