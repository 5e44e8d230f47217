"""What the server can be asked, described: as OpenAPI for programs, and as a page for people."""

import html
import re
from collections.abc import Iterable
from typing import Any

import msgspec

import oarlock
from oarlock.web.registry import PREFIX, VERBS, Verb

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
    "schema": {"type": "string", "maxLength": 64},
}
_BEHALF = {
    "name": "On-Behalf-Of",
    "in": "header",
    "required": False,
    "description": "For administrators: the user in whose name it is done.",
    "schema": {"type": "string"},
}


def openapi() -> dict[str, Any]:
    """Describe all verbs as OpenAPI 3.1 does."""
    verbs = tuple(VERBS.values())
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


def _operation(verb: Verb, request: Any, answer: Any, components: dict[str, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": verb.name,
        "summary": verb.summary,
        "description": f"For {verb.role.value}.",
        "parameters": [*([_REQUEST_ID] if verb.changes else []), *([_BEHALF] if verb.behalf else [])],
        "responses": {
            "200": {"description": "Done.", "content": {"application/json": {"schema": answer}}},
            "default": _REFUSAL,
        },
    }
    if verb.in_body:
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": request}}}
    else:
        operation["parameters"] += _parameters(verb, components[request["$ref"].rpartition("/")[2]])
    return operation


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


def page() -> str:
    """Return the page that lists all verbs; it needs no script and loads nothing."""
    rows = "\n".join(_row(verb) for verb in VERBS.values())
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
