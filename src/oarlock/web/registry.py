"""Verbs: every operation of the API, with its address, the role it requires, its request and its response."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from msgspec import Struct

from oarlock.web.context import RequestContext
from oarlock.web.decode import LARGEST_BODY
from oarlock.web.policy import Permission, RequiredRole

A = TypeVar("A", bound=Struct)
Handle = Callable[[RequestContext, A], Awaitable[Any]]

PREFIX = "/api/v1"
JSON = "application/json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verb(Permission):
    """One operation of the API. `summary` is one sentence for the reference.

    What it is asked with stands in the body of a POST, else in the address. `changes`: it needs a request id, and is
    refused while the server stops. `behalf`: administrators may use it in the name of somebody else. `upgrades`: its
    connection is handed over to a session, or to a desktop. `uploads`: its body is a file; what it is asked with stands
    in the address. `raw`: its body are bytes, which the handler gets whole. `status` is that of an answer.
    """

    method: str
    path: str
    summary: str
    request: type[Struct]
    response: Any
    handle: Handle[Any]
    changes: bool = False
    behalf: bool = False
    upgrades: bool = False
    uploads: bool = False
    raw: bool = False
    status: int = 200
    largest_body: int = LARGEST_BODY
    media_type: str = JSON

    @property
    def in_body(self) -> bool:
        """Whether what it is asked with comes as a body."""
        return self.method in {"POST", "PUT"} and not (self.uploads or self.raw)


VERBS: dict[str, Verb] = {}
"""All verbs, by name, in the order in which they were defined."""


def verb(
    name: str, at: str, *, role: RequiredRole, summary: str, request: type[A], response: Any, **options: Any
) -> Callable[[Handle[A]], Handle[A]]:
    """Register a function as a verb; `at` is its method and address (`GET /jobs`). All but GET change something."""
    method, path = at.split()

    def register(handle: Handle[A]) -> Handle[A]:
        if name in VERBS:
            raise ValueError(f"There are two verbs named {name}.")
        options.setdefault("changes", method != "GET")
        VERBS[name] = Verb(
            name=name, role=role, method=method, path=path, summary=summary, request=request, response=response,
            handle=handle,
            **options,
        )  # fmt: skip
        return handle

    return register
