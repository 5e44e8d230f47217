"""Failpoints: named points at which a test lets the process die, or the operation that follows fail.

They stand before and after every commit and every action outside of the database. Only a test can arm them, from inside
the process: no setting and no variable does. Otherwise passing one costs a comparison.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

Act = Callable[[str, str], None]
"""Called with the name of a point, and the node that the action is about (or an empty text)."""

_armed: Act | None = None


class Died(BaseException):
    """Raised by a test at a failpoint in place of the death of the process: nobody may survive it."""


def failpoint(name: str, node: str = "") -> None:
    """Pass a point; a test that armed the failpoints is called with its name, and may raise or end the process."""
    if _armed is not None:
        _armed(name, node)


@contextmanager
def armed(act: Act) -> Iterator[None]:
    """Call `act` at each failpoint that the process passes meanwhile."""
    global _armed  # noqa: PLW0603 - one a process, as the process is what dies
    before, _armed = _armed, act
    try:
        yield
    finally:
        _armed = before
