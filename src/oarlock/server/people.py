"""People: user names and their numbers, looked up where a slow directory service holds up nobody else."""

import asyncio
import logging
import pwd
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

log = logging.getLogger(__name__)

_KEPT_SECONDS = 300.0
_KEPT_UNKNOWN_SECONDS = 10.0  # somebody may be on the way in
_PATIENCE = 5.0


class People:
    """The accounts of this machine, remembered for a while."""

    def __init__(self) -> None:
        # Threads of their own: look-ups that hang must not keep the scheduler from its threads.
        self._threads = ThreadPoolExecutor(2, thread_name_prefix="people")
        self._known: dict[str, tuple[float, int | None]] = {}

    async def uid(self, name: str) -> int | None:
        """Give the number of a user; None where it is not known here, or not known in time."""
        kept = self._known.get(name)
        if kept is not None and kept[0] > time.monotonic():
            return kept[1]
        looking = asyncio.get_running_loop().run_in_executor(self._threads, _number, name)
        try:
            found = await asyncio.wait_for(looking, _PATIENCE)
        except TimeoutError:
            return None
        seconds = _KEPT_UNKNOWN_SECONDS if found is None else _KEPT_SECONDS
        self._known[name] = (time.monotonic() + seconds, found)
        return found

    def are_without(self, name: str) -> bool:
        """Whether the last look-up of a name was answered, and nobody has it; a slow directory says nothing."""
        kept = self._known.get(name)
        return kept is not None and kept[1] is None

    def close(self) -> None:
        """Wait for nobody."""
        self._threads.shutdown(wait=False, cancel_futures=True)


async def warn_of_strangers(admins: Iterable[str]) -> None:
    """Tell the log of administrators whom this machine does not know: a name that is misspelt gives nobody power."""
    people = People()
    try:
        for name in admins:
            if await people.uid(name) is None:
                log.warning("ADMINS names a user whom this machine does not know", extra={"user": name})
    finally:
        people.close()


def _number(name: str) -> int | None:
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        return None
