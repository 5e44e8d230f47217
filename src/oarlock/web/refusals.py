"""Refusals: as responses (a status and a body, never a traceback), and in the audit.

A program that asks again and again must not fill the database: the same refusal is written once in a while with the
number of times, and beyond a few different ones a user's refusals are only counted.
"""

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from oarlock.model.errors import Forbidden, NotSignedIn, OarlockError, SyntaxRefused
from oarlock.model.submission_errors import ParameterFileNeeded, StageInNeeded
from oarlock.store.queries.users.user_records import AuditEntry
from oarlock.web.registry import Verb

log = logging.getLogger(__name__)

WINDOW_SECONDS = 600.0
MOST_DIFFERENT = 20
"""How many different refusals of one user are written in a window."""

MOST_USERS = 100
"""How many users have a window of their own; those beyond share one."""

_OTHERS = "(others)"
_OUR_FAULT = 500  # the HTTP status from which on the server, not the request, is to blame


def concerns(verb: Verb, error: OarlockError) -> bool:
    """Return whether a refusal belongs into the audit: of any change, and of what somebody may not read."""
    if isinstance(error, Forbidden | NotSignedIn):
        return True
    return verb.changes and error.http_status < _OUR_FAULT


@dataclass(slots=True)
class _Window:
    """The refusals of one user within `WINDOW_SECONDS`: those written, and how often each came again."""

    again: dict[AuditEntry, int] = field(default_factory=dict)
    beyond: int = 0
    last: AuditEntry | None = None  # of those beyond


class RefusalRecorder:
    """Writes refusals with `write`, which adds the date; at most so many a user and window. Runs on the event loop."""

    def __init__(self, write: Callable[[AuditEntry], Awaitable[None]], *, window: float = WINDOW_SECONDS) -> None:
        self._write, self._seconds = write, window
        self._windows: dict[str, _Window] = {}
        self._flushing: set[asyncio.Task[None]] = set()

    async def record(self, entry: AuditEntry) -> None:
        """Write a refusal, or count it if it was written a moment ago."""
        window = self._window(entry.user)
        if entry in window.again:
            window.again[entry] += 1
        elif len(window.again) < MOST_DIFFERENT:
            window.again[entry] = 0
            await self._written(entry)
        else:
            window.beyond += 1
            window.last = entry

    def _window(self, user: str) -> _Window:
        if user not in self._windows:
            user = user if len(self._windows) < MOST_USERS else _OTHERS
        window = self._windows.get(user)
        if window is None:
            window = self._windows[user] = _Window()
            asyncio.get_running_loop().call_later(self._seconds, self._flush, user)
        return window

    def _flush(self, user: str) -> None:
        task = asyncio.get_running_loop().create_task(self._close(user))
        self._flushing.add(task)
        task.add_done_callback(self._flushing.discard)

    async def _close(self, user: str) -> None:
        """Write how often each refusal of a window came again."""
        window = self._windows.pop(user)
        for entry, times in window.again.items():
            if times:
                await self._written(replace(entry, refused=f"{entry.refused} ({times} more)"))
        if window.last is not None:
            refused = f"{window.last.refused} (and {window.beyond - 1} other requests)"
            await self._written(replace(window.last, refused=refused))

    async def _written(self, entry: AuditEntry) -> None:
        try:
            await self._write(entry)
        except OarlockError as away:
            log.warning("refusal not written", extra={"user": entry.user, "verb": entry.verb, "why": str(away)})


def refusal(error: OarlockError) -> tuple[int, bytes]:
    """Return the status and the body of a refusal: what was refused, why, and what to do."""
    content: dict[str, Any] = {"error": str(error), "hint": error.hint, "kind": type(error).__name__}
    if isinstance(error, SyntaxRefused):
        content |= {"text": error.text, "at": error.at}
    elif isinstance(error, ParameterFileNeeded | StageInNeeded):
        content["text"] = error.path
    return error.http_status, msgspec.json.encode(content)


def log_failure(error: BaseException, *, verb: str) -> str:
    """Log an internal error; return the number that leads to its traceback."""
    number = secrets.token_hex(4)
    log.error("request failed", exc_info=error, extra={"verb": verb, "reference": number})
    return number


def failure(error: BaseException, *, verb: str) -> tuple[int, bytes]:
    """Return the status and the body for an internal error; its number leads to the traceback in the log."""
    number = log_failure(error, verb=verb)
    content = {
        "error": f"Something went wrong in the server (reference {number}).",
        "hint": "Its log says more under that number.",
        "kind": "InternalError",
    }
    return 500, msgspec.json.encode(content)
