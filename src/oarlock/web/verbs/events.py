"""Verbs about what happened, whoever it happened to."""

from typing import Annotated

from msgspec import Meta, Struct

from oarlock.store.engine.tx import Tx
from oarlock.store.queries import events
from oarlock.web import views
from oarlock.web.context import RequestContext
from oarlock.web.decode import Instant, VerbRequest
from oarlock.web.policy import RequiredRole
from oarlock.web.registry import verb
from oarlock.web.verbs.resources import Names

_MOST = 10_000


class NodeEventsRequest(VerbRequest):
    """Events that name one of these nodes (any node, if none is given) from an instant on; of them the last `limit`."""

    nodes: Names | None = None
    since: Instant = 0
    limit: Annotated[int, Meta(ge=1, le=_MOST)] = _MOST


class NodeEventView(Struct, frozen=True):
    """Something that happened on nodes; `job_id` if it happened to a job there."""

    id: int
    type: str
    at: int
    description: str
    job_id: int | None
    hosts: tuple[str, ...]
    to_check: bool


class NodeEventsResponse(Struct, frozen=True):
    """Events, oldest first."""

    events: list[NodeEventView]


@verb(
    "events.list", "GET /events",
    role=RequiredRole.USERS, request=NodeEventsRequest, response=NodeEventsResponse,
    summary="List what happened on nodes, all or some.",
)  # fmt: skip
async def listed(context: RequestContext, request: NodeEventsRequest) -> NodeEventsResponse:
    """Return the events of nodes."""
    admin = context.user.admin

    def read(tx: Tx) -> NodeEventsResponse:
        rows = events.of_hosts(tx, request.nodes, since=request.since, most=request.limit)
        return NodeEventsResponse([_view(row, admin) for row in rows])

    return await context.read(read)


def _view(noted: events.EventRow, admin: bool) -> NodeEventView:
    event = noted.event
    return NodeEventView(
        noted.id, event.type, event.at, views.description(event, own=admin), event.job, event.hosts, noted.to_check
    )
