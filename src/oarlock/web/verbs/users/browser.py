"""Verbs about browsers: the link that signs one in, and the sessions there are."""

import hashlib

from msgspec import Struct

from oarlock.insight.mails import portal_address
from oarlock.lang.limits import short
from oarlock.model.errors import BadRequest, UnknownToken
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.users import browser_sessions
from oarlock.store.queries.users.browser_sessions import LINK, BrowserSession
from oarlock.web.context import EmptyResponse, RequestContext
from oarlock.web.decode import EmptyRequest, VerbRequest, Word
from oarlock.web.identity import new_token, token_hash
from oarlock.web.policy import RequiredRole
from oarlock.web.registry import verb

LINK_SECONDS = 60
"""For how long a link that signs in is good."""


class LinkResponse(Struct, frozen=True):
    """A link to open in a browser, shown this once; it is good once, and until `expires`."""

    link: str
    expires: int


@verb(
    "browser.link", "POST /browser/link",
    role=RequiredRole.AT_SOCKET, request=EmptyRequest, response=LinkResponse,
    summary="Make a link that signs a browser in, once, within a minute. Only on the socket.",
)  # fmt: skip
async def make_link(context: RequestContext, _request: EmptyRequest) -> LinkResponse:
    """Store the hash of a new link; asked again with the same id, a second one is made."""
    config, account, now = context.core.config, context.user.account, context.now
    if not config.portal:
        raise BadRequest("This server has no portal.", hint="PORTAL=yes in its settings turns it on.")
    secret = new_token()
    row = BrowserSession(token_hash(secret), account.name, account.uid, LINK, now, now + LINK_SECONDS)

    def step(tx: Tx) -> None:
        browser_sessions.add(tx, row)
        context.note(tx)

    await context.core.write(step)
    return LinkResponse(f"{portal_address(config)}/sign-in?link={secret}", now + LINK_SECONDS)


class BrowserSessionView(Struct, frozen=True):
    """A session of a browser; `id` names it to revoke it, and opens nothing."""

    id: str
    agent: str
    created: int
    expires: int


class BrowserSessionsResponse(Struct, frozen=True):
    """One's own sessions, newest first."""

    sessions: list[BrowserSessionView]


def session_id(session_hash: str) -> str:
    """Return the short name of a session, from which neither its hash nor its cookie can be told."""
    return hashlib.sha256(f"session {session_hash}".encode()).hexdigest()[:12]


@verb(
    "browser.list", "GET /browser/sessions",
    role=RequiredRole.USERS, request=EmptyRequest, response=BrowserSessionsResponse,
    summary="List the browsers in which you are signed in.",
)  # fmt: skip
async def list_sessions(context: RequestContext, _request: EmptyRequest) -> BrowserSessionsResponse:
    """Return when each was signed in, and what it calls itself."""
    user, now = context.user.name, context.now
    rows = await context.read(lambda tx: browser_sessions.of_user(tx, user, now=now))
    return BrowserSessionsResponse(
        [BrowserSessionView(session_id(row.session_hash), row.agent, row.created, row.expires) for row in rows]
    )


class SessionByIdRequest(VerbRequest):
    """A session by its short name."""

    id: Word


@verb(
    "browser.revoke", "DELETE /browser/sessions/{id}",
    role=RequiredRole.USERS, request=SessionByIdRequest, response=EmptyResponse,
    summary="Sign one of your browsers out, at once.",
)  # fmt: skip
async def revoke(context: RequestContext, request: SessionByIdRequest) -> EmptyResponse:
    """End the session."""
    user, now = context.user.name, context.now

    def step(tx: Tx) -> None:
        named = [
            row.session_hash
            for row in browser_sessions.of_user(tx, user, now=now)
            if session_id(row.session_hash) == request.id
        ]
        if not named:
            raise UnknownToken(f"You have no browser session `{short(request.id)}`.", hint="The page Me lists yours.")
        for session_hash in named:
            browser_sessions.remove(tx, user=user, session_hash=session_hash)

    return await context.do(step)
