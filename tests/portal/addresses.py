"""Addresses of all pages and verbs, made from what is registered: a new one is in every crawl at once."""

import inspect
import re
import sys
from collections.abc import Callable, Iterator

import msgspec

from oarlock.web.pages import __all__ as _pages  # noqa: F401  (importing them makes them known)
from oarlock.web.pages.parts.registry import PAGES, Page
from oarlock.web.registry import PREFIX, VERBS, Verb
from oarlock.web.verbs import __all__ as _verbs  # noqa: F401

_READ = re.compile(r"""view\.(?:query\.get\(|number\(|field\(|query\[|form\.get\(|form\[)"([a-z_]+)\"""")

EXAMPLES = {"id": "1", "job": "1", "name": "node-1", "secret": "x", "sha256": "0" * 64, "cluster": "c"}
"""What stands for the variable parts of an address."""


def of_method(method: str) -> list[Page]:
    return [page for page in PAGES if page.method == method]


def filled(path: str, values: dict[str, str] | None = None) -> str:
    """Return an address with its variable parts filled in."""
    return re.sub(r"{(\w+)}", lambda part: (EXAMPLES | (values or {})).get(part[1], "1"), path)


def parts(path: str) -> list[str]:
    return re.findall(r"{(\w+)}", path)


def parameters(handle: Callable[..., object]) -> list[str]:
    """Return the names that the module of a page reads from addresses and forms."""
    module = sys.modules[handle.__module__]
    return sorted({*_READ.findall(inspect.getsource(module)), *getattr(module, "FILTERS", ())})


def shown_by_verbs() -> Iterator[tuple[Verb, str]]:
    """Yield the verbs that only show something, with an address for each."""
    for verb in VERBS.values():
        if verb.method == "GET" and not verb.upgrades:
            yield verb, PREFIX + filled(verb.path)


def fields(verb: Verb) -> list[str]:
    return [field.encode_name for field in msgspec.structs.fields(verb.request)]
