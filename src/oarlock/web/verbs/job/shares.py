"""Verbs about links by which a job is shown to people without an account: made by its owner, good for some days."""

import hashlib
import logging
from typing import Annotated

from msgspec import Meta, Struct

from oarlock.insight.mails import portal_address
from oarlock.lang.limits import short
from oarlock.model.errors import BadRequest, TokenExists, UnknownToken
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.users import portal_records
from oarlock.store.queries.users.portal_records import JobShare
from oarlock.web.context import EmptyResponse, RequestContext
from oarlock.web.core import ServerInterface
from oarlock.web.decode import EmptyRequest, Id, VerbRequest, Word
from oarlock.web.identity import new_token, token_hash
from oarlock.web.policy import RequiredRole
from oarlock.web.registry import verb
from oarlock.web.verbs.job.job_actions import check_owner

log = logging.getLogger(__name__)

MOST_DAYS = 30
_MOST_OF_ONE = 200
_DAY = 86_400


class NewShareRequest(VerbRequest):
    """A job, and for how many days it is shown."""

    job: Id
    days: Annotated[int, Meta(ge=1, le=MOST_DAYS)] = 7


class NewShareResponse(Struct, frozen=True):
    """The link, shown this once."""

    link: str
    expires: int


@verb(
    "shares.add", "POST /shares",
    role=RequiredRole.OWNERS, request=NewShareRequest, response=NewShareResponse,
    summary="Make a link that shows one of your jobs, without its script, to whoever has it, for at most 30 days.",
)  # fmt: skip
async def add_share(context: RequestContext, request: NewShareRequest) -> NewShareResponse:
    """Store the hash of a new link. Asked again with the same request id, it is not shown again."""
    config, now, account = context.core.config, context.now, context.user.account
    if not config.portal:
        raise BadRequest("This server has no portal.", hint="PORTAL=yes in its settings turns it on.")
    secret = new_token()
    share = JobShare(token_hash(secret), request.job, account.name, account.uid, now, now + request.days * _DAY)

    def step(tx: Tx) -> str:
        check_owner(context, tx, request.job, "shares.add")
        if len(portal_records.shares_of(tx, account.name, now=now)) >= _MOST_OF_ONE:
            raise BadRequest(
                f"You share {_MOST_OF_ONE} jobs already.", hint="Revoke some on the page behind your name."
            )
        portal_records.add_share(tx, share)
        return share.share_hash

    if await context.change(step, str) != share.share_hash:
        raise TokenExists("That link was made already; it was shown once.", hint="Make another.")
    return NewShareResponse(f"{portal_address(config)}/shared/{secret}", share.expires)


class ShareView(Struct, frozen=True):
    """A link that is still good; `id` names it to revoke it, and opens nothing. `uses`: how often it was opened."""

    id: str
    job: int
    created: int
    expires: int
    uses: int
    last_used: int


class SharesResponse(Struct, frozen=True):
    """One's own links, newest first."""

    shares: list[ShareView]


@verb(
    "shares.list", "GET /shares",
    role=RequiredRole.USERS, request=EmptyRequest, response=SharesResponse,
    summary="List the links by which you share jobs, and how often each was opened.",
)  # fmt: skip
async def list_shares(context: RequestContext, _request: EmptyRequest) -> SharesResponse:
    """Return one's links."""
    user, now = context.user.name, context.now
    rows = await context.read(lambda tx: portal_records.shares_of(tx, user, now=now))
    return SharesResponse(
        [ShareView(share_id(row), row.job, row.created, row.expires, row.uses, row.last_used) for row in rows]
    )


def share_id(share: JobShare) -> str:
    """Return the short name of a link, from which it cannot be told."""
    return hashlib.sha256(f"share {share.share_hash}".encode()).hexdigest()[:12]


class ShareByIdRequest(VerbRequest):
    """A link by its short name."""

    id: Word


@verb(
    "shares.revoke", "DELETE /shares/{id}",
    role=RequiredRole.USERS, request=ShareByIdRequest, response=EmptyResponse,
    summary="Make one of the links by which you share jobs worthless, at once.",
)  # fmt: skip
async def revoke_share(context: RequestContext, request: ShareByIdRequest) -> EmptyResponse:
    """Delete it."""
    user, now = context.user.name, context.now

    def step(tx: Tx) -> None:
        named = [row for row in portal_records.shares_of(tx, user, now=now) if share_id(row) == request.id]
        if not named:
            raise UnknownToken(f"You have no link `{short(request.id)}`.", hint="The page Me lists yours.")
        for row in named:
            portal_records.remove_share(tx, user=user, share_hash=row.share_hash)

    return await context.do(step)


async def open_share(core: ServerInterface, secret: str) -> JobShare | None:
    """Return what a link leads to, and count and log that it was opened; None if it is not good, or no longer."""
    now = int(core.clock.now())
    share = await core.write(lambda tx: portal_records.use_share(tx, token_hash(secret), now=now))
    if share is not None:
        log.info("a link to a job was opened", extra={"job": share.job, "user": share.user, "use": share.uses + 1})
    return share
