"""Accounts: user names and uids, looked up in threads of their own since directory services may be slow."""

import asyncio
import logging
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from oarlock.node.attempt.user.identity import LookUpFailed, UserMissing, UserRefused, account

log = logging.getLogger(__name__)

_KEPT_SECONDS = 300.0
_KEPT_UNKNOWN_SECONDS = 10.0  # the account may be about to be created
_KEPT_FAILED_SECONDS = 5.0  # look-ups that hang must not queue up
_TIMEOUT_SECONDS = 5.0


class AccountLookup:
    """Looks accounts of this machine up, and caches the results for a while."""

    def __init__(self) -> None:
        # Threads of their own: look-ups that hang must not keep the scheduler from its threads.
        self._threads = ThreadPoolExecutor(2, thread_name_prefix="oarlock-accounts")
        self._cache: dict[str, tuple[float, int | UserRefused]] = {}

    async def uid(self, name: str) -> int:
        """Return the number of a user; `UserMissing` if there is none, `LookUpFailed` if that is not known in time."""
        kept = self._cache.get(name)
        if kept is None or kept[0] <= time.monotonic():
            answer = await self._look_up(name)
            self._cache[name] = kept = (time.monotonic() + _kept_for(answer), answer)
        if isinstance(kept[1], int):
            return kept[1]
        raise kept[1]

    async def _look_up(self, name: str) -> int | UserRefused:
        looking = asyncio.get_running_loop().run_in_executor(self._threads, account, name)
        try:
            return (await asyncio.wait_for(looking, _TIMEOUT_SECONDS)).pw_uid
        except TimeoutError:
            return LookUpFailed(f"user `{name}` could not be looked up within {_TIMEOUT_SECONDS:.0f} s")
        except UserMissing:
            return UserMissing(f"the server does not know the user `{name}` any more")
        except UserRefused as failure:
            return failure

    def close(self) -> None:
        """Shut down without waiting for look-ups that hang."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _kept_for(answer: int | UserRefused) -> float:
    if isinstance(answer, int):
        return _KEPT_SECONDS
    return _KEPT_UNKNOWN_SECONDS if isinstance(answer, UserMissing) else _KEPT_FAILED_SECONDS


async def warn_of_unknown_admins(admins: Iterable[str]) -> None:
    """Log a warning for every name in ADMINS that has no account here: a misspelt name has no effect."""
    accounts = AccountLookup()
    try:
        for name in admins:
            try:
                await accounts.uid(name)
            except UserMissing:
                log.warning("ADMINS names a user whom this machine does not know", extra={"user": name})
            except LookUpFailed as failure:
                log.warning("a user whom ADMINS names was not looked up", extra={"user": name, "why": str(failure)})
    finally:
        accounts.close()
