"""The application that the HTTP server runs: the verbs under their addresses."""

import re
from collections.abc import Iterable

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from oarlock.model.errors import UnknownVerb
from oarlock.node.wire.stream import PROTOCOL_NAME
from oarlock.web import openapi, refusals
from oarlock.web.dispatch import Dispatcher
from oarlock.web.registry import JSON, PREFIX, VERBS, Verb
from oarlock.web.verbs import __all__ as _registered  # noqa: F401  (importing them makes them known)

_METRICS = "/metrics"
"""Where everybody looks for metrics; the only verb that has an address without the prefix."""


def build(dispatcher: Dispatcher) -> ASGIApp:
    """Build the application: verbs go straight to the dispatcher, everything else to the pages."""
    pages = _pages()
    addresses = RouteTable(VERBS.values())

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not (scope["path"].startswith(PREFIX) or scope["path"] == _METRICS):
            await pages(scope, receive, send)
            return
        request = Request(scope, receive)
        route = addresses.find(scope["method"], scope["path"].removeprefix(PREFIX))
        if route is None:
            response = await _not_found(request, None)
        elif route[0].upgrades and request.headers.get("upgrade", "").lower() == PROTOCOL_NAME:
            refusal = await dispatcher.connect(route[0], request, scope["state"]["connection"])
            if refusal is None:
                return
            response = refusal
        else:
            response = await dispatcher.answer(*route, request)
        await response(scope, receive, send)

    return app


def _pages() -> ASGIApp:
    """Build the pages for people."""
    pages = Starlette(
        routes=[Route(openapi.OPENAPI, _openapi), Route(openapi.PAGE, _page)],
        exception_handlers={HTTPException: _not_found},
    )
    pages.router.redirect_slashes = False
    return pages


class RouteTable:
    """The verbs by address: most in a dictionary, those with variable parts (`/jobs/{id}`) by trying each pattern."""

    def __init__(self, verbs: Iterable[Verb]) -> None:
        self._plain: dict[tuple[str, str], Verb] = {}
        self._variable: list[tuple[str, re.Pattern[str], Verb]] = []
        for verb in verbs:
            if "{" in verb.path:
                pattern = re.compile(re.sub(r"{(\w+)}", r"(?P<\1>[^/]+)", verb.path))
                self._variable.append((verb.method, pattern, verb))
            else:
                self._plain[verb.method, verb.path] = verb

    def find(self, method: str, path: str) -> tuple[Verb, dict[str, str]] | None:
        """Return the verb and the variable parts of its address; None if there is no such address."""
        if verb := self._plain.get((method, path)):
            return verb, {}
        for of_method, pattern, verb in self._variable:
            if of_method == method and (route := pattern.fullmatch(path)):
                return verb, route.groupdict()
        return None


async def _openapi(_request: Request) -> Response:
    return Response(msgspec.json.encode(openapi.openapi()), media_type=JSON)


async def _page(_request: Request) -> Response:
    # Nothing on it may load or run anything.
    return Response(openapi.page(), media_type="text/html", headers={"content-security-policy": "default-src 'none'"})


async def _not_found(request: Request, _problem: Exception | None) -> Response:
    error = UnknownVerb(f"There is no {request.method} {request.url.path[:200]!a} here.", hint="/api/docs lists all.")
    status, content = refusals.refusal(error)
    return Response(content, status, media_type=JSON)
