"""The dispatcher: authenticate, authorize, validate, run one step, respond. The socket, HTTP and the pages share it."""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
from msgspec import Struct
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse

from oarlock.lang.limits import short
from oarlock.model.errors import BadRequest, Forbidden, NotSignedIn, OarlockError, Stopping, TooLong
from oarlock.node.wire.stream import KEY_SCHEME
from oarlock.store.queries.users import browser_sessions, user_records
from oarlock.store.queries.users.user_records import AuditEntry, StoredToken
from oarlock.web import decode, refusals
from oarlock.web.concurrency import FairQueue
from oarlock.web.context import ContentDownload, DeferredResponse, FileDownload, RequestContext, entry
from oarlock.web.core import ServerInterface, Upgradable
from oarlock.web.identity import (
    AccountDirectory,
    Caller,
    CallerChannel,
    SocketPeer,
    TokenScope,
    UserAccount,
    token_hash,
)
from oarlock.web.login_hosts import LoginHostIdentity, ProvenUser, RelayedUser
from oarlock.web.oidc import OidcClient
from oarlock.web.passwords import PasswordDoor
from oarlock.web.policy import AccessPolicy, Permission, RequiredRole
from oarlock.web.registry import JSON, PREFIX, Verb
from oarlock.web.sign_in import is_from_elsewhere, is_proxied, proxied_user, session_secret
from oarlock.web.submission_service import SubmissionService

log = logging.getLogger(__name__)

SLOTS, MOST_ALONE, MOST_OF_ONE = 256, 64, 16
"""How many requests are worked on at once, how many of them may be one user's, and how many while others ask.

Alone, as many as a script's connections usually are: submissions that wait for the disk share a transaction, and with
fewer of them each transaction carries fewer jobs.
"""

MOST_A_SECOND, MOST_IN_A_BURST = 200.0, 400.0
"""How many requests one user may begin while others ask: the event loop has to start jobs and answer the others."""

ADMIN_SLOTS = 16
"""How many more there are for administrators alone: they can look and act whatever users do."""

SCOPED_SLOTS = 64
"""How many nodes, and others with a token for one thing, are served at once; of each one request at a time."""

_LARGE_SLOTS, _MOST_LARGE_OF_ONE = 8, 2
_KEPT_SECONDS, _MOST_KEPT_TOKENS = 60, 10_000
_BODY_SECONDS = 30.0
_PIECE = 1 << 18  # bytes of a file that are read and sent at once
_LEAST_UPLOAD = 2**18  # bytes of a file that come in that time
_LONGEST_REQUEST_ID = 64
_LONGEST_NAME = 256
_LONGEST_TAGGED = 1 << 20  # bytes; what is longer is not compared
ON_BEHALF = Permission("on behalf", RequiredRole.ADMINS)
"""To do something in the name of somebody else."""


class Dispatcher:
    """Dispatches requests of one server. Pages call `ask`, HTTP calls `answer`; both check permissions with `can`."""

    def __init__(
        self,
        core: ServerInterface,
        policy: AccessPolicy,
        submissions: SubmissionService,
        passwords: PasswordDoor | None = None,
    ) -> None:
        self.core, self.policy, self.submissions, self.passwords = core, policy, submissions, passwords
        self.oidc: OidcClient | None = None  # made when somebody signs in by it
        self.accounts = AccountDirectory()
        self._slots = FairQueue(SLOTS, MOST_OF_ONE, alone=MOST_ALONE, rate=MOST_A_SECOND, burst=MOST_IN_A_BURST)
        self._admin_slots = FairQueue(ADMIN_SLOTS)
        self._large = FairQueue(_LARGE_SLOTS, _MOST_LARGE_OF_ONE)
        self._uploads = FairQueue(_LARGE_SLOTS, _MOST_LARGE_OF_ONE)
        self._login_hosts = LoginHostIdentity(core.config)
        self._node_tokens: dict[str, tuple[StoredToken, int]] = {}
        self._scoped_slots = FairQueue(SCOPED_SLOTS, 1)
        self._refusals = refusals.RefusalRecorder(self._write_refusal)

    async def identify(self, peer: SocketPeer | None, authorization: str | None, request: str = "") -> Caller | None:
        """Identify the caller: by the kernel on the socket, a login host, or a token; None if there is none of these.

        `request` is its method and address, which a credential of munge is made for.
        """
        if peer is not None:
            account = await self._account(peer.uid)
            return None if account is None else self.policy.caller(account, CallerChannel.SOCKET)
        if authorization is None:
            return None
        if (relayed := await self._login_hosts.relayed(authorization, self._token_of)) is not None:
            await self._check_relay(relayed)
            return await self._elsewhere(relayed.user, CallerChannel.RELAY)
        if (proven := await self._login_hosts.by_munge(authorization, request)) is not None:
            return await self._elsewhere(proven, CallerChannel.MUNGE)
        token = await self._token_of(_token_hash(authorization))
        account = None if token is None else await self._account(token.user)
        if token is None or account is None:
            raise NotSignedIn("That token is not known here, or no longer.", hint="On the socket a new one is made.")
        if not account.is_number(token.uid):
            raise NotSignedIn(
                f"That token was made by another account of the name {account.name}: its number was {token.uid}, "
                f"now it is {account.uid}.",
                hint="On the socket a new one is made.",
            )
        return self.policy.caller(
            account, CallerChannel.TOKEN, scope=TokenScope.parse(token.scope), token=token.token_hash
        )

    async def _token_of(self, own_hash: str) -> StoredToken | None:
        return await self._valid_token(own_hash, int(self.core.clock.now()))

    async def _check_relay(self, relayed: RelayedUser) -> None:
        """Refuse the key of a relay once who made it is no longer an administrator."""
        maker = await self._account(relayed.key.user)
        is_same = maker is not None and maker.is_number(relayed.key.uid)
        if maker is None or not is_same or maker.name not in self.policy.admins:
            raise NotSignedIn(
                f"The key of the relay of {relayed.user.host} was made by {relayed.key.user}, who is no longer an "
                "administrator.",
                hint="An administrator makes another: `oarlock token add --relay HOST`.",
            )

    async def _elsewhere(self, proven: ProvenUser, channel: CallerChannel) -> Caller:
        """Return the caller for a user of a login host."""
        account = await self._account(proven.uid)
        if account is None:
            raise NotSignedIn(
                f"The server knows no user with the number {proven.uid}, as whom you are known on the login host.",
                hint="Users need the same number there and here; `oarlock doctor` compares them.",
            )
        return self.policy.caller(account, channel, host=proven.host)

    def close(self) -> None:
        """Stop the threads that look accounts and credentials up."""
        self.accounts.close()
        self._login_hosts.close()

    async def identify_browser(self, secret: str | None) -> Caller | None:
        """Identify the caller by the cookie of its session; None if there is none, or it is over."""
        if secret is None:
            return None
        hashed, now = token_hash(secret), int(self.core.clock.now())
        session = await self.core.read(lambda tx: browser_sessions.valid(tx, hashed, now=now))
        account = None if session is None else await self._account(session.user)
        if session is None or account is None or not account.is_number(session.uid):
            return None
        return self.policy.caller(account, CallerChannel.BROWSER)

    async def identify_visitor(self, request: Request) -> Caller | None:
        """Identify the caller by the cookie; behind a proxy that names users, only if the cookie is that user's."""
        caller = await self.identify_browser(session_secret(self.core.config, request.cookies))
        if caller is not None and is_proxied(request) and caller.name != proxied_user(request, self.core.config):
            return None
        return caller

    async def account_of(self, name: str) -> UserAccount | None:
        """Return the account of a name that was stored; None if there is none any more."""
        return await self._account(name)

    async def account(self, name: str) -> UserAccount:
        """Return the account of somebody who was signed in elsewhere; `Forbidden` if there is none here."""
        account = await self._account(name) if 0 < len(name) <= _LONGEST_NAME else None
        if account is None:
            raise Forbidden(f"You are signed in as `{short(name)}`, and there is no such account here.")
        return account

    async def _valid_token(self, own_hash: str, now: int) -> StoredToken | None:
        """Return a token that is valid now. Those of nodes, which come by hundreds, are kept for a minute."""
        token, until = self._node_tokens.get(own_hash, (None, 0))
        if token is not None and now < min(until, token.expires):
            return token
        token = await self.core.read(lambda tx: user_records.valid_token(tx, own_hash, now=now))
        if token is not None and token.scope:
            if len(self._node_tokens) >= _MOST_KEPT_TOKENS:
                self._node_tokens.clear()
            self._node_tokens[own_hash] = token, now + _KEPT_SECONDS
        return token

    async def ask(
        self,
        caller: Caller | None,
        verb: Verb,
        payload: Struct,
        *,
        request_id: str = "",
        behalf: UserAccount | None = None,
        upload: AsyncIterator[bytes] | None = None,
        content: bytes = b"",
    ) -> Any:
        """Run a verb for a caller who may use it; raise `OarlockError` otherwise. Return what `msgspec` can encode."""
        context = RequestContext(
            self.core, self.submissions, self.policy, verb.name, caller, request_id, behalf, payload,
            upload=upload, content=content,
        )  # fmt: skip
        try:
            return await self._ask(context, verb, payload)
        except OarlockError as error:
            await self._refused(caller, behalf, verb, payload, error)
            raise

    async def _ask(self, context: RequestContext, verb: Verb, payload: Struct) -> Any:
        caller, behalf = context.caller, context.behalf
        self._permit(caller, verb, behalf)
        if verb.changes and self.core.stopping.is_set():
            raise Stopping("The server is stopping; nothing is changed any more.", hint="Ask again in a moment.")
        slots = self._admin_slots if caller is not None and caller.admin else self._slots
        if verb.uploads:
            slots = self._uploads
        elif caller is not None and caller.scope is not None:
            slots = self._scoped_slots  # by hundreds, all with tokens of one administrator
        async with slots.slot(_budget(caller)):
            value = await verb.handle(context, payload)
        if verb.name.startswith("tokens."):
            self._node_tokens.clear()  # one that was revoked is worthless at once
        if isinstance(value, DeferredResponse):
            value = await value.finish()  # after the slot was released: others can use it meanwhile
        for part, why in context.refusals:
            await self._refusals.record(entry(caller, behalf, verb.name, part, refused=why))
        if caller is not None and (behalf is not None or (verb.changes and verb.role is RequiredRole.ADMINS)):
            extra = {"verb": verb.name, "by": caller.name, "channel": caller.channel.value}
            log.info("administrator's request done", extra=extra | ({"user": behalf.name} if behalf else {}))
        return value

    async def answer(self, verb: Verb, parts: Mapping[str, str], request: Request) -> Response:
        """Answer one HTTP request; every error becomes a refusal with a sentence.

        `parts` are the variable parts of its address.
        """
        retry: dict[str, str] = {}
        try:
            value = await self._decode_and_ask(verb, request, parts)
            if isinstance(value, FileDownload):
                return await _download(value)
            if isinstance(value, ContentDownload):
                return Response(value.content, headers=_download_headers(value))
            content = value if isinstance(value, bytes) else msgspec.json.encode(value)
            return _tagged(verb, request, content)
        except OarlockError as error:
            status, content = refusals.refusal(error)
            retry = {"retry-after": str(error.retry_seconds)} if error.retry_seconds else {}
        except ClientDisconnect:
            return Response(status_code=400)
        except Exception as error:  # noqa: BLE001  (one bad request must not show our insides, nor end the server)
            status, content = refusals.failure(error, verb=verb.name)
        headers = retry | ({"www-authenticate": "Bearer"} if status == NotSignedIn.http_status else {})
        return Response(content, status, media_type=JSON, headers=headers)

    async def connect(self, verb: Verb, request: Request, connection: Upgradable) -> Response | None:
        """Hand a connection over to a session, or to a desktop, until that ends.

        Return the response if it is not to be upgraded. It holds none of the slots: it waits for people, or for jobs.
        Whoever has the key of a job needs no name: the session asks for the proof.
        """
        is_node = verb.role is RequiredRole.NODES
        by_key = request.headers.get("authorization") == KEY_SCHEME and not is_node
        caller = None
        try:
            if not by_key:
                caller = await self._identify(verb, request)
                self._permit(caller, verb, None)
            if self.core.stopping.is_set():
                raise Stopping("The server is stopping.", hint="Ask again in a moment.")
        except OarlockError as error:
            status, content = refusals.refusal(error)
            return Response(content, status, media_type=JSON)
        upgraded = connection.upgrade()
        try:
            if is_node and caller is not None:
                refused = await self.core.serve_desktop(caller, upgraded)
            else:
                refused = await self.core.serve_session(caller, upgraded)
            if refused is not None:
                await self._refused(caller, None, verb, None, refused)
        except Exception as error:  # noqa: BLE001  (as in `answer`)
            refusals.failure(error, verb=verb.name)
        finally:
            await upgraded.close()
        return None

    async def _identify(self, verb: Verb, request: Request) -> Caller | None:
        peer, authorization = request.scope["state"].get("peer"), request.headers.get("authorization")
        if peer is not None or authorization is not None or verb.changes or verb.upgrades:
            caller = await self.identify(peer, authorization, _request_line(request))
            if caller is not None and caller.channel is CallerChannel.RELAY:
                request.state.connection.count_as_relay(caller.host)
            return caller
        # A browser that is signed in may read; what changes something comes as a form of a page.
        if is_from_elsewhere(request.headers):
            return None
        return await self.identify_visitor(request)

    async def _decode_and_ask(self, verb: Verb, request: Request, parts: Mapping[str, str]) -> Any:
        caller: Caller | None = None
        behalf: UserAccount | None = None
        try:
            caller = await self._identify(verb, request)
            behalf = await self._behalf(verb, caller, request.headers.get("on-behalf-of"))
            self._permit(caller, verb, behalf)  # asked here as well, so that nobody sends us a body for nothing
            request_id = _request_id(verb, request.headers)
            payload = await self._read(verb, request, caller) if verb.in_body else _in_address(verb, request, parts)
            content = await self._bytes(verb, request, caller) if verb.raw else b""
        except OarlockError as error:
            await self._refused(caller, behalf, verb, None, error)
            raise
        upload = _received(request) if verb.uploads else None
        return await self.ask(
            caller, verb, payload, request_id=request_id, behalf=behalf, upload=upload, content=content
        )

    async def _refused(
        self, caller: Caller | None, behalf: UserAccount | None, verb: Verb, payload: Struct | None, error: OarlockError
    ) -> None:
        if refusals.concerns(verb, error):
            await self._refusals.record(entry(caller, behalf, verb.name, payload, refused=str(error)))

    async def _write_refusal(self, refusal: AuditEntry) -> None:
        now = int(self.core.clock.now())
        await self.core.write(lambda tx: user_records.add_audit(tx, replace(refusal, date=now)))

    async def _read(self, verb: Verb, request: Request, caller: Caller | None) -> Struct:
        if request.scope["query_string"]:
            raise BadRequest("A POST takes what it is asked with from its body.", hint="Leave out what follows `?`.")
        return decode.body(await self._bytes(verb, request, caller), verb.request)

    async def _bytes(self, verb: Verb, request: Request, caller: Caller | None) -> bytes:
        length = request.headers.get("content-length", "")
        if "transfer-encoding" in request.headers or (length.isdigit() and int(length) > decode.LARGEST_BODY):
            async with self._large.slot(_budget(caller)):
                return await _body(request, verb.largest_body)
        return await _body(request, min(decode.LARGEST_BODY, verb.largest_body))

    async def _behalf(self, verb: Verb, caller: Caller | None, name: str | None) -> UserAccount | None:
        if name is None:
            return None
        if not verb.behalf:
            raise BadRequest(f"{verb.name} is never done on behalf of somebody.", hint="Leave out `On-Behalf-Of`.")
        if refused := self.policy.can(caller, ON_BEHALF):
            raise refused
        account = await self._account(name)
        if account is None:
            raise BadRequest(f"There is no user `{short(name)}`.", hint="`On-Behalf-Of` names a user of the system.")
        return account

    def _permit(self, caller: Caller | None, verb: Verb, behalf: UserAccount | None) -> None:
        """Raise a refusal unless the caller may use the verb; on behalf of a user, unless that user may."""
        if self.policy.read_only and not _only_reads(verb):
            raise Forbidden(
                "This portal shows a cluster that another resource manager runs, and changes nothing there.",
                hint="Use the commands of that cluster.",
            )
        refused = self.policy.can(caller, verb) if behalf is None else self.policy.can(caller, ON_BEHALF)
        if behalf is not None and verb.role is RequiredRole.SUBMITTERS:
            refused = refused or self.policy.runs_jobs(behalf)
        if refused is not None:
            raise refused

    async def _account(self, key: int | str) -> UserAccount | None:
        try:
            return await self.accounts.find(key)
        except TimeoutError:
            raise NotSignedIn("The system does not say who you are: its list of users does not answer.") from None


_OF_PORTAL = ("browser.", "tokens.", "scripts.", "shares.", "views.", "notices.", "waste.", "mail.", "digests.")
"""Verbs that change what belongs to a portal itself: who is signed in, and how."""


def _only_reads(verb: Verb) -> bool:
    """Return whether a verb leaves the cluster as it is."""
    return (verb.method == "GET" and not verb.upgrades) or verb.name.startswith(_OF_PORTAL)


def _request_line(request: Request) -> str:
    """Return method and address of a request, from the prefix of verbs on: a proxy may have put more before it."""
    path = request.scope.get("raw_path", b"").decode("latin-1")
    query = request.scope["query_string"].decode("latin-1")
    return f"{request.method} {path[max(path.find(PREFIX), 0) :]}" + (f"?{query}" if query else "")


def _tagged(verb: Verb, request: Request, content: bytes) -> Response:
    """Return a response; where the client has the same already, only that it does."""
    headers = {"content-type": verb.media_type}
    if verb.method != "GET" or len(content) > _LONGEST_TAGGED:
        return Response(content, verb.status, headers=headers)
    tag = f'"{blake2b(content, digest_size=12).hexdigest()}"'
    headers |= {"etag": tag, "cache-control": "private, no-cache"}
    if tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(content, verb.status, headers=headers)


async def _download(download: FileDownload) -> Response:
    """Return a response that sends a file piece by piece. It is opened at once: nobody can replace it meanwhile."""
    path = Path(download.path)
    file = await asyncio.to_thread(path.open, "rb")
    length = await asyncio.to_thread(lambda: os.fstat(file.fileno()).st_size)
    if download.temporary:
        await asyncio.to_thread(path.unlink, missing_ok=True)
    return StreamingResponse(_pieces(file), headers={**_download_headers(download), "content-length": str(length)})


def _download_headers(download: FileDownload | ContentDownload) -> dict[str, str]:
    return {
        "content-type": download.media_type,
        "content-disposition": f'attachment; filename="{download.name}"',
    }


async def _pieces(file: BinaryIO) -> AsyncIterator[bytes]:
    with file:
        while piece := await asyncio.to_thread(file.read, _PIECE):
            yield piece


def _budget(caller: Caller | None) -> str:
    """Return on whose budget a request is served: a user's, or that of what a token is good for."""
    if caller is None:
        return ""
    return caller.name if caller.scope is None else str(caller.scope)


def _in_address(verb: Verb, request: Request, parts: Mapping[str, str]) -> Struct:
    return decode.query(request.scope["query_string"].decode("latin-1"), parts, verb.request)


async def _body(request: Request, most: int) -> bytes:
    """Read a body, but not more of it than allowed, and not for ever."""
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(_BODY_SECONDS):
            async for part in request.stream():
                size += len(part)
                if size > most:
                    raise TooLong(f"The request is over {most} bytes.", hint="Ask for less at once.")
                parts.append(part)
    except TimeoutError:
        raise BadRequest(f"The request was not sent within {_BODY_SECONDS:g} s.") from None
    return b"".join(parts)


async def _received(request: Request) -> AsyncIterator[bytes]:
    """Yield the pieces of a body that is a file; who sends almost nothing for long is refused."""
    pieces, clock = aiter(request.stream()), asyncio.get_running_loop().time
    left, size = _BODY_SECONDS, 0
    while True:
        began = clock()
        try:
            async with asyncio.timeout(left):
                piece = await anext(pieces, None)
        except TimeoutError:
            raise BadRequest(f"Less than {_LEAST_UPLOAD} bytes of the file came in {_BODY_SECONDS:g} s.") from None
        if piece is None:
            return
        left, size = left - (clock() - began), size + len(piece)
        yield piece
        if size >= _LEAST_UPLOAD:
            left, size = _BODY_SECONDS, 0


def _request_id(verb: Verb, headers: Mapping[str, str]) -> str:
    """Return the request id of a change, which is done once however often it is sent."""
    if not verb.changes:
        return ""
    given = headers.get("request-id", "")
    if not given or len(given) > _LONGEST_REQUEST_ID or not given.isascii() or not given.isprintable():
        raise BadRequest(
            "A change needs a `Request-Id`: a new text of at most 64 plain characters.",
            hint="With the same id again it is not done twice, and you get the same answer. `uuidgen` makes one.",
        )
    return given


def _token_hash(authorization: str) -> str:
    """Return the hash of the token in this header; an empty one, which matches nothing, for anything else."""
    scheme, _, token = authorization.partition(" ")
    # `Token` is what pushers of scripts for other portals say.
    return token_hash(token.strip()) if scheme.lower() in {"bearer", "token"} else ""
