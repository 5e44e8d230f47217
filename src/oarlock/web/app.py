"""The application that the HTTP server runs: the verbs under their addresses."""

import asyncio
import re
from collections.abc import Iterable

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

import oarlock
from oarlock.model.errors import UnknownVerb
from oarlock.web import errors, openapi
from oarlock.web.dispatch import Dispatcher
from oarlock.web.registry import JSON, PREFIX, VERBS, Verb
from oarlock.web.verbs import __all__ as _registered  # noqa: F401  (importing them makes them known)

_METRICS = "/metrics"
"""Where everybody looks for metrics; the only verb that has an address without the prefix."""


def build(dispatcher: Dispatcher) -> ASGIApp:
    """Build the application: verbs go straight to the dispatcher, everything else to the pages."""
    pages: list[ASGIApp] = []
    addresses = RouteTable(VERBS.values())

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not (scope["path"].startswith(PREFIX) or scope["path"] == _METRICS):
            if not pages:
                pages.append(await asyncio.to_thread(_pages))
            await pages[0](scope, receive, send)
            return
        request = Request(scope, receive)
        route = addresses.find(scope["method"], scope["path"].removeprefix(PREFIX))
        if route is None:
            response = await _not_found(request, None)
        else:
            response = await dispatcher.answer(*route, request)
        await response(scope, receive, send)

    return app


def _pages() -> ASGIApp:
    """Build the pages for people. FastAPI's own pages are off: they load scripts from elsewhere.

    FastAPI takes as long to load as half of the server: it is loaded when somebody looks.
    """
    from fastapi import FastAPI

    pages = FastAPI(title="Oarlock", version=oarlock.__version__, docs_url=None, redoc_url=None, openapi_url=None)
    pages.router.redirect_slashes = False
    pages.router.routes.append(Route(openapi.OPENAPI, _openapi))
    pages.router.routes.append(Route(openapi.PAGE, _page))
    pages.add_exception_handler(HTTPException, _not_found)
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
    status, content = errors.refusal(error)
    return Response(content, status, media_type=JSON)
