"""Verbs about quotas: what is allowed and used, and the rules that administrators keep in the table."""

from typing import Annotated

from msgspec import Meta, Struct

from oarlock.job import quota_usage
from oarlock.job.quota_usage import QuotasInForce
from oarlock.lang.limits import short
from oarlock.lang.quotas import resolved, rule
from oarlock.model.quota import BadQuotas
from oarlock.web.context import Call, Nought
from oarlock.web.decode import Asked, Id, Instant, Text, Word
from oarlock.web.policy import May
from oarlock.web.registry import verb

_Limit = Annotated[int, Meta(ge=-1, le=10**9)]


class WhichQuotas(Asked):
    """What holds at an instant, now by default; what concerns one user, or everybody."""

    user: Word | None = None
    at: Instant | None = None


@verb(
    "quotas.list", "GET /quotas", may=May.USERS, asks=WhichQuotas, answers=QuotasInForce,
    says="Show the quotas in force, and who uses how much of them.",
)  # fmt: skip
async def listed(call: Call, asked: WhichQuotas) -> QuotasInForce:
    """Give the rules with what is used of them."""
    now, config = call.now, call.core.config
    at = now if asked.at is None else asked.at
    return await call.read(lambda tx: quota_usage.read(tx, config, at=at, now=now, user=asked.user))


class NewQuota(Asked, kw_only=True):
    """A rule for the table: whom it is for, as `queue,project,type,user`, and its limits; -1 is none."""

    rule: Text
    resources: _Limit = -1
    jobs: _Limit = -1
    resource_hours: _Limit = -1


class QuotaNumber(Struct, frozen=True):
    """The number of a rule in the table."""

    number: int


@verb(
    "quotas.add", "POST /quotas", may=May.ADMINS, asks=NewQuota, answers=QuotaNumber,
    says="Set a quota; it holds at once, beside those of the file. One for the same is replaced.",
)  # fmt: skip
async def add(call: Call, asked: NewQuota) -> QuotaNumber:
    """Put a rule into the table; the scheduler looks again."""
    if max(asked.resources, asked.jobs, asked.resource_hours) < 0:
        raise BadQuotas(
            f"The quota `{short(asked.rule)}` limits nothing.", hint="Give it resources, jobs or resource-hours."
        )
    [made] = resolved([rule(asked.rule, [asked.resources, asked.jobs, asked.resource_hours])], 0)
    done = await call.change(lambda tx: QuotaNumber(quota_usage.add(tx, made)), QuotaNumber)
    call.core.wake_scheduler()
    return done


class OneQuota(Asked):
    """A rule of the table by its number."""

    id: Id


@verb(
    "quotas.remove", "DELETE /quotas/{id}", may=May.ADMINS, asks=OneQuota, answers=Nought,
    says="Take a quota out of the table.",
)  # fmt: skip
async def remove(call: Call, asked: OneQuota) -> Nought:
    """Remove it; the scheduler looks again."""
    done = await call.do(lambda tx: quota_usage.remove(tx, asked.id))
    call.core.wake_scheduler()
    return done
