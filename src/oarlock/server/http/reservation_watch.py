"""Wakes requests that wait for the scheduler's answer to a reservation, so that none has to poll."""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Iterable, Iterator


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
