"""Verbs about resources and their properties."""

from collections.abc import Collection
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct, field

from oarlock.lang import where as conditions
from oarlock.lang.limits import short
from oarlock.model.errors import BadRequest, UnknownNode
from oarlock.model.resource import OF_THE_SYSTEM, PROPERTY_ALIASES, NextState, ResourceState, Value
from oarlock.store.engine.tx import Tx
from oarlock.store.queries import listing, properties, resources
from oarlock.web import views
from oarlock.web.context import Call, Nought
from oarlock.web.decode import Asked, Id, Text, Word
from oarlock.web.policy import May
from oarlock.web.registry import verb
from oarlock.web.verbs.site import Nothing
from oarlock.web.views import ResourceView

_MOST_ADDED = 10_000
_MOST_NAMED = 10_000

Ids = Annotated[list[Id], Meta(max_length=_MOST_NAMED)]
Names = Annotated[list[Word], Meta(max_length=_MOST_NAMED)]
Values = dict[Word, Word | int | None]  # what a property can hold is for the store to say, by its name


class SomeResources(Asked):
    """Resources by number, by node, or by a condition."""

    ids: Ids | None = None
    nodes: Names | None = None
    where: Text | None = None


class Resources(Struct, frozen=True):
    """Resources by number, and the jobs that hold them."""

    resources: list[ResourceView]
    jobs: dict[int, list[int]]


@verb(
    "resources.list", "GET /resources", may=May.USERS, asks=SomeResources, answers=Resources,
    says="List resources, all or some, and which jobs hold them.",
)  # fmt: skip
async def listed(call: Call, asked: SomeResources) -> bytes:
    """Give the answer as bytes: made where it was read."""
    ids = await _chosen(call, asked)

    def read(tx: Tx) -> bytes:
        shown = views.resource_views(tx, ids)
        there = {view["resource_id"] for view in shown}
        held = {number: jobs for number, jobs in listing.on_resources(tx).items() if number in there}
        return msgspec.json.encode(Resources(shown, held))

    found_before = asked.where is not None or asked.nodes is not None  # at an instant of its own
    return await call.read(read, None if found_before else call.key(private=False))


class NewResources(Asked):
    """A node's resources: so many with these properties."""

    host: Annotated[str, Meta(min_length=1, max_length=255)]
    properties: Values = field(default_factory=dict)
    count: Annotated[int, Meta(ge=1, le=_MOST_ADDED)] = 1
    state: ResourceState = ResourceState.ALIVE


class ResourceIds(Struct, frozen=True):
    """Which resources."""

    resource_ids: list[int]


@verb(
    "resources.add", "POST /resources", may=May.ADMINS, asks=NewResources, answers=ResourceIds,
    says="Add resources to a node.",
)  # fmt: skip
async def add(call: Call, asked: NewResources) -> ResourceIds:
    """Add the same resource as often as asked."""
    row: dict[str, Value] = {**asked.properties, "network_address": asked.host, "state": asked.state.value}
    at = call.now
    added = await call.change(
        lambda tx: ResourceIds(resources.add(tx, [row] * asked.count, at=at)), ResourceIds
    )  # fmt: skip
    call.core.wake_scheduler()
    return added


class SetState(SomeResources, kw_only=True):
    """Another state. `now` is for commands, which may wait for the end of the jobs there; the server never does.

    `end_maintenance`: give back the cm_availability that the last maintenance replaced by 0.
    """

    state: ResourceState
    now: bool = False
    end_maintenance: bool = False


class StateSet(Struct, frozen=True):
    """Which resources were meant, and the jobs that are still on them."""

    resource_ids: list[int]
    jobs: list[int]


@verb(
    "resources.state", "POST /resources/state", may=May.ADMINS, asks=SetState, answers=StateSet,
    says="Put resources into another state.",
)  # fmt: skip
async def set_state(call: Call, asked: SetState) -> StateSet:
    """Ask the server for it, which applies it and looks after the jobs."""

    async def act() -> StateSet:
        ids, at = await _some(call, asked), call.now
        if asked.end_maintenance:
            await call.core.write(lambda tx: resources.end_maintenance(tx, ids, at=at))
        return StateSet(ids, await call.core.set_state(ids, NextState(asked.state.value)))

    return await call.act(act, StateSet)


class SetProperties(SomeResources, kw_only=True):
    """New values of properties."""

    properties: Values


class PropertiesSet(Struct, frozen=True):
    """Which resources were meant, and how many of them had another value before, by property."""

    resource_ids: list[int]
    updated: dict[str, int]


@verb(
    "resources.properties", "POST /resources/properties", may=May.ADMINS, asks=SetProperties, answers=PropertiesSet,
    says="Give resources other properties.",
)  # fmt: skip
async def set_properties(call: Call, asked: SetProperties) -> PropertiesSet:
    """Change the values; the scheduler looks again."""
    ids, at = await _some(call, asked), call.now

    def step(tx: Tx) -> PropertiesSet:
        return PropertiesSet(ids, resources.set_properties(tx, ids, asked.properties, at=at))

    changed = await call.change(step, PropertiesSet)
    call.core.wake_scheduler()
    return changed


class OneResource(Asked):
    """A resource by its number."""

    id: Id


@verb(
    "resources.remove", "DELETE /resources/{id}", may=May.ADMINS, asks=OneResource, answers=Nought,
    says="Remove a resource that is Dead and free.",
)  # fmt: skip
async def remove(call: Call, asked: OneResource) -> Nought:
    """Remove it; the history of jobs that ran there stays."""
    at = call.now
    return await call.do(lambda tx: resources.remove(tx, asked.id, at=at))


class Properties(Struct, frozen=True):
    """Properties with their kinds, and which of them the system keeps for itself."""

    properties: dict[str, Literal["int", "str"]]
    system: list[str]


@verb(
    "properties.list", "GET /properties", may=May.USERS, asks=Nothing, answers=Properties,
    says="List the properties that resources have.",
)  # fmt: skip
async def list_properties(call: Call, _asked: Nothing) -> Properties:
    """Give all columns of resources."""
    types = await call.read(properties.types)
    types |= {alias: types[column] for alias, column in PROPERTY_ALIASES.items()}
    kinds: dict[str, Literal["int", "str"]] = {name: "int" if kind is int else "str" for name, kind in types.items()}
    return Properties(kinds, sorted(OF_THE_SYSTEM))


class NewProperty(Asked):
    """A property to be added."""

    name: Word
    kind: Literal["int", "str"]


class PropertyAdded(Struct, frozen=True):
    """Whether the property is new; one of the same kind may have been there already."""

    added: bool


@verb(
    "properties.add", "POST /properties", may=May.ADMINS, asks=NewProperty, answers=PropertyAdded,
    says="Add a property; it holds integers or texts. One that is there and holds the same stays as it is.",
)  # fmt: skip
async def add_property(call: Call, asked: NewProperty) -> PropertyAdded:
    """Add a column."""
    kind = int if asked.kind == "int" else str
    return await call.change(lambda tx: PropertyAdded(properties.add(tx, asked.name, kind)), PropertyAdded)


class Renamed(Asked):
    """A property's old and new name."""

    old: Word
    new: Word


@verb(
    "properties.rename", "POST /properties/rename", may=May.ADMINS, asks=Renamed, answers=Nought,
    says="Rename a property; its values stay.",
)  # fmt: skip
async def rename_property(call: Call, asked: Renamed) -> Nought:
    """Rename a column."""
    return await call.do(lambda tx: properties.rename(tx, asked.old, asked.new))


class OneProperty(Asked):
    """A property by its name."""

    name: Word


@verb(
    "properties.remove", "DELETE /properties/{name}", may=May.ADMINS, asks=OneProperty, answers=Nought,
    says="Remove a property with all its values.",
)  # fmt: skip
async def remove_property(call: Call, asked: OneProperty) -> Nought:
    """Drop a column."""
    at = call.now
    return await call.do(lambda tx: properties.drop(tx, asked.name, at=at))


async def _some(call: Call, asked: SomeResources) -> list[int]:
    """Find the resources to be changed; that all are meant has to be said."""
    ids = await _chosen(call, asked)
    if ids is None:
        raise BadRequest("Which resources?", hint="Give one of ids, nodes or where.")
    return list(ids)


async def _chosen(call: Call, asked: SomeResources) -> Collection[int] | None:
    """Find the resources that are meant; None: all."""
    given = sum(one is not None for one in (asked.ids, asked.nodes, asked.where))
    if given > 1:
        raise BadRequest("Resources are chosen in one way.", hint="Give one of ids, nodes or where.")
    if asked.nodes is not None:
        return await _of_nodes(call, asked.nodes)
    if asked.where is not None:
        types = await call.read(properties.types)
        condition = conditions.check(conditions.parse(asked.where), types)
        return await call.ask(lambda tx: resources.matching(tx, condition, types), ("resources", asked.where))
    return asked.ids


async def _of_nodes(call: Call, names: list[str]) -> list[int]:
    found = await call.read(lambda tx: listing.at_nodes(tx, names))
    for name in names:
        if name not in found:
            raise UnknownNode(f"There is no node `{short(name)}`.", hint="`oarnodes -l` lists them.")
    return sorted({number for numbers in found.values() for number in numbers})
