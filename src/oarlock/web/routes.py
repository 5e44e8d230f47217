"""Addresses: which verb or page stands at a method and a path."""

import re
from collections.abc import Iterable
from typing import Generic, Protocol, TypeVar


class Addressed(Protocol):
    """What has a method and a path; parts in braces are variable (`/jobs/{id}`)."""

    @property
    def method(self) -> str: ...
    @property
    def path(self) -> str: ...


R = TypeVar("R", bound=Addressed)


class RouteTable(Generic[R]):
    """Verbs or pages by address: most in a dictionary, those with variable parts by trying each pattern."""

    def __init__(self, routes: Iterable[R]) -> None:
        self._plain: dict[tuple[str, str], R] = {}
        self._variable: list[tuple[str, re.Pattern[str], R]] = []
        for route in routes:
            if "{" in route.path:
                pattern = re.compile(re.sub(r"{(\w+)}", r"(?P<\1>[^/]+)", route.path))
                self._variable.append((route.method, pattern, route))
            else:
                self._plain[route.method, route.path] = route

    def find(self, method: str, path: str) -> tuple[R, dict[str, str]] | None:
        """Return what stands at an address and the variable parts of it; None if there is no such address."""
        if route := self._plain.get((method, path)):
            return route, {}
        for of_method, pattern, candidate in self._variable:
            if of_method == method and (match := pattern.fullmatch(path)):
                return candidate, match.groupdict()
        return None
