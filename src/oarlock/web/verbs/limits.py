"""Verbs about what keeps jobs back: quotas (what is allowed and used) and maintenance windows."""

from typing import Annotated

from msgspec import Meta, Struct

from oarlock.job import quota_usage
from oarlock.job.cluster import maintenance
from oarlock.job.cluster.maintenance import AffectedJobs
from oarlock.job.quota_usage import QuotasInForce
from oarlock.lang.limits import short
from oarlock.lang.quotas import resolved, rule
from oarlock.model.limits import BadQuotas, Maintenance
from oarlock.store.queries import administration
from oarlock.web.context import EmptyResponse, RequestContext
from oarlock.web.decode import Id, Instant, Text, VerbRequest, Word
from oarlock.web.policy import RequiredRole
from oarlock.web.registry import verb
from oarlock.web.verbs.site import EmptyRequest

_Limit = Annotated[int, Meta(ge=-1, le=10**9)]


class QuotasRequest(VerbRequest):
    """What holds at an instant, now by default; what concerns one user, or everybody."""

    user: Word | None = None
    at: Instant | None = None


@verb(
    "quotas.list", "GET /quotas",
    role=RequiredRole.USERS, request=QuotasRequest, response=QuotasInForce,
    summary="Show the quotas in force, and who uses how much of them.",
)  # fmt: skip
async def list_quotas(context: RequestContext, request: QuotasRequest) -> QuotasInForce:
    """Return the rules with what is used of them."""
    now, config = context.now, context.core.config
    at = now if request.at is None else request.at
    return await context.read(lambda tx: quota_usage.read(tx, config, at=at, now=now, user=request.user))


class NewQuotaRequest(VerbRequest, kw_only=True):
    """A rule for the table: whom it is for, as `queue,project,type,user`, and its limits; -1 is none."""

    rule: Text
    resources: _Limit = -1
    jobs: _Limit = -1
    resource_hours: _Limit = -1


class QuotaNumberResponse(Struct, frozen=True):
    """The number of a rule in the table."""

    number: int


@verb(
    "quotas.add", "POST /quotas",
    role=RequiredRole.ADMINS, request=NewQuotaRequest, response=QuotaNumberResponse,
    summary="Set a quota; it holds at once, beside those of the file. One for the same is replaced.",
)  # fmt: skip
async def add_quota(context: RequestContext, request: NewQuotaRequest) -> QuotaNumberResponse:
    """Put a rule into the table; the scheduler looks again."""
    if max(request.resources, request.jobs, request.resource_hours) < 0:
        raise BadQuotas(
            f"The quota `{short(request.rule)}` limits nothing.", hint="Give it resources, jobs or resource-hours."
        )
    [made] = resolved([rule(request.rule, [request.resources, request.jobs, request.resource_hours])], 0)
    done = await context.change(lambda tx: QuotaNumberResponse(quota_usage.add(tx, made)), QuotaNumberResponse)
    context.core.wake_scheduler()
    return done


class QuotaByIdRequest(VerbRequest):
    """A rule of the table by its number."""

    id: Id


@verb(
    "quotas.remove", "DELETE /quotas/{id}",
    role=RequiredRole.ADMINS, request=QuotaByIdRequest, response=EmptyResponse,
    summary="Take a quota out of the table.",
)  # fmt: skip
async def remove_quota(context: RequestContext, request: QuotaByIdRequest) -> EmptyResponse:
    """Remove it; the scheduler looks again."""
    done = await context.do(lambda tx: quota_usage.remove(tx, request.id))
    context.core.wake_scheduler()
    return done


class MaintenanceResponse(Struct, frozen=True):
    """Maintenance windows that are not over, by their begin."""

    windows: list[Maintenance]


@verb(
    "maintenance.list", "GET /maintenance",
    role=RequiredRole.USERS, request=EmptyRequest, response=MaintenanceResponse,
    summary="List the maintenance windows that are not over.",
)  # fmt: skip
async def list_maintenance(context: RequestContext, _request: EmptyRequest) -> MaintenanceResponse:
    """Return the windows, ordered by start."""
    now = context.now
    return MaintenanceResponse(await context.read(lambda tx: administration.all_maintenance(tx, now=now)))


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
async def add_maintenance(context: RequestContext, request: NewMaintenanceRequest) -> AffectedJobs:
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
async def remove_maintenance(context: RequestContext, request: MaintenanceByIdRequest) -> EmptyResponse:
    """Remove it; the scheduler looks again."""
    done = await context.do(lambda tx: administration.remove_maintenance(tx, request.id))
    context.core.wake_scheduler()
    return done
