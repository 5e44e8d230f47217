"""Verbs about resources and their properties."""

from collections.abc import Collection
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct, field

from oarlock.lang import where as conditions
from oarlock.lang.limits import short
from oarlock.model.errors import BadField, BadRequest, UnknownNode
from oarlock.model.resource import DEFAULT_TYPE, OF_THE_SYSTEM, PROPERTY_ALIASES, NextState, ResourceState, Value
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.cluster import properties, resources
from oarlock.store.queries.job import job_pages, listing
from oarlock.web import views
from oarlock.web.context import EmptyResponse, RequestContext
from oarlock.web.decode import EmptyRequest, Id, Text, VerbRequest, Word
from oarlock.web.policy import RequiredRole
from oarlock.web.registry import verb
from oarlock.web.views import ResourceView

_MOST_ADDED = 10_000
_MOST_NAMED = 10_000

Ids = Annotated[list[Id], Meta(max_length=_MOST_NAMED)]
Names = Annotated[list[Word], Meta(max_length=_MOST_NAMED)]
Values = dict[Word, Word | int | None]  # what a property can hold is for the store to say, by its name


class ResourceSelection(VerbRequest):
    """Resources by number, by node, or by a condition."""

    ids: Ids | None = None
    nodes: Names | None = None
    where: Text | None = None


class ResourcesResponse(Struct, frozen=True):
    """Resources by number, and the jobs that hold them."""

    resources: list[ResourceView]
    jobs: dict[int, list[int]]


@verb(
    "resources.list", "GET /resources",
    role=RequiredRole.USERS, request=ResourceSelection, response=ResourcesResponse,
    summary="List resources, all or some, and which jobs hold them.",
)  # fmt: skip
async def listed(context: RequestContext, request: ResourceSelection) -> bytes:
    """Return the response as bytes, encoded in the thread that read it."""
    ids = await _chosen(context, request)

    def read(tx: Tx) -> bytes:
        shown = views.resource_views(tx, ids)
        there = {view["resource_id"] for view in shown}
        holders = listing.on_resources(tx)
        seen = job_pages.seen(tx, context.sight, {job for jobs in holders.values() for job in jobs})
        held = {
            number: [job for job in jobs if job in seen]
            for number, jobs in holders.items()
            if number in there and not seen.isdisjoint(jobs)
        }
        return msgspec.json.encode(ResourcesResponse(shown, held))

    found_before = request.where is not None or request.nodes is not None  # at an instant of its own
    return await context.read(read, None if found_before else context.key(private=False))


class NewResourcesRequest(VerbRequest):
    """Resources: so many with these properties. `host` is their node; licences and the like have none (empty)."""

    host: Annotated[str, Meta(max_length=255)]
    properties: Values = field(default_factory=dict)
    count: Annotated[int, Meta(ge=1, le=_MOST_ADDED)] = 1
    state: ResourceState = ResourceState.ALIVE


class ResourceIdsResponse(Struct, frozen=True):
    """Which resources."""

    resource_ids: list[int]


@verb(
    "resources.add", "POST /resources",
    role=RequiredRole.ADMINS, request=NewResourcesRequest, response=ResourceIdsResponse,
    summary="Add resources to a node, or some that are on no node.",
)  # fmt: skip
async def add(context: RequestContext, request: NewResourcesRequest) -> ResourceIdsResponse:
    """Add the same resource as often as asked."""
    if not request.host and request.properties.get("type", DEFAULT_TYPE) == DEFAULT_TYPE:
        raise BadField(
            f"A resource of type `{DEFAULT_TYPE}` is on a node: jobs run there.",
            hint="Name its node, or set another type (`oarnodesetting -a -h '' -p type=licence`).",
        )
    row: dict[str, Value] = {**request.properties, "network_address": request.host, "state": request.state.value}
    at = context.now
    added = await context.change(
        lambda tx: ResourceIdsResponse(resources.add(tx, [row] * request.count, at=at)), ResourceIdsResponse
    )  # fmt: skip
    context.core.wake_scheduler()
    return added


class SetStateRequest(ResourceSelection, kw_only=True):
    """Another state. `now` is for commands, which may wait for the end of the jobs there; the server never does.

    `end_maintenance`: give back the cm_availability that the last maintenance replaced by 0.
    """

    state: ResourceState
    now: bool = False
    end_maintenance: bool = False


class SetStateResponse(Struct, frozen=True):
    """Which resources were meant, and the jobs that are still on them."""

    resource_ids: list[int]
    jobs: list[int]


@verb(
    "resources.state", "POST /resources/state",
    role=RequiredRole.ADMINS, request=SetStateRequest, response=SetStateResponse,
    summary="Put resources into another state.",
)  # fmt: skip
async def set_state(context: RequestContext, request: SetStateRequest) -> SetStateResponse:
    """Set the state; the server applies it and takes care of the jobs there."""

    async def act() -> SetStateResponse:
        ids, at = await _some(context, request), context.now
        if request.end_maintenance:
            await context.core.write(lambda tx: resources.end_maintenance(tx, ids, at=at))
        return SetStateResponse(ids, await context.core.set_state(ids, NextState(request.state.value)))

    return await context.act(act, SetStateResponse)


class SetPropertiesRequest(ResourceSelection, kw_only=True):
    """New values of properties."""

    properties: Values


class SetPropertiesResponse(Struct, frozen=True):
    """Which resources were meant, and how many of them had another value before, by property."""

    resource_ids: list[int]
    updated: dict[str, int]


@verb(
    "resources.properties", "POST /resources/properties",
    role=RequiredRole.ADMINS, request=SetPropertiesRequest, response=SetPropertiesResponse,
    summary="Give resources other properties.",
)  # fmt: skip
async def set_properties(context: RequestContext, request: SetPropertiesRequest) -> SetPropertiesResponse:
    """Change the values; the scheduler looks again."""
    ids, at = await _some(context, request), context.now

    def step(tx: Tx) -> SetPropertiesResponse:
        return SetPropertiesResponse(ids, resources.set_properties(tx, ids, request.properties, at=at))

    changed = await context.change(step, SetPropertiesResponse)
    context.core.wake_scheduler()
    return changed


class ResourceByIdRequest(VerbRequest):
    """A resource by its number."""

    id: Id


@verb(
    "resources.remove", "DELETE /resources/{id}",
    role=RequiredRole.ADMINS, request=ResourceByIdRequest, response=EmptyResponse,
    summary="Remove a resource that is Dead and free.",
)  # fmt: skip
async def remove(context: RequestContext, request: ResourceByIdRequest) -> EmptyResponse:
    """Remove it; the history of jobs that ran there stays."""
    at = context.now
    return await context.do(lambda tx: resources.remove(tx, request.id, at=at))


class PropertiesResponse(Struct, frozen=True):
    """Properties with their kinds, and which of them the system keeps for itself."""

    properties: dict[str, Literal["int", "str"]]
    system: list[str]


@verb(
    "properties.list", "GET /properties",
    role=RequiredRole.USERS, request=EmptyRequest, response=PropertiesResponse,
    summary="List the properties that resources have.",
)  # fmt: skip
async def list_properties(context: RequestContext, _request: EmptyRequest) -> PropertiesResponse:
    """Return all columns of resources."""
    types = await context.read(properties.types)
    types |= {alias: types[column] for alias, column in PROPERTY_ALIASES.items()}
    kinds: dict[str, Literal["int", "str"]] = {name: "int" if kind is int else "str" for name, kind in types.items()}
    return PropertiesResponse(kinds, sorted(OF_THE_SYSTEM))


class NewPropertyRequest(VerbRequest):
    """A property to be added."""

    name: Word
    kind: Literal["int", "str"]


class NewPropertyResponse(Struct, frozen=True):
    """Whether the property is new; one of the same kind may have been there already."""

    added: bool


@verb(
    "properties.add", "POST /properties",
    role=RequiredRole.ADMINS, request=NewPropertyRequest, response=NewPropertyResponse,
    summary="Add a property; it holds integers or texts. One that is there and holds the same stays as it is.",
)  # fmt: skip
async def add_property(context: RequestContext, request: NewPropertyRequest) -> NewPropertyResponse:
    """Add a column."""
    kind = int if request.kind == "int" else str
    return await context.change(
        lambda tx: NewPropertyResponse(properties.add(tx, request.name, kind)), NewPropertyResponse
    )


class RenamePropertyRequest(VerbRequest):
    """A property's old and new name."""

    old: Word
    new: Word


@verb(
    "properties.rename", "POST /properties/rename",
    role=RequiredRole.ADMINS, request=RenamePropertyRequest, response=EmptyResponse,
    summary="Rename a property; its values stay.",
)  # fmt: skip
async def rename_property(context: RequestContext, request: RenamePropertyRequest) -> EmptyResponse:
    """Rename a column."""
    return await context.do(lambda tx: properties.rename(tx, request.old, request.new))


class PropertyByNameRequest(VerbRequest):
    """A property by its name."""

    name: Word


@verb(
    "properties.remove", "DELETE /properties/{name}",
    role=RequiredRole.ADMINS, request=PropertyByNameRequest, response=EmptyResponse,
    summary="Remove a property with all its values.",
)  # fmt: skip
async def remove_property(context: RequestContext, request: PropertyByNameRequest) -> EmptyResponse:
    """Drop a column."""
    at = context.now
    return await context.do(lambda tx: properties.drop(tx, request.name, at=at))


async def _some(context: RequestContext, request: ResourceSelection) -> list[int]:
    """Return the resources to be changed; a selection is required."""
    ids = await _chosen(context, request)
    if ids is None:
        raise BadRequest("Which resources?", hint="Give one of ids, nodes or where.")
    return list(ids)


async def _chosen(context: RequestContext, request: ResourceSelection) -> Collection[int] | None:
    """Return the selected resources; None means all."""
    given = sum(value is not None for value in (request.ids, request.nodes, request.where))
    if given > 1:
        raise BadRequest("Resources are chosen in one way.", hint="Give one of ids, nodes or where.")
    if request.nodes is not None:
        return await _of_nodes(context, request.nodes)
    if request.where is not None:
        types = await context.read(properties.types)
        condition = conditions.check(conditions.parse(request.where), types)
        return await context.ask(lambda tx: resources.matching(tx, condition, types), ("resources", request.where))
    return request.ids


async def _of_nodes(context: RequestContext, names: list[str]) -> list[int]:
    by_node = await context.read(lambda tx: listing.at_nodes(tx, names))
    for name in names:
        if name not in by_node:
            raise UnknownNode(f"There is no node `{short(name)}`.", hint="`oarnodes -l` lists them.")
    return sorted({number for numbers in by_node.values() for number in numbers})
