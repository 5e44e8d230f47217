"""Verbs: everything that can be asked of the server, each with its address, who may, and what it takes and gives."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct

from oarlock.web.decode import LARGEST_BODY
from oarlock.web.policy import May, Power

if TYPE_CHECKING:
    from oarlock.web.context import Call

A = TypeVar("A", bound=Struct)
Handle = Callable[["Call", A], Awaitable[Any]]

PREFIX = "/api/v1"
JSON = "application/json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verb(Power):
    """One thing that can be asked. `says` is one sentence for the reference.

    What it is asked with stands in the body of a POST, else in the address. `changes`: it needs a request id, and is
    refused while the server stops. `behalf`: administrators may use it in the name of somebody else.
    """

    method: str
    path: str
    says: str
    asks: type[Struct]
    answers: Any
    handle: Handle[Any]
    changes: bool = False
    behalf: bool = False
    largest_body: int = LARGEST_BODY
    media_type: str = JSON

    @property
    def in_body(self) -> bool:
        """Whether what it is asked with comes as a body."""
        return self.method == "POST"


VERBS: dict[str, Verb] = {}
"""All verbs, by name, in the order in which they were defined."""


def verb(
    name: str, at: str, *, may: May, says: str, asks: type[A], answers: Any, **options: Any
) -> Callable[[Handle[A]], Handle[A]]:
    """Make a function a verb; `at` is its method and address (`GET /jobs`). All but GET change something."""
    method, path = at.split()

    def register(handle: Handle[A]) -> Handle[A]:
        if name in VERBS:
            raise ValueError(f"There are two verbs named {name}.")
        options.setdefault("changes", method != "GET")
        VERBS[name] = Verb(
            name=name, may=may, method=method, path=path, says=says, asks=asks, answers=answers, handle=handle,
            **options,
        )  # fmt: skip
        return handle

    return register
