"""Pages: every address of the portal, with the function that answers it and its place in the navigation."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from oarlock.config import Config
from oarlock.web.pages.parts.view import Answer, View

Handle = Callable[[View], Awaitable[Answer]]


def _always(_config: Config) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Page:
    """One address. `nav` is its word in the navigation (none: it is not there), `place` orders these words.

    `staff`: that word is shown to support staff and administrators only; who may see the page is decided by the verbs
    that it asks.

    `admin`: to administrators only.

    `source`: whether the settings name what the page shows; where they do not, there is no such page.

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
    source: Callable[[Config], bool] = _always


PAGES: list[Page] = []
"""All pages, in the order in which they were defined."""


def page(
    path: str,
    *,
    nav: str = "",
    place: int = 0,
    staff: bool = False,
    admin: bool = False,
    source: Callable[[Config], bool] = _always,
) -> Callable[[Handle], Handle]:
    """Register a function as a page."""

    def register(handle: Handle) -> Handle:
        PAGES.append(Page("GET", path, handle, nav, place, staff=staff, admin=admin, source=source))
        return handle

    return register


def action(path: str, *, signs_in: bool = False) -> Callable[[Handle], Handle]:
    """Register a function as what a form does; the form's token was checked before it is called."""

    def register(handle: Handle) -> Handle:
        PAGES.append(Page("POST", path, handle, signs_in=signs_in))
        return handle

    return register
