"""Verbs about what happened: events of nodes, and for administrators the audit."""

from typing import Annotated

from msgspec import Meta, Struct

from oarlock.store.engine.tx import Tx
from oarlock.store.queries.cluster import events
from oarlock.store.queries.job import job_pages
from oarlock.store.queries.users import user_records
from oarlock.web import views
from oarlock.web.context import RequestContext
from oarlock.web.decode import Id, Instant, VerbRequest, Word
from oarlock.web.policy import RequiredRole
from oarlock.web.registry import verb
from oarlock.web.verbs.cluster.resources import Names

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
async def list_events(context: RequestContext, request: NodeEventsRequest) -> NodeEventsResponse:
    """Return the events of nodes."""
    admin = context.user.admin

    def read(tx: Tx) -> NodeEventsResponse:
        rows = events.of_hosts(tx, request.nodes, since=request.since, most=request.limit)
        seen = job_pages.seen(tx, context.sight, {row.event.job for row in rows if row.event.job})
        return NodeEventsResponse([_view(row, admin) for row in rows if not row.event.job or row.event.job in seen])

    return await context.read(read)


def _view(noted: events.EventRow, admin: bool) -> NodeEventView:
    event = noted.event
    return NodeEventView(
        noted.id, event.type, event.at, views.description(event, own=admin), event.job, event.hosts, noted.to_check
    )


class AuditRequest(VerbRequest):
    """The last `limit` changes from an instant on, by one user, about one job; `check`: also whether all is whole."""

    by: Word | None = None
    job: Id | None = None
    since: Instant = 0
    limit: Annotated[int, Meta(ge=1, le=_MOST)] = 100
    check: bool = False


class AuditResponse(Struct, frozen=True):
    """Changes, oldest first; `broken` is the first entry that somebody edited, or before which one was taken out."""

    changes: list[user_records.AuditEntry]
    broken: int | None = None


@verb(
    "audit.list", "GET /audit",
    role=RequiredRole.ADMINS, request=AuditRequest, response=AuditResponse,
    summary="List who changed what, and check that nobody changed the list.",
)  # fmt: skip
async def list_audit(context: RequestContext, request: AuditRequest) -> AuditResponse:
    """Return the changes."""

    def read(tx: Tx) -> AuditResponse:
        changes = user_records.audit_entries(
            tx, user=request.by, job=request.job, since=request.since, most=request.limit
        )
        return AuditResponse(changes, user_records.broken_audit(tx) if request.check else None)

    return await context.read(read)
