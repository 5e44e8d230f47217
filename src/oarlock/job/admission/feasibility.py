"""Feasibility: the resources that are not Dead, and whether a request could ever be met by them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import or_

from oarlock.lang import where as conditions
from oarlock.lang.request import show_alternative
from oarlock.lang.where import Types
from oarlock.model.condition import Condition
from oarlock.model.resource import ResourceOrder, ResourceState
from oarlock.model.snapshot import ResourceTable, Shape
from oarlock.model.submission import Alternative, ResourceRequest
from oarlock.model.submission_errors import NotEnoughResources
from oarlock.plan.explain import user_condition
from oarlock.plan.fit.fit import Fitter
from oarlock.plan.sets.layout import NODE, make_layout
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.cluster import properties, resources

_MOST_REMEMBERED = 10_000


@dataclass(slots=True)
class ClusterResources:
    """The resources of one instant, and how many of them each shape asked about so far would take."""

    version: int
    types: Types
    fitter: Fitter
    taken: dict[Shape, int] = field(default_factory=dict)

    def take(self, shape: Shape) -> int:
        """Count the resources that a shape takes of an empty cluster; 0 if it does not fit."""
        count = self.taken.get(shape)
        if count is None:
            if len(self.taken) >= _MOST_REMEMBERED:
                self.taken.clear()
            count = self.taken[shape] = self._take(shape)
        return count

    def _take(self, shape: Shape) -> int:
        everything = self.fitter.layout.everything
        fit = self.fitter.compile(shape)
        return fit.take(self.fitter.whole_nodes(everything) if fit.of_nodes else everything).bit_count()

    def check(self, request: ResourceRequest) -> list[int]:
        """Count what each alternative would take; the first that never fits refuses them all."""
        counts = [self.take(Shape(alternative.groups, request.where)) for alternative in request.alternatives]
        for place, (alternative, count) in enumerate(zip(request.alternatives, counts, strict=True), 1):
            if not count:
                raise self._refused(request, alternative, place)
        return counts

    def _refused(self, request: ResourceRequest, alternative: Alternative, place: int) -> NotEnoughResources:
        shape = Shape(alternative.groups, request.where)
        allowed = [self.fitter.allowed(shape, group) for group in shape.groups]
        matching = reduce(or_, allowed, 0)
        shown = f"`{show_alternative(alternative)}`{_with(request.where)}"
        which = f"Alternative {place}, {shown}," if len(request.alternatives) > 1 else shown
        layout = self.fitter.layout
        everything, nodes = layout.everything.bit_count(), len(layout.nodes_of(matching))
        return NotEnoughResources(
            f"{which} asks for more than there is, even when all is free: "
            f"{matching.bit_count()} of the {everything} resources fulfil its conditions, on {nodes} "
            f"node{'' if nodes == 1 else 's'}.{self._few_values(shape, allowed)}",
            hint="Ask for less, or drop a condition; `oarnodes` shows what there is.",
        )

    def _few_values(self, shape: Shape, allowed: Sequence[int]) -> str:
        """Name a property that is counted and has fewer values than resources: two hosts may both have a core 1."""
        layout = self.fitter.layout
        for group, bits in zip(shape.groups, allowed, strict=True):
            for level in group.levels:
                values = sum(1 for of_value in layout.by_value(level.name).values() if of_value & bits)
                if level.name != NODE and isinstance(level.count, int) and values < min(level.count, bits.bit_count()):
                    several = f"{values} values of `{level.name}`" if values > 1 else f"one and the same `{level.name}`"
                    return f" Together they have {several}."
        return ""


def _with(where: Condition | None) -> str:
    """Name the condition of the whole job, which no alternative shows: of -p, or of its type."""
    own = user_condition(where)
    return "" if own is None else f" with `{conditions.show(own)}`"


class ClusterResourcesCache:
    """Keeps the cluster as it was last read; it is read again when a resource or a property changed."""

    def __init__(self, order: tuple[ResourceOrder, ...]) -> None:
        self._order = order
        self._cluster: ClusterResources | None = None

    def now(self, tx: Tx) -> ClusterResources:
        """Return the cluster as this transaction sees it."""
        types, version = properties.types(tx), resources.version(tx)
        cluster = self._cluster
        if cluster is None or (cluster.version, cluster.types) != (version, types):
            cluster = self._cluster = ClusterResources(
                version, types, Fitter(make_layout(_table(tx, types), self._order))
            )
        return cluster


def _table(tx: Tx, types: Types) -> ResourceTable:
    there = [resource for resource in resources.listed(tx) if resource.properties["state"] != ResourceState.DEAD]
    columns = {name: tuple([resource.properties[name] for resource in there]) for name in types}
    return ResourceTable(tuple([resource.id for resource in there]), columns)
