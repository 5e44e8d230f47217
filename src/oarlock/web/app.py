"""The application that the HTTP server runs: the verbs under their addresses."""

import re
from collections.abc import Iterable

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

_METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"]


def build(dispatcher: Dispatcher) -> FastAPI:
    """Make the application. FastAPI's own pages are off: they load scripts from elsewhere."""
    app = FastAPI(title="Oarlock", version=oarlock.__version__, docs_url=None, redoc_url=None, openapi_url=None)
    app.router.redirect_slashes = False
    addresses = Addresses(VERBS.values())

    async def answer(request: Request) -> Response:
        found = addresses.find(request.method, request.path_params["rest"])
        if found is None:
            return await _nothing_there(request, None)
        verb, parts = found
        return await dispatcher.answer(verb, request, parts)

    app.router.routes.append(Route(f"{PREFIX}{{rest:path}}", answer, methods=_METHODS))
    app.router.routes.append(Route(describe.OPENAPI, _openapi))
    app.router.routes.append(Route(describe.PAGE, _page))
    app.add_exception_handler(HTTPException, _nothing_there)
    return app


class Addresses:
    """Finds the verb behind an address: most by one look, those with variable parts (`/jobs/{id}`) one by one."""

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
        """Give the verb and the variable parts of its address; None: nothing is there."""
        if verb := self._plain.get((method, path)):
            return verb, {}
        for of_method, pattern, verb in self._variable:
            if of_method == method and (found := pattern.fullmatch(path)):
                return verb, found.groupdict()
        return None


async def _openapi(_request: Request) -> Response:
    return Response(msgspec.json.encode(describe.openapi()), media_type=JSON)


async def _page(_request: Request) -> Response:
    # Nothing on it may load or run anything.
    return Response(describe.page(), media_type="text/html", headers={"content-security-policy": "default-src 'none'"})


async def _nothing_there(request: Request, _problem: Exception | None) -> Response:
    error = UnknownVerb(f"There is no {request.method} {request.url.path[:200]!a} here.", hint="/api/docs lists all.")
    status, content = telling.refusal(error)
    return Response(content, status, media_type=JSON)
