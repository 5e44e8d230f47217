"""The dispatcher: authenticate, authorize, validate, run one step, respond. The socket, HTTP and the pages share it."""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec
from msgspec import Struct
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from oarlock.lang.limits import short
from oarlock.model.errors import BadRequest, NotSignedIn, OarlockError, Stopping, TooLong
from oarlock.store.queries import user_records
from oarlock.store.queries.user_records import AuditEntry
from oarlock.web import decode, refusals
from oarlock.web.concurrency import FairQueue
from oarlock.web.context import DeferredResponse, RequestContext, entry
from oarlock.web.core import ServerInterface
from oarlock.web.identity import AccountDirectory, Caller, CallerChannel, SocketPeer, UserAccount, token_hash
from oarlock.web.policy import AccessPolicy, Permission, RequiredRole
from oarlock.web.registry import JSON, Verb
from oarlock.web.sessions import Upgradable
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

_LARGE_SLOTS, _MOST_LARGE_OF_ONE = 8, 2
_BODY_SECONDS = 30.0
_LONGEST_REQUEST_ID = 64
ON_BEHALF = Permission("on behalf", RequiredRole.ADMINS)
"""To do something in the name of somebody else."""


class Dispatcher:
    """Dispatches requests of one server. Pages call `ask`, HTTP calls `answer`; both check permissions with `can`."""

    def __init__(self, core: ServerInterface, policy: AccessPolicy, submissions: SubmissionService) -> None:
        self.core, self.policy, self.submissions = core, policy, submissions
        self.accounts = AccountDirectory()
        self._slots = FairQueue(SLOTS, MOST_OF_ONE, alone=MOST_ALONE, rate=MOST_A_SECOND, burst=MOST_IN_A_BURST)
        self._admin_slots = FairQueue(ADMIN_SLOTS)
        self._large = FairQueue(_LARGE_SLOTS, _MOST_LARGE_OF_ONE)
        self._refusals = refusals.RefusalRecorder(self._write_refusal)

    async def identify(self, peer: SocketPeer | None, authorization: str | None) -> Caller | None:
        """Identify the caller: by the kernel on the socket, else by a token; None if there is neither."""
        if peer is not None:
            account = await self._account(peer.uid)
            return None if account is None else self.policy.caller(account, CallerChannel.SOCKET)
        if authorization is None:
            return None
        now = int(self.core.clock.now())
        owner = await self.core.read(lambda tx: user_records.token_owner(tx, _token_hash(authorization), now=now))
        account = None if owner is None else await self._account(owner[0])
        if owner is None or account is None:
            raise NotSignedIn("That token is not known here, or no longer.", hint="On the socket a new one is made.")
        if not account.is_number(owner[1]):
            raise NotSignedIn(
                f"That token was made by another account of the name {account.name}: its number was {owner[1]}, "
                f"now it is {account.uid}.",
                hint="On the socket a new one is made.",
            )
        return self.policy.caller(account, CallerChannel.TOKEN)

    async def ask(
        self,
        caller: Caller | None,
        verb: Verb,
        payload: Struct,
        *,
        request_id: str = "",
        behalf: UserAccount | None = None,
    ) -> Any:
        """Run a verb for a caller who may use it; raise `OarlockError` otherwise. Return what `msgspec` can encode."""
        try:
            return await self._ask(caller, verb, payload, request_id, behalf)
        except OarlockError as error:
            await self._refused(caller, behalf, verb, payload, error)
            raise

    async def _ask(
        self, caller: Caller | None, verb: Verb, payload: Struct, request_id: str, behalf: UserAccount | None
    ) -> Any:
        self._permit(caller, verb, behalf)
        if verb.changes and self.core.stopping.is_set():
            raise Stopping("The server is stopping; nothing is changed any more.", hint="Ask again in a moment.")
        context = RequestContext(
            self.core, self.submissions, self.policy, verb.name, caller, request_id, behalf, payload
        )
        slots = self._admin_slots if caller is not None and caller.admin else self._slots
        async with slots.slot(caller.name if caller else ""):
            value = await verb.handle(context, payload)
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
        try:
            value = await self._decode_and_ask(verb, request, parts)
            content = value if isinstance(value, bytes) else msgspec.json.encode(value)
            return Response(content, headers={"content-type": verb.media_type})
        except OarlockError as error:
            status, content = refusals.refusal(error)
        except ClientDisconnect:
            return Response(status_code=400)
        except Exception as error:  # noqa: BLE001  (one bad request must not show our insides, nor end the server)
            status, content = refusals.failure(error, verb=verb.name)
        headers = {"www-authenticate": "Bearer"} if status == NotSignedIn.http_status else None
        return Response(content, status, media_type=JSON, headers=headers)

    async def connect(self, verb: Verb, request: Request, connection: Upgradable) -> Response | None:
        """Hand a connection over to a session until that ends; return the response if it is not to be upgraded.

        A session holds none of the slots: it waits for people.
        """
        try:
            caller = await self._identify(request)
            self._permit(caller, verb, None)
            if caller is None or self.core.stopping.is_set():
                raise Stopping("The server is stopping.", hint="Ask again in a moment.")
        except OarlockError as error:
            status, content = refusals.refusal(error)
            return Response(content, status, media_type=JSON)
        upgraded = connection.upgrade()
        try:
            refused = await self.core.serve_session(caller, upgraded)
            if refused is not None:
                await self._refused(caller, None, verb, None, refused)
        except Exception as error:  # noqa: BLE001  (as in `answer`)
            refusals.failure(error, verb=verb.name)
        finally:
            await upgraded.close()
        return None

    async def _identify(self, request: Request) -> Caller | None:
        return await self.identify(request.scope["state"].get("peer"), request.headers.get("authorization"))

    async def _decode_and_ask(self, verb: Verb, request: Request, parts: Mapping[str, str]) -> Any:
        caller: Caller | None = None
        behalf: UserAccount | None = None
        try:
            caller = await self._identify(request)
            behalf = await self._behalf(verb, caller, request.headers.get("on-behalf-of"))
            self._permit(caller, verb, behalf)  # asked here as well, so that nobody sends us a body for nothing
            request_id = _request_id(verb, request.headers)
            payload = await self._read(verb, request, caller) if verb.in_body else _in_address(verb, request, parts)
        except OarlockError as error:
            await self._refused(caller, behalf, verb, None, error)
            raise
        return await self.ask(caller, verb, payload, request_id=request_id, behalf=behalf)

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
        length = request.headers.get("content-length", "")
        if "transfer-encoding" in request.headers or (length.isdigit() and int(length) > decode.LARGEST_BODY):
            async with self._large.slot(caller.name if caller else ""):
                return decode.body(await _body(request, verb.largest_body), verb.request)
        return decode.body(await _body(request, decode.LARGEST_BODY), verb.request)

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
    return token_hash(token.strip()) if scheme.lower() == "bearer" else ""
