"""Verbs about what happened, whoever it happened to."""

from typing import Annotated

from msgspec import Meta, Struct

from oarlock.store.engine.tx import Tx
from oarlock.store.queries import events
from oarlock.web import views
from oarlock.web.context import Call
from oarlock.web.decode import Asked, Instant
from oarlock.web.policy import May
from oarlock.web.registry import verb
from oarlock.web.verbs.resources import Names

_MOST = 10_000


class NodeEvents(Asked):
    """Events that name one of these nodes (any node, if none is given) from an instant on; of them the last `limit`."""

    nodes: Names | None = None
    since: Instant = 0
    limit: Annotated[int, Meta(ge=1, le=_MOST)] = _MOST


class NodeEvent(Struct, frozen=True):
    """Something that happened on nodes; `job_id` if it happened to a job there."""

    id: int
    type: str
    at: int
    description: str
    job_id: int | None
    hosts: tuple[str, ...]
    to_check: bool


class Happened(Struct, frozen=True):
    """Events, oldest first."""

    events: list[NodeEvent]


@verb(
    "events.list", "GET /events", may=May.USERS, asks=NodeEvents, answers=Happened,
    says="List what happened on nodes, all or some.",
)  # fmt: skip
async def listed(call: Call, asked: NodeEvents) -> Happened:
    """Give the events of nodes."""
    admin = call.who.admin

    def read(tx: Tx) -> Happened:
        found = events.of_hosts(tx, asked.nodes, since=asked.since, most=asked.limit)
        return Happened([_view(one, admin) for one in found])

    return await call.read(read)


def _view(noted: events.EventRow, admin: bool) -> NodeEvent:
    event = noted.event
    return NodeEvent(
        noted.id, event.type, event.at, views.description(event, own=admin), event.job, event.hosts, noted.to_check
    )
