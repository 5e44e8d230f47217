"""The application that the HTTP server runs: the verbs under their addresses."""

from collections.abc import Awaitable, Callable

import msgspec
from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

import oarlock
from oarlock.model.errors import UnknownVerb
from oarlock.web import describe, telling
from oarlock.web.dispatch import JSON, Dispatcher
from oarlock.web.verb import PREFIX, VERBS, Verb
from oarlock.web.verbs import __all__ as _registered  # noqa: F401  (importing them makes them known)


def build(dispatcher: Dispatcher) -> FastAPI:
    """Make the application. FastAPI's own pages are off: they load scripts from elsewhere."""
    app = FastAPI(title="Oarlock", version=oarlock.__version__, docs_url=None, redoc_url=None, openapi_url=None)
    app.router.redirect_slashes = False
    for verb in VERBS.values():
        app.router.routes.append(
            Route(PREFIX + verb.path, _endpoint(dispatcher, verb), methods=[verb.method], name=verb.name)
        )
    app.router.routes.append(Route(describe.OPENAPI, _openapi))
    app.router.routes.append(Route(describe.PAGE, _page))
    app.add_exception_handler(HTTPException, _nothing_there)
    return app


def _endpoint(dispatcher: Dispatcher, verb: Verb) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        return await dispatcher.answer(verb, request)

    return endpoint


async def _openapi(_request: Request) -> Response:
    return Response(msgspec.json.encode(describe.openapi()), media_type=JSON)


async def _page(_request: Request) -> Response:
    # Nothing on it may load or run anything.
    return Response(describe.page(), media_type="text/html", headers={"content-security-policy": "default-src 'none'"})


async def _nothing_there(request: Request, _problem: Exception) -> Response:
    error = UnknownVerb(f"There is no {request.method} {request.url.path[:200]!a} here.", hint="/api/docs lists all.")
    status, content = telling.refusal(error)
    return Response(content, status, media_type=JSON)
