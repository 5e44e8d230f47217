"""Verbs about maintenance windows."""

from typing import Annotated

from msgspec import Meta, Struct

from oarlock.job.cluster import maintenance
from oarlock.job.cluster.maintenance import AffectedJobs
from oarlock.model.maintenance import Maintenance
from oarlock.store.queries import maintenance as stored
from oarlock.web.context import EmptyResponse, RequestContext
from oarlock.web.decode import Id, Instant, Text, VerbRequest, Word
from oarlock.web.policy import RequiredRole
from oarlock.web.registry import verb
from oarlock.web.verbs.site import EmptyRequest


class MaintenanceResponse(Struct, frozen=True):
    """Maintenance windows that are not over, by their begin."""

    windows: list[Maintenance]


@verb(
    "maintenance.list", "GET /maintenance",
    role=RequiredRole.USERS, request=EmptyRequest, response=MaintenanceResponse,
    summary="List the maintenance windows that are not over.",
)  # fmt: skip
async def listed(context: RequestContext, _request: EmptyRequest) -> MaintenanceResponse:
    """Return the windows, ordered by start."""
    now = context.now
    return MaintenanceResponse(await context.read(lambda tx: stored.listed(tx, now=now)))


class NewMaintenanceRequest(VerbRequest, kw_only=True):
    """A window: when, and of which resources; without nodes and without a condition, of all."""

    name: Annotated[str, Meta(min_length=1, max_length=100)]
    start: Instant
    stop: Instant
    nodes: Annotated[list[Word], Meta(max_length=10_000)] | None = None
    where: Text | None = None


@verb(
    "maintenance.add", "POST /maintenance",
    role=RequiredRole.ADMINS, request=NewMaintenanceRequest, response=AffectedJobs,
    summary="Keep resources free of jobs for a time: no job is started that would still be there.",
)  # fmt: skip
async def add(context: RequestContext, request: NewMaintenanceRequest) -> AffectedJobs:
    """Add a window; the scheduler looks again."""
    by, now = context.user.name, context.now
    met = await context.change(
        lambda tx: maintenance.add(
            tx,
            name=request.name,
            start=request.start,
            stop=request.stop,
            nodes=request.nodes,
            where=request.where,
            by=by,
            now=now,
        ),
        AffectedJobs,
    )
    context.core.wake_scheduler()
    return met


class MaintenanceByIdRequest(VerbRequest):
    """A window by its number."""

    id: Id


@verb(
    "maintenance.remove", "DELETE /maintenance/{id}",
    role=RequiredRole.ADMINS, request=MaintenanceByIdRequest, response=EmptyResponse,
    summary="Take a maintenance window back, or end it.",
)  # fmt: skip
async def remove(context: RequestContext, request: MaintenanceByIdRequest) -> EmptyResponse:
    """Remove it; the scheduler looks again."""
    done = await context.do(lambda tx: stored.remove(tx, request.id))
    context.core.wake_scheduler()
    return done
