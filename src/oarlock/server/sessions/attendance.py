"""Interactive jobs that wait, and the clients that wait for them: without its client such a job is ended."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Protocol, TypeVar

from oarlock.model.job import BEFORE_START
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.job import jobs

T = TypeVar("T")

GRACE_SECONDS = 30.0
"""How long a client that came over the network, or that this server has not seen yet, may be away."""


class AttendanceCore(Protocol):
    """What attendance needs of the server."""

    stopping: asyncio.Event

    async def read(self, question: Callable[[Tx], T]) -> T: ...
    async def client_vanished(self, ids: list[int]) -> None: ...


class JobAttendance:
    """Which interactive jobs have a client. `later` runs a coroutine in a task of the service."""

    def __init__(self, core: AttendanceCore, later: Callable[[Coroutine[Any, Any, None]], object]) -> None:
        self._core, self._later = core, later
        self._attended: Counter[int] = Counter()  # interactive jobs whose client waits, or has its session
        self._unattended: dict[int, float] = {}  # those without, and since when
        self._waiting: set[int] = set()  # interactive jobs that had not started at the last look
        self._highest = 0  # the highest number of a job at that time

    @contextlib.contextmanager
    def attending(self, job_id: int) -> Iterator[None]:
        """Count a client of a job for as long as it waits, or has its session."""
        self._attended[job_id] += 1
        self._unattended.pop(job_id, None)
        try:
            yield
        finally:
            self._attended[job_id] -= 1
            if not self._attended[job_id]:
                del self._attended[job_id]

    async def vanished_before_start(self, job_id: int, *, is_local: bool) -> None:
        """End a job whose client is gone; one that came over the network may come back."""
        if self._core.stopping.is_set():
            return
        if is_local:
            await self._core.client_vanished([job_id])
        else:
            self._later(self._end_if_unattended(job_id))

    async def _end_if_unattended(self, job_id: int) -> None:
        await asyncio.sleep(GRACE_SECONDS)
        if job_id not in self._attended:
            await self._core.client_vanished([job_id])

    async def end_unattended(self, now: float) -> None:
        """End interactive jobs that wait and whose client was not seen for a while: it died together with a server."""
        waiting, self._highest = await self._core.read(self._interactive)
        self._waiting = waiting
        self._unattended = {
            job_id: self._unattended.get(job_id, now) for job_id in waiting if job_id not in self._attended
        }
        gone = [job_id for job_id, since in self._unattended.items() if now - since >= GRACE_SECONDS]
        if gone:
            await self._core.client_vanished(gone)

    def _interactive(self, tx: Tx) -> tuple[set[int], int]:
        """Read which interactive jobs wait, and up to which number there are jobs."""
        new, highest = jobs.interactive_since(tx, self._highest)
        still = [job.id for job in jobs.existing(tx, self._waiting) if job.state in BEFORE_START]
        return {*new, *still}, highest
