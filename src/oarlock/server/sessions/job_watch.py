"""Follow single jobs: clients that wait for a job hear of it when it changes, and nobody asks in between.

Whatever the server writes wakes one reader, which looks at all followed jobs with a few statements.
"""

import asyncio
import contextlib
import logging
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import NamedTuple

from oarlock.model.job import Job, JobState
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.job import attempts, jobs
from oarlock.store.queries.job.attempts import Attempt
from oarlock.store.queries.planning import plans

log = logging.getLogger(__name__)

_LEAST_PAUSE, _LONGEST_PAUSE = 0.02, 1.0
_SHARE = 5.0  # a look is followed by a pause this many times as long as it took

Read = Callable[[Callable[[Tx], dict[int, "JobStanding"]]], Awaitable[dict[int, "JobStanding"]]]


class JobStanding(NamedTuple):
    """A job as a client that waits for it sees it."""

    job: Job
    start: int | None = None  # as planned; None where no plan has it
    attempt: Attempt | None = None  # its last one

    @property
    def state(self) -> JobState:
        """The state of the job."""
        return self.job.state

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes of its last attempt, the first one first."""
        return () if self.attempt is None else tuple(node.name for node in self.attempt.nodes)


def standings(tx: Tx, ids: set[int]) -> dict[int, JobStanding]:
    """Read how jobs stand; those that do not exist are left out."""
    starts = plans.planned_starts(tx, ids)
    last = {attempt.job_id: attempt for attempt in attempts.of_jobs(tx, ids)}
    return {job.id: JobStanding(job, starts.get(job.id), last.get(job.id)) for job in jobs.existing(tx, ids)}


class JobFollower:
    """One client that follows a job."""

    def __init__(self) -> None:
        self._changed = asyncio.Event()
        self._standing: JobStanding | None = None

    def tell(self, standing: JobStanding) -> None:
        """Set how the job stands now."""
        if standing != self._standing:
            self._standing = standing
            self._changed.set()

    async def next(self) -> JobStanding:
        """Wait until the job stands otherwise than the last time, and return how."""
        while self._standing is None or not self._changed.is_set():
            await self._changed.wait()
        self._changed.clear()
        return self._standing


class JobWatch:
    """The followers of all jobs, and the task that reads for them while there are any."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._followers: defaultdict[int, set[JobFollower]] = defaultdict(set)
        self._to_look = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @contextlib.contextmanager
    def follow(self, job_id: int) -> Iterator[JobFollower]:
        """Yield a follower of a job; what the job is like now comes first."""
        follower = JobFollower()
        self._followers[job_id].add(follower)
        self._to_look.set()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._look())
        try:
            yield follower
        finally:
            self._followers[job_id].discard(follower)
            if not self._followers[job_id]:
                del self._followers[job_id]

    def wake(self) -> None:
        """Look at the followed jobs: something was written."""
        self._to_look.set()

    async def _look(self) -> None:
        """Read how the followed jobs stand, whenever something was written, until nobody follows."""
        while self._followers:
            await self._to_look.wait()
            self._to_look.clear()
            began = time.monotonic()
            try:
                seen = await self._read(lambda tx: standings(tx, set(self._followers)))
            except Exception:
                log.exception("followed jobs could not be read")
                seen = {}
                self._to_look.set()
            for job_id, standing in seen.items():
                for follower in self._followers.get(job_id, ()):
                    follower.tell(standing)
            took = time.monotonic() - began
            await asyncio.sleep(min(max(_LEAST_PAUSE, _SHARE * took), _LONGEST_PAUSE))

    async def close(self) -> None:
        """Stop reading."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)


class ReservationWatch:
    """Events by job: each is set when the answer to a reservation may have changed."""

    def __init__(self) -> None:
        self._events: defaultdict[int, set[asyncio.Event]] = defaultdict(set)

    @contextlib.contextmanager
    def watch(self, job_id: int) -> Iterator[asyncio.Event]:
        """Yield an event that is set whenever something happened to the job."""
        event = asyncio.Event()
        self._events[job_id].add(event)
        try:
            yield event
        finally:
            self._events[job_id].discard(event)
            if not self._events[job_id]:
                del self._events[job_id]

    def wake(self, ids: Iterable[int]) -> None:
        """Set the events of these jobs."""
        if self._events:
            for job_id in ids:
                for event in self._events.get(job_id, ()):
                    event.set()

    def wake_all(self) -> None:
        """Set all events."""
        self.wake(list(self._events))
