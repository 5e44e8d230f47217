"""Verbs about tokens: made on the socket, listed and revoked anywhere."""

from typing import Annotated

from msgspec import Meta, Struct

from oarlock.lang.limits import short
from oarlock.model.errors import BadRequest, TokenExists, UnknownToken
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.users import user_records
from oarlock.web.context import EmptyResponse, RequestContext
from oarlock.web.decode import EmptyRequest, VerbRequest, Word
from oarlock.web.identity import TokenScope, new_token, token_hash
from oarlock.web.policy import Permission, RequiredRole
from oarlock.web.registry import verb

_DAY_SECONDS = 86_400
_NAME = Meta(pattern=r"^[A-Za-z0-9_.-]{1,64}$", description="1 to 64 letters, digits, `_`, `.` and `-`")
_NODE = Meta(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.:-]{0,254}$", description="the form of the name of a node")
NODE_TOKEN = Permission("tokens.add-node", RequiredRole.ADMINS)
"""To make a token that is good for a node, a relay, or scripts."""


class NewTokenRequest(VerbRequest):
    """A token's name, and for how many days it is good.

    `node`: it is good for that node and nothing else. `relay`: for the relay of that login host. `scripts`: for scripts
    of jobs and nothing else. `cluster`: of another cluster than ours.
    """

    name: Annotated[str, _NAME]
    days: Annotated[int, Meta(ge=1, le=366)] = 30
    node: Annotated[str, _NODE] | None = None
    scripts: bool = False
    cluster: Annotated[str, _NAME] | None = None
    relay: Annotated[str, _NODE] | None = None


class NewTokenResponse(Struct, frozen=True):
    """A token, shown this once."""

    token: str


@verb(
    "tokens.add", "POST /tokens",
    role=RequiredRole.AT_SOCKET, request=NewTokenRequest, response=NewTokenResponse,
    summary="Make a token for the port; it is shown once. Only where a kernel says who asks; one for a node, "
    "a relay or scripts is made by administrators only.",
)  # fmt: skip
async def add_token(context: RequestContext, request: NewTokenRequest) -> NewTokenResponse:
    """Keep only the token's hash, also in what is remembered of this request: asked again, it is not shown again."""
    scope = _scope(request)
    if scope is not None:
        context.demand(NODE_TOKEN)
    made, now, user, uid = new_token(), context.now, context.user.name, context.user.account.uid
    own_hash, expires = token_hash(made), now + request.days * _DAY_SECONDS
    token = user_records.StoredToken(own_hash, user, request.name, now, expires, uid, str(scope or ""))

    def step(tx: Tx) -> str:
        user_records.forget_tokens(tx, now=now)
        if any(row.label == request.name for row in user_records.tokens_of(tx, user)):
            raise _exists(request.name)
        user_records.add_token(tx, token)
        return own_hash

    if await context.change(step, str) != own_hash:
        raise _exists(request.name)
    return NewTokenResponse(made)


def _scope(request: NewTokenRequest) -> TokenScope | None:
    if sum((request.node is not None, request.relay is not None, request.scripts)) > 1:
        raise BadRequest("A token is for a node, a relay or scripts, not for two of them.", hint="Make two.")
    if request.relay is not None:
        if request.cluster is not None:
            raise BadRequest("The token of a relay is for no cluster.", hint="Leave `cluster` out.")
        return TokenScope(relay=request.relay)
    if request.node is None and not request.scripts:
        if request.cluster is not None:
            raise BadRequest("A token of your own is for no cluster.", hint="Leave `cluster` out, or name a node.")
        return None
    return TokenScope(request.node or "", request.cluster or "")


def _exists(name: str) -> TokenExists:
    return TokenExists(
        f"The token `{name}` was made already; it was shown once.", hint="Revoke it and make another, or name it else."
    )


class TokenView(Struct, frozen=True):
    """What can be said of a token after it was made.

    `node`, `relay`, `scripts`: what alone it is good for; `cluster`: of which cluster.
    """

    name: str
    created: int
    expires: int
    node: str | None
    scripts: bool = False
    cluster: str | None = None
    relay: str | None = None


class TokensResponse(Struct, frozen=True):
    """One's own tokens, oldest first."""

    tokens: list[TokenView]


@verb(
    "tokens.list",
    "GET /tokens",
    role=RequiredRole.USERS,
    request=EmptyRequest,
    response=TokensResponse,
    summary="List your tokens.",
)
async def list_tokens(context: RequestContext, _request: EmptyRequest) -> TokensResponse:
    """Return the names and dates of the caller's tokens, not the tokens."""
    rows_read = await context.read(lambda tx: user_records.tokens_of(tx, context.user.name))
    return TokensResponse([_view(row) for row in rows_read])


def _view(row: user_records.StoredToken) -> TokenView:
    scope = TokenScope.parse(row.scope)
    if scope is None:
        return TokenView(row.label, row.created, row.expires, None)
    if scope.relay:
        return TokenView(row.label, row.created, row.expires, None, relay=scope.relay)
    return TokenView(
        row.label, row.created, row.expires, scope.node or None, scripts=not scope.node, cluster=scope.cluster or None
    )


class TokenByNameRequest(VerbRequest):
    """A token by its name."""

    name: Word


@verb(
    "tokens.revoke", "DELETE /tokens/{name}",
    role=RequiredRole.USERS, request=TokenByNameRequest, response=EmptyResponse,
    summary="Make one of your tokens worthless, at once.",
)  # fmt: skip
async def revoke_token(context: RequestContext, request: TokenByNameRequest) -> EmptyResponse:
    """Revoke the token of that name."""
    user = context.user.name

    def step(tx: Tx) -> None:
        named = [row for row in user_records.tokens_of(tx, user) if row.label == request.name]
        if not named:
            raise UnknownToken(f"You have no token `{short(request.name)}`.", hint="`oarlock token list` lists yours.")
        for row in named:
            user_records.revoke_token(tx, user=user, token_hash=row.token_hash)

    return await context.do(step)
