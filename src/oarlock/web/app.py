"""The application that the HTTP server runs: the verbs under their addresses, and a description of them all."""

import asyncio
import html
import re
from collections.abc import Callable, Collection, Iterable
from http import HTTPStatus
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

import oarlock
from oarlock.model.errors import UnknownVerb
from oarlock.node.wire.stream import PROTOCOL_NAME
from oarlock.web import refusals
from oarlock.web.dispatch import Dispatcher
from oarlock.web.policy import RequiredRole
from oarlock.web.registry import JSON, PREFIX, VERBS, Verb
from oarlock.web.routes import RouteTable
from oarlock.web.verbs import __all__ as _registered  # noqa: F401  (importing them makes them known)

OPENAPI = "/api/openapi.json"
PAGE = "/api/docs"

_REFUSAL = {
    "description": "Refused: a sentence, a way out, and the kind of the refusal.",
    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Refusal"}}},
}
_REFUSAL_SCHEMA = {
    "title": "Refusal",
    "type": "object",
    "properties": {
        "error": {"type": "string"},
        "hint": {"type": "string"},
        "kind": {"type": "string"},
        "text": {"type": "string"},
        "at": {"type": "integer"},
    },
    "required": ["error", "hint", "kind"],
}
_REQUEST_ID = {
    "name": "Request-Id",
    "in": "header",
    "required": True,
    "description": "A new text for every change; the same again does nothing twice and gets the same answer.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 64, "pattern": "^[!-~]+$"},
}
_BEHALF = {
    "name": "On-Behalf-Of",
    "in": "header",
    "required": False,
    "description": "For administrators: the user in whose name it is done.",
    "schema": {"type": "string"},
}


def openapi(names: Collection[str] | None = None) -> dict[str, Any]:
    """Describe all verbs, or those named, as OpenAPI 3.1 does."""
    verbs = _served(names)
    kinds = [*(verb.request for verb in verbs), *(verb.response for verb in verbs)]
    schemas, components = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    asks, answers = schemas[: len(verbs)], schemas[len(verbs) :]
    paths: dict[str, dict[str, Any]] = {}
    for verb, request, answer in zip(verbs, asks, answers, strict=True):
        paths.setdefault(PREFIX + verb.path, {})[verb.method.lower()] = _operation(verb, request, answer, components)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Oarlock", "version": oarlock.__version__},
        "paths": paths,
        "components": {
            "schemas": {**components, "Refusal": _REFUSAL_SCHEMA},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }


def _served(names: Collection[str] | None) -> tuple[Verb, ...]:
    return tuple(verb for verb in VERBS.values() if names is None or verb.name in names)


def _operation(verb: Verb, request: Any, answer: Any, components: dict[str, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": verb.name,
        "summary": verb.summary,
        "description": f"For {verb.role.value}.",
        "parameters": [*([_REQUEST_ID] if verb.changes else []), *([_BEHALF] if verb.behalf else [])],
        "responses": {
            str(verb.status): {"description": "Done.", "content": _content(verb, answer)},
            "default": _REFUSAL,
        },
    }
    if verb.in_body:
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": request}}}
    else:
        operation["parameters"] += _parameters(verb, components[request["$ref"].rpartition("/")[2]])
    return operation


def _content(verb: Verb, answer: Any) -> dict[str, Any]:
    """Describe the body of an answer; what is no JSON is a text or a file."""
    kind = verb.media_type.partition(";")[0]
    return {kind: {"schema": answer if kind == "application/json" else {"type": "string"}}}


def _parameters(verb: Verb, schema: dict[str, Any]) -> Iterable[dict[str, Any]]:
    in_path = set(re.findall(r"{(\w+)}", verb.path))
    for name, kind in schema["properties"].items():
        where = "path" if name in in_path else "query"
        required = name in schema.get("required", ())
        yield {
            "name": name,
            "in": where,
            "required": required,
            "schema": kind,
            "style": "simple" if where == "path" else "form",
            "explode": False,
        }


def fields(verb: Verb) -> list[str]:
    """Name what a verb can be asked with; what may be left out has a question mark."""
    return [
        field.encode_name if field.required else f"{field.encode_name}?"
        for field in msgspec.structs.fields(verb.request)
    ]


def page(names: Collection[str] | None = None) -> str:
    """Return the page that lists all verbs, or those named; it needs no script and loads nothing."""
    rows = "\n".join(_row(verb) for verb in _served(names))
    return (
        "<!doctype html><html lang=en><meta charset=utf-8><title>Oarlock: what can be asked</title>"
        f"<h1>What can be asked of Oarlock {oarlock.__version__}</h1>"
        f"<p>Under <code>{PREFIX}</code>, on the server's socket or, with a token, on its port; bodies and answers are "
        f'JSON. For programs: <a href="{OPENAPI}">{OPENAPI}</a>.</p>'
        "<table><thead><tr><th>address<th>asked with<th>for<th>what it does<tbody>\n"
        f"{rows}\n</table></html>"
    )


def _row(verb: Verb) -> str:
    cells = (f"{verb.method} {verb.path}", " ".join(fields(verb)), verb.role.value, verb.summary)
    return "<tr>" + "".join(f"<td>{html.escape(cell)}" for cell in cells)


_METRICS = "/metrics"
"""Where everybody looks for metrics."""

_NODE_SECONDS = 150.0
"""How long a node's connection is kept open; most send every 10 s, and to connect by TLS costs more than a request."""

_SCRIPTS = "/api/jobscripts"
"""Where pushers send scripts of jobs, with or without a slash at the end."""


def _path_of_verb(path: str) -> str | None:
    """Return the address of a verb without the prefix; None for what is not one's."""
    if path.startswith(PREFIX):
        return path.removeprefix(PREFIX)
    if path.startswith(_SCRIPTS):
        return path.removeprefix("/api").rstrip("/")
    return path if path == _METRICS else None


def build(dispatcher: Dispatcher, names: Collection[str] | None = None) -> ASGIApp:
    """Build the application: verbs (all, or those named) go straight to the dispatcher, the rest to the pages."""
    reference = _reference_pages(names)
    portal = LazyPortal(dispatcher) if names is None and dispatcher.core.config.portal else reference
    addresses = RouteTable(_served(names))

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        path = _path_of_verb(scope["path"]) if scope["type"] == "http" else None
        if path is None:
            await (reference if scope["path"].startswith("/api/") else portal)(scope, receive, send)
            return
        request = Request(scope, receive)
        route = addresses.find(scope["method"], path)
        if route is None:
            response = await _not_found(request, None)
        elif route[0].upgrades and request.headers.get("upgrade", "").lower() == PROTOCOL_NAME:
            refusal = await dispatcher.connect(route[0], request, scope["state"]["connection"])
            if refusal is None:
                return
            response = refusal
        else:
            response = await dispatcher.answer(*route, request)
            if route[0].role is RequiredRole.NODES and response.status_code == HTTPStatus.OK:
                scope["state"]["connection"].keep_open(_NODE_SECONDS)
        await response(scope, receive, send)

    return app


class LazyPortal:
    """The portal, which is loaded when the first browser comes: a server that nobody looks at does without."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self._portal: ASGIApp | None = None
        self._loading = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        portal = self._portal or await self._load()
        await portal(scope, receive, send)

    async def _load(self) -> ASGIApp:
        async with self._loading:
            if self._portal is None:
                # In a thread: to read templates and styles takes longer than the event loop may stand still.
                portal_class = await asyncio.to_thread(_portal_class)
                self._portal = await asyncio.to_thread(portal_class, self._dispatcher)
            return self._portal


def _portal_class() -> Callable[[Dispatcher], ASGIApp]:
    from oarlock.web.pages.portal import Portal

    return Portal


def _reference_pages(names: Collection[str] | None) -> ASGIApp:
    """Build the pages that describe the API: all verbs, or those named."""

    async def show_openapi(_request: Request) -> Response:
        return Response(msgspec.json.encode(openapi(names)), media_type=JSON)

    async def show_page(_request: Request) -> Response:
        # Nothing on it may load or run anything.
        headers = {"content-security-policy": "default-src 'none'"}
        return Response(page(names), media_type="text/html", headers=headers)

    pages = Starlette(
        routes=[Route(OPENAPI, show_openapi), Route(PAGE, show_page)],
        exception_handlers={HTTPException: _not_found},
    )
    pages.router.redirect_slashes = False
    return pages


async def _not_found(request: Request, _problem: Exception | None) -> Response:
    error = UnknownVerb(f"There is no {request.method} {request.url.path[:200]!a} here.", hint="/api/docs lists all.")
    status, content = refusals.refusal(error)
    return Response(content, status, media_type=JSON)
