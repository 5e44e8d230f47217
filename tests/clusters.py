"""Resources for tests: nodes with a few cores each."""

from collections.abc import Sequence

from oarlock.store.engine.tx import Tx
from oarlock.store.queries.cluster import properties, resources

NOW = 1_000_000


def add_nodes(
    tx: Tx, names: Sequence[str], *, cores: int = 2, cpus: Sequence[int] | None = None, at: int = NOW
) -> list[int]:
    """Add nodes with a few cores each; `core` is a property of the site's own. `cpus` are the CPU numbers of a node."""
    if "core" not in properties.types(tx):
        properties.add(tx, "core", int)
    count = len(resources.listed(tx))
    numbers = cpus or range(cores)
    rows = [
        {"network_address": name, "core": count + place * cores + core, "cpuset": numbers[core % len(numbers)]}
        for place, name in enumerate(names)
        for core in range(cores)
    ]
    return resources.add(tx, rows, at=at)
