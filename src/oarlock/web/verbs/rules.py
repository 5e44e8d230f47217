"""Verbs about the admission rules in the table, for administrators; rules in files are changed with an editor."""

from typing import Annotated

from msgspec import Meta, Struct

from oarlock.job.admission import stored_rules
from oarlock.job.admission.stored_rules import StoredRuleView
from oarlock.store.engine.tx import Tx
from oarlock.web.context import EmptyResponse, RequestContext
from oarlock.web.decode import Id, Text, VerbRequest
from oarlock.web.policy import RequiredRole
from oarlock.web.registry import verb

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
async def listed(context: RequestContext, _request: RulesRequest) -> RulesResponse:
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
async def add(context: RequestContext, request: NewRuleRequest) -> RuleNumberResponse:
    """Store the rule."""
    await context.core.compute(lambda: stored_rules.check(request.rule), user=context.reader)

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
async def change(context: RequestContext, request: ChangeRuleRequest) -> EmptyResponse:
    """Change the rule."""
    text = request.rule
    if text is not None:
        await context.core.compute(lambda: stored_rules.check(text), user=context.reader)
    return await context.do(
        lambda tx: stored_rules.change(tx, request.id, text=text, priority=request.priority, enabled=request.enabled)
    )


class RuleByIdRequest(VerbRequest):
    """A rule of the table by its number."""

    id: Id


@verb(
    "rules.remove", "DELETE /rules/{id}",
    role=RequiredRole.ADMINS, request=RuleByIdRequest, response=EmptyResponse,
    summary="Remove an admission rule from the table.",
)  # fmt: skip
async def remove(context: RequestContext, request: RuleByIdRequest) -> EmptyResponse:
    """Remove the rule."""
    return await context.do(lambda tx: stored_rules.remove(tx, request.id))
