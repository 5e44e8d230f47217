"""The portal: answers the addresses of pages. Loaded when somebody looks, not before."""

import asyncio
import gzip
import logging
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from urllib.parse import parse_qs, parse_qsl, quote

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from oarlock.model.errors import BadRequest, DatabaseAway, Forbidden, NotFound, NotSignedIn, OarlockError, TooLong
from oarlock.web import refusals
from oarlock.web.decode import EmptyRequest
from oarlock.web.dispatch import Dispatcher
from oarlock.web.identity import Caller
from oarlock.web.pages import __all__ as _registered  # noqa: F401  (importing them makes them known)
from oarlock.web.pages.parts import assets, messages
from oarlock.web.pages.parts.live import LiveHub
from oarlock.web.pages.parts.registry import PAGES, Page
from oarlock.web.pages.parts.rendering import Renderer, Surroundings
from oarlock.web.pages.parts.view import Answer, Data, Live, Redirect, Rendered, View
from oarlock.web.pages.sessions import ways_of
from oarlock.web.registry import VERBS
from oarlock.web.routes import RouteTable
from oarlock.web.sign_in import (
    begin_session,
    check_form,
    is_from_elsewhere,
    proxied_user,
    session_secret,
    set_cookie,
)
from oarlock.web.verbs.users.portal import NoticeView

log = logging.getLogger(__name__)

SECURITY = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}
_PRIVATE = {"cache-control": "private, no-cache", "vary": "cookie, accept-language, accept-encoding"}
_LONGEST_FORM = 256 * 1024
_MOST_FIELDS = 2000
_FORM_SECONDS = 30.0
_LEAST_COMPRESSED = 1024
_LEVEL = 5
_YEAR = 365 * 86_400


class UnknownPage(NotFound):
    """An address that leads nowhere."""


class Portal:
    """Answers browsers. One for a server."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self._routes = RouteTable(PAGES)
        self._renderer = Renderer()
        self._hub = LiveHub(dispatcher.core)
        self._notices: Sequence[NoticeView] = ()
        self._notices_at = (-1, 0)
        self._away_since = 0  # when the database was away first, of this time

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        request = Request(scope, receive)
        try:
            response = await self._answer(request)
        except ClientDisconnect:
            response = Response(status_code=400)
        for name, value in SECURITY.items():
            response.headers.setdefault(name, value)
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        if request.url.path.startswith(assets.PREFIX):
            return self._asset(request)
        try:
            secret = session_secret(self._dispatcher.core.config, request.cookies)
            request.state.caller = await self._identify(request)
            if request.state.caller is None and (entered := await self._enter_by_proxy(request)) is not None:
                return await self._respond(request, entered)
            page, parts = self._find(request)
            view = await self._view(request, page, parts, secret)
            answer = await page.handle(view)
            self._away_since = 0 if view.caller is not None else self._away_since  # the database was read
        except NotSignedIn as refused:
            values = {"token": "", "refusal": refused, "ways": ways_of(self._dispatcher)}
            answer = Rendered("sign_in.html", values, refused.http_status)
        except DatabaseAway as away:
            answer = self._without_database(away)
        except OarlockError as refused:
            answer = Rendered("error.html", {"error": str(refused), "hint": refused.hint}, refused.http_status)
        except ClientDisconnect:
            raise
        except Exception as problem:  # noqa: BLE001  (one bad request must not show our insides, nor end the server)
            answer = _failed(problem, request)
        return await self._respond(request, answer)

    def _without_database(self, away: DatabaseAway) -> Rendered:
        """Return a page that says since when the database is away; every page leads to it meanwhile."""
        self._away_since = self._away_since or int(self._dispatcher.core.clock.now())
        values = {"error": str(away), "hint": away.hint, "since": self._away_since}
        return Rendered("error.html", values, HTTPStatus.SERVICE_UNAVAILABLE)

    def _asset(self, request: Request) -> Response:
        asset = self._renderer.assets.find(request.url.path)
        if asset is None:
            return Response(status_code=404)
        if _accepts_gzip(request):
            return Response(asset.compressed, headers={**asset.headers, "content-encoding": "gzip"})
        return Response(asset.content, headers=asset.headers)

    async def _identify(self, request: Request) -> Caller | None:
        peer = request.scope["state"].get("peer")
        if peer is not None:
            return await self._dispatcher.identify(peer, None)
        return await self._dispatcher.identify_visitor(request)

    async def _enter_by_proxy(self, request: Request) -> Redirect | None:
        """Begin a session for the user whom the proxy names, and lead back to the same page."""
        core = self._dispatcher.core
        name = proxied_user(request, core.config)
        if not name or request.method != "GET" or request.url.path.startswith("/live/"):
            return None
        account = await self._dispatcher.account(name)
        agent = request.headers.get("user-agent", "")
        secret = await begin_session(core, account, agent=agent, how="proxy")
        query = f"?{request.url.query}" if request.url.query else ""
        path = "/" + quote(request.url.path.lstrip("/"), safe="/")  # never the address of another host
        return Redirect(path + query, set_cookie(core.config, secret))

    def _find(self, request: Request) -> tuple[Page, dict[str, str]]:
        method = "GET" if request.method == "HEAD" else request.method
        route = self._routes.find(method, request.url.path)
        if route is None or not route[0].source(self._dispatcher.core.config):
            raise UnknownPage(f"There is no page {request.url.path[:200]}.", hint="The words above lead on.")
        return route

    async def _view(self, request: Request, page: Page, parts: dict[str, str], secret: str | None) -> View:
        form: dict[str, list[str]] = {}
        if page.method == "POST":
            if is_from_elsewhere(request.headers):
                raise Forbidden("Another site sent this form.", hint="Open the page here, then send it.")
            form = await _form(request)
            if not page.signs_in:
                check_form(secret, form.get("request_id", [""])[0], form.get("form_token", [""])[0])
        return View(
            self._dispatcher,
            request.state.caller,
            request.url.path,
            _query(request),
            parts,
            secret,
            form,
            request.headers.get("user-agent", ""),
            "" if self._dispatcher.core.config.tls_ended_by_proxy or request.client is None else request.client.host,
            request.cookies,
        )

    async def _respond(self, request: Request, answer: Answer) -> Response:
        match answer:
            case Redirect():
                cookie = {"set-cookie": answer.cookie} if answer.cookie else {}
                return Response(status_code=303, headers={"location": answer.path, **_PRIVATE, **cookie})
            case Data():
                name = {"content-disposition": f'attachment; filename="{answer.file_name}"'} if answer.file_name else {}
                return _compressed(request, answer.content, {"content-type": answer.media_type, **_PRIVATE, **name})
            case Live():
                return self._stream(request, answer)
            case Rendered():
                return await self._page(request, answer)

    async def _page(self, request: Request, answer: Rendered) -> Response:
        content = await self._render(request, answer)
        headers = {"content-type": "text/html; charset=utf-8", **_PRIVATE, **_language_cookie(request)}
        return _compressed(request, content, headers, answer.status)

    async def _render(self, request: Request, answer: Rendered) -> bytes:
        """Fill a template in a thread, on the budget of whoever looks."""
        core, caller = self._dispatcher.core, getattr(request.state, "caller", None)
        around = Surroundings(
            config=core.config,
            path=request.url.path,
            now=int(core.clock.now()),
            caller=caller,
            secret=session_secret(core.config, request.cookies),
            language=_language(request),
            notices=await self._current_notices(caller),
        )
        user = "" if caller is None else caller.name
        return await core.compute(lambda: self._renderer.render(answer.template, answer.values, around), user=user)

    async def _current_notices(self, caller: Caller | None) -> Sequence[NoticeView]:
        """Return what administrators tell everybody; read again when the database changed. None where it is away."""
        core = self._dispatcher.core
        state = core.changes, int(core.clock.now())
        if self._dispatcher.policy.can(caller, VERBS["notices.list"]) is not None:
            return ()  # not asked, since a refusal would stand in the audit
        if self._notices_at != state:
            try:
                listed = await self._dispatcher.ask(caller, VERBS["notices.list"], EmptyRequest())
            except OarlockError:
                return ()
            self._notices, self._notices_at = listed.notices, state
        return self._notices

    def _stream(self, request: Request, answer: Live) -> Response:
        async def produce() -> dict[str, str]:
            parts = await answer.parts()
            return {name: (await self._render(request, part)).decode() for name, part in parts.items()}

        async def is_signed_in() -> bool:
            return request.state.caller is None or await self._identify(request) is not None

        events = self._hub.stream((answer.key, _language(request)), produce, is_signed_in)
        return StreamingResponse(events, headers={"content-type": "text/event-stream", "cache-control": "no-store"})


def _language(request: Request) -> str:
    wished = request.query_params.get("lang", "")
    cookie = wished if wished in messages.LANGUAGES else request.cookies.get(messages.COOKIE, "")
    return messages.chosen(request.headers.get("accept-language", ""), cookie)


def _language_cookie(request: Request) -> dict[str, str]:
    wished = request.query_params.get("lang", "")
    if wished not in messages.LANGUAGES:
        return {}
    return {"set-cookie": f"{messages.COOKIE}={wished}; Path=/; Max-Age={_YEAR}; SameSite=Lax; HttpOnly"}


def _query(request: Request) -> Mapping[str, str]:
    """Return what follows the question mark; a name that is given twice has its last value."""
    text = request.scope["query_string"].decode("latin-1")
    try:
        pairs = parse_qsl(text, errors="strict", max_num_fields=64)
    except ValueError:
        raise BadRequest("The part of the address behind `?` cannot be read.", hint="Correct the address.") from None
    for name, value in pairs:
        if "\0" in value:
            raise BadRequest(f"`{name[:80]}` holds a NUL character.", hint="Leave it out.")
    return dict(pairs)


async def _form(request: Request) -> dict[str, list[str]]:
    """Read the fields of a form."""
    content = b""
    try:
        async with asyncio.timeout(_FORM_SECONDS):
            async for part in request.stream():
                content += part
                if len(content) > _LONGEST_FORM:
                    raise TooLong(f"The form is over {_LONGEST_FORM} bytes.", hint="Choose fewer at once.")
    except TimeoutError:
        raise BadRequest(f"The form was not sent within {_FORM_SECONDS:g} s.") from None
    try:
        fields = parse_qs(content.decode("ascii"), errors="strict", max_num_fields=_MOST_FIELDS)
    except ValueError:
        raise BadRequest("The form cannot be read.", hint="Open the page again, then send it.") from None
    if "\0" in "".join(value for values in fields.values() for value in values):
        raise BadRequest("The form holds a NUL character.", hint="Leave it out.")
    return fields


def _failed(problem: Exception, request: Request) -> Rendered:
    reference = refusals.log_failure(problem, verb=f"page {request.url.path[:200]}")
    return Rendered(
        "error.html",
        {"error": f"Something went wrong in the server (reference {reference}).", "hint": "Its log says more."},
        500,
    )


def _accepts_gzip(request: Request) -> bool:
    return "gzip" in request.headers.get("accept-encoding", "")


def _compressed(request: Request, content: bytes, headers: dict[str, str], status: int = 200) -> Response:
    if len(content) >= _LEAST_COMPRESSED and _accepts_gzip(request):
        headers = {**headers, "content-encoding": "gzip"}
        content = gzip.compress(content, _LEVEL, mtime=0)
    return Response(content, status, headers=headers)
