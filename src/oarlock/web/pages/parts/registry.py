"""Pages: every address of the portal, with the function that answers it and its place in the navigation."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from oarlock.web.pages.parts.view import Answer, View

Handle = Callable[[View], Awaitable[Answer]]


@dataclass(frozen=True, slots=True)
class Page:
    """One address. `nav` is its word in the navigation (none: it is not there), `place` orders these words.

    `staff`: that word is shown to support staff and administrators only; who may see the page is decided by the verbs
    that it asks.

    `admin`: to administrators only.

    `signs_in`: its form comes before there is a session, so it cannot have the session's token.
    """

    method: str
    path: str
    handle: Handle
    nav: str = ""
    place: int = 0
    signs_in: bool = False
    staff: bool = False
    admin: bool = False


PAGES: list[Page] = []
"""All pages, in the order in which they were defined."""


def page(
    path: str, *, nav: str = "", place: int = 0, staff: bool = False, admin: bool = False
) -> Callable[[Handle], Handle]:
    """Register a function as a page."""
    return _register("GET", path, nav=nav, place=place, staff=staff, admin=admin)


def action(path: str, *, signs_in: bool = False) -> Callable[[Handle], Handle]:
    """Register a function as what a form does; the form's token was checked before it is called."""
    return _register("POST", path, signs_in=signs_in)


def _register(
    method: str,
    path: str,
    *,
    nav: str = "",
    place: int = 0,
    signs_in: bool = False,
    staff: bool = False,
    admin: bool = False,
) -> Callable[[Handle], Handle]:
    def register(handle: Handle) -> Handle:
        PAGES.append(Page(method, path, handle, nav, place, signs_in, staff, admin))
        return handle

    return register
