"""What there is: the resources that are not Dead, and whether a request could ever be met by them."""

from dataclasses import dataclass, field
from functools import reduce
from operator import or_

from oarlock.lang import where as conditions
from oarlock.lang.request import show_alternative
from oarlock.lang.where import Types
from oarlock.model.condition import Condition
from oarlock.model.errors import NotEnoughResources
from oarlock.model.request import Alternative, ResourceRequest
from oarlock.model.resource import ResourceOrder, ResourceState
from oarlock.model.snapshot import ResourceTable, Shape
from oarlock.plan.explain.wording import user_condition
from oarlock.plan.fit.fit import Fitter
from oarlock.plan.sets.layout import make_layout
from oarlock.store.engine.tx import Tx
from oarlock.store.queries import properties, resources

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
        known = self.taken.get(shape)
        if known is None:
            if len(self.taken) >= _MOST_REMEMBERED:
                self.taken.clear()
            known = self.taken[shape] = self._take(shape)
        return known

    def _take(self, shape: Shape) -> int:
        everything = self.fitter.layout.everything
        fit = self.fitter.compile(shape)
        return fit.take(self.fitter.whole_nodes(everything) if fit.of_nodes else everything).bit_count()

    def check(self, request: ResourceRequest) -> list[int]:
        """Count what each alternative would take; the first that never fits refuses them all."""
        counts = [self.take(Shape(one.groups, request.where)) for one in request.alternatives]
        for place, (alternative, count) in enumerate(zip(request.alternatives, counts, strict=True), 1):
            if not count:
                raise self._refused(request, alternative, place)
        return counts

    def _refused(self, request: ResourceRequest, alternative: Alternative, place: int) -> NotEnoughResources:
        shape = Shape(alternative.groups, request.where)
        allowed = [self.fitter.allowed(shape, group) for group in shape.groups]
        found = reduce(or_, allowed, 0)
        shown = f"`{show_alternative(alternative)}`{_with(request.where)}"
        which = f"Alternative {place}, {shown}," if len(request.alternatives) > 1 else shown
        layout = self.fitter.layout
        everything, nodes = layout.everything.bit_count(), len(layout.nodes_of(found))
        return NotEnoughResources(
            f"{which} asks for more than there is, even when all is free: "
            f"{found.bit_count()} of the {everything} resources fulfil its conditions, on {nodes} "
            f"node{'' if nodes == 1 else 's'}.",
            hint="Ask for less, or drop a condition; `oarnodes` shows what there is.",
        )


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
        """Give the cluster as this transaction sees it."""
        types, version = properties.types(tx), resources.version(tx)
        known = self._cluster
        if known is None or (known.version, known.types) != (version, types):
            known = self._cluster = ClusterResources(
                version, types, Fitter(make_layout(_table(tx, types), self._order))
            )
        return known


def _table(tx: Tx, types: Types) -> ResourceTable:
    there = [one for one in resources.listed(tx) if one.properties["state"] != ResourceState.DEAD]
    columns = {name: tuple([one.properties[name] for one in there]) for name in types}
    return ResourceTable(tuple([one.id for one in there]), columns)
