"""Verbs about quotas: what is allowed and used, and the rules that administrators keep in the table."""

from typing import Annotated

from msgspec import Meta, Struct

from oarlock.job import quota_usage
from oarlock.job.quota_usage import QuotasInForce
from oarlock.lang.limits import short
from oarlock.lang.quotas import resolved, rule
from oarlock.model.quota import BadQuotas
from oarlock.web.context import EmptyResponse, RequestContext
from oarlock.web.decode import Id, Instant, Text, VerbRequest, Word
from oarlock.web.policy import RequiredRole
from oarlock.web.registry import verb

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
async def listed(context: RequestContext, request: QuotasRequest) -> QuotasInForce:
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
async def add(context: RequestContext, request: NewQuotaRequest) -> QuotaNumberResponse:
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
async def remove(context: RequestContext, request: QuotaByIdRequest) -> EmptyResponse:
    """Remove it; the scheduler looks again."""
    done = await context.do(lambda tx: quota_usage.remove(tx, request.id))
    context.core.wake_scheduler()
    return done
