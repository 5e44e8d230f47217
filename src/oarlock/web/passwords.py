"""Passwords typed into the portal: who may try how often, and what is asked whether they are right."""

import time
from collections import deque
from collections.abc import Awaitable, Callable

from oarlock.model.errors import BadRequest, NotSignedIn, OarlockError, TooManyTries, Unavailable

PasswordCheck = Callable[[str, str], Awaitable[bool]]
"""Returns whether a password is that of a user."""

TRIES, SECONDS = 5, 60.0
"""So many tries in so many seconds are granted to a name, and to an address."""

_TRIES_IN_ALL = 60
_MOST_KEPT = 10_000
_LONGEST = 256


class PasswordUnchecked(Unavailable):
    """The system that checks passwords cannot be asked."""

    def __init__(self) -> None:
        super().__init__(
            "Passwords cannot be checked now.", hint="`oarlock login` signs in without one; the server's log says more."
        )


class TryCounter:
    """Counts tries of the last minute, by name and by address, and refuses those above the limit."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._tries: dict[str, deque[float]] = {}

    def count(self, key: str, most: int = TRIES) -> None:
        """Count a try; `TooManyTries` if there were as many as are granted."""
        now = self._clock()
        if len(self._tries) >= _MOST_KEPT:
            self._tries = {name: tries for name, tries in self._tries.items() if tries[-1] > now - SECONDS}
        tries = self._tries.setdefault(key, deque(maxlen=most))
        if len(tries) == most and tries[0] > now - SECONDS:
            raise TooManyTries(max(1, int(tries[0] + SECONDS - now)))
        tries.append(now)


class PasswordDoor:
    """Admit whoever knows the password of an account."""

    def __init__(self, check: PasswordCheck, counter: TryCounter | None = None) -> None:
        self._check, self._tries = check, counter or TryCounter()

    async def open(self, user: str, password: str, *, address: str) -> None:
        """Return if the password is right. `address`: where the browser is; empty if only a proxy knows.

        A wrong password, a wrong name and a locked account are refused in the same words.
        """
        if not user or not password or "\0" in user + password or max(len(user), len(password)) > _LONGEST:
            raise BadRequest("A name and a password are needed.", hint="Type both.")
        self._tries.count("", _TRIES_IN_ALL)
        if address:
            self._tries.count(f"address {address}")
        self._tries.count(f"user {user}")
        if not await self._check(user, password):
            raise wrong_password()


def wrong_password() -> OarlockError:
    """Return the refusal of a name and a password that do not fit."""
    return NotSignedIn("That name and password do not fit.", hint="Try again, or use `oarlock login`.")
