"""Verbs about what keeps jobs back: quotas (what is allowed and used), maintenance windows, admission rules."""

from typing import Annotated

from msgspec import Meta, Struct

from oarlock.job.admission import stored_rules
from oarlock.job.admission.stored_rules import DryRunResult, StoredRuleView
from oarlock.job.limits import (
    AffectedJobs,
    QuotasInForce,
    add_maintenance_window,
    add_quota_rule,
    quotas_in_force,
    remove_quota_rule,
)
from oarlock.lang.limits import short
from oarlock.lang.quotas import resolved, rule
from oarlock.model.limits import BadQuotas, Maintenance
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.cluster import properties
from oarlock.store.queries.site import administration
from oarlock.web.context import EmptyResponse, RequestContext
from oarlock.web.decode import EmptyRequest, Id, Instant, Text, VerbRequest, Word
from oarlock.web.identity import groups_of
from oarlock.web.policy import RequiredRole
from oarlock.web.registry import verb

_WEEK = 7 * 86_400
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
    user = request.user if context.sight is None else context.user.name
    return await context.read(lambda tx: quotas_in_force(tx, config, at=at, now=now, user=user))


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
    done = await context.change(lambda tx: QuotaNumberResponse(add_quota_rule(tx, made)), QuotaNumberResponse)
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
    done = await context.do(lambda tx: remove_quota_rule(tx, request.id))
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
        lambda tx: add_maintenance_window(
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


_Priority = Annotated[int, Meta(ge=0, le=10**6)]


class RulesRequest(VerbRequest):
    """A request without fields."""


class RulesResponse(Struct, frozen=True):
    """The rules of the table, in the order in which they would apply."""

    rules: list[StoredRuleView]


@verb(
    "rules.list", "GET /rules",
    role=RequiredRole.ADMINS, request=RulesRequest, response=RulesResponse,
    summary="List the admission rules in the table, those that are switched off included.",
)  # fmt: skip
async def list_rules(context: RequestContext, _request: RulesRequest) -> RulesResponse:
    """Return the rows with their texts."""
    return RulesResponse(await context.read(stored_rules.listed))


class NewRuleRequest(VerbRequest, kw_only=True):
    """A text of rules (TOML), with examples beside them, which are tried; a lower priority applies first."""

    rule: Text
    priority: _Priority = 0
    enabled: bool = True


class RuleNumberResponse(Struct, frozen=True):
    """The number of a rule in the table."""

    id: int


@verb(
    "rules.add", "POST /rules",
    role=RequiredRole.ADMINS, request=NewRuleRequest, response=RuleNumberResponse,
    summary="Put an admission rule into the table, after its examples were tried; it holds at once.",
)  # fmt: skip
async def add_rule(context: RequestContext, request: NewRuleRequest) -> RuleNumberResponse:
    """Store the rule."""
    await context.core.compute(lambda: stored_rules.check_rule(request.rule), user=context.reader)

    def store(tx: Tx) -> RuleNumberResponse:
        number = stored_rules.add(tx, request.rule, priority=request.priority, enabled=request.enabled)
        return RuleNumberResponse(number)

    return await context.change(store, RuleNumberResponse)


class ChangeRuleRequest(VerbRequest, kw_only=True):
    """A rule of the table by its number, and what changes of it."""

    id: Id
    rule: Text | None = None
    priority: _Priority | None = None
    enabled: bool | None = None


@verb(
    "rules.change", "POST /rules/change",
    role=RequiredRole.ADMINS, request=ChangeRuleRequest, response=EmptyResponse,
    summary="Change an admission rule of the table: its text, its priority, or whether it is switched on.",
)  # fmt: skip
async def change_rule(context: RequestContext, request: ChangeRuleRequest) -> EmptyResponse:
    """Change the rule."""
    text = request.rule
    if text is not None:
        await context.core.compute(lambda: stored_rules.check_rule(text), user=context.reader)
    return await context.do(
        lambda tx: stored_rules.change(tx, request.id, text=text, priority=request.priority, enabled=request.enabled)
    )


class RuleDryRunRequest(VerbRequest):
    """A text of rules, and since when jobs are tried that were submitted; by default in the last seven days."""

    rule: Text
    since: Instant | None = None


@verb(
    "rules.dry-run", "POST /rules/dry-run",
    role=RequiredRole.ADMINS, request=RuleDryRunRequest, response=DryRunResult, changes=False,
    summary="Try a text of rules on the jobs of the last week: which it would refuse or change; nothing is stored.",
)  # fmt: skip
async def try_rule(context: RequestContext, request: RuleDryRunRequest) -> DryRunResult:
    """Read the jobs, then apply the rules to each in a thread."""
    now, config = context.now, context.core.config
    since = now - _WEEK if request.since is None else int(request.since)
    submitted = await context.read(lambda tx: stored_rules.submitted_since(tx, since, now + 1))
    types = await context.read(properties.types)

    def work() -> DryRunResult:
        groups = {user: groups_of(user) for user in stored_rules.users_of(submitted)}
        return stored_rules.try_rules(request.rule, submitted, types, config=config, groups=groups)

    return await context.core.compute(work, user=context.reader)


class RuleByIdRequest(VerbRequest):
    """A rule of the table by its number."""

    id: Id


@verb(
    "rules.remove", "DELETE /rules/{id}",
    role=RequiredRole.ADMINS, request=RuleByIdRequest, response=EmptyResponse,
    summary="Remove an admission rule from the table.",
)  # fmt: skip
async def remove_rule(context: RequestContext, request: RuleByIdRequest) -> EmptyResponse:
    """Remove the rule."""
    return await context.do(lambda tx: stored_rules.remove(tx, request.id))
