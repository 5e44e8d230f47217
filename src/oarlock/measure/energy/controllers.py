"""Management controllers read by the collector: one session each, every minute, also of nodes that are idle or asleep.

Each is read in a thread of a pool, so that one that is slow or away holds up no other: whoever was so last time is read
by other threads than the rest, and less and less often.
"""

import heapq
import http.client
import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from oarlock.measure.energy import redfish_file
from oarlock.measure.energy.division import believable
from oarlock.measure.energy.ledger import READING_SECONDS
from oarlock.measure.energy.redfish_file import ControlledNode, ControllerAddress
from oarlock.model.errors import OarlockError
from oarlock.node.sources.host.redfish import RedfishController, RedfishError
from oarlock.node.sources.probe import split

log = logging.getLogger(__name__)

_QUICK_THREADS, _SLOW_THREADS = 16, 4
_SLOW_SECONDS = 5.0
_MOST_DOUBLINGS = 3  # of the pause before one that does not answer is read again
_FAILURES = (OSError, http.client.HTTPException, RedfishError, ValueError, KeyError, TypeError, AttributeError)


class NodePower(NamedTuple):
    """What the controller of a node said, and when (epoch seconds)."""

    node: str
    watts: float
    at: float


class _Controller:
    """A controller, and the nodes that it is of. For one thread at a time, by its lock."""

    def __init__(self, address: ControllerAddress, nodes: list[ControlledNode]) -> None:
        self.address, self.nodes = address, nodes
        self._session: RedfishController | None = None
        self._lock = threading.Lock()
        self.failures = 0
        self.is_slow = False

    def read(self) -> list[NodePower]:
        """Read the power of its nodes."""
        with self._lock:
            return self._read()

    def _read(self) -> list[NodePower]:
        if self._session is None:
            url, user, password, verify, authority, fingerprint = self.address
            self._session = RedfishController(
                url, user, password, verify=verify, authority=authority, fingerprint=fingerprint
            )
        readings = []
        for node in self.nodes:
            values = believable(self._session.read(node.chassis))
            watts = [value for name, value in values.items() if split(name)[0] == "power_watts"]
            if not watts:
                raise RedfishError("it tells no power")
            readings.append(NodePower(node.node, sum(watts), time.time()))
        return readings

    def close(self) -> None:
        """End its session."""
        with self._lock:
            if self._session is not None:
                self._session.close()


class _Lane:
    """Threads that do work as it comes; they are started when they are needed, and end with the process."""

    def __init__(self, name: str, most: int) -> None:
        self._name, self._most = name, most
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []

    def submit(self, work: Callable[[], None]) -> None:
        """Have some work done."""
        self._work.put(work)
        if len(self._threads) < self._most:
            name = f"{self._name}-{len(self._threads)}"
            self._threads.append(threading.Thread(target=self._run, name=name, daemon=True))
            self._threads[-1].start()

    def end(self) -> list[threading.Thread]:
        """Have the threads end when all is done; return them."""
        for _ in self._threads:
            self._work.put(None)
        return self._threads

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            work()


class ControllerPool:
    """Reads controllers every `period` seconds; `take` returns what was read meanwhile."""

    def __init__(self, nodes: Iterable[ControlledNode], *, period: float = READING_SECONDS) -> None:
        by_address: dict[ControllerAddress, list[ControlledNode]] = {}
        for node in nodes:
            by_address.setdefault(node.controller, []).append(node)
        self._controllers = [_Controller(address, group) for address, group in by_address.items()]
        self._period = period
        self._quick, self._slow = _Lane("redfish", _QUICK_THREADS), _Lane("redfish-slow", _SLOW_THREADS)
        self._read: queue.SimpleQueue[NodePower] = queue.SimpleQueue()
        self._is_over = threading.Event()
        now = time.monotonic()
        self._due = [(now, place) for place in range(len(self._controllers))]
        self._lock = threading.Lock()

    @property
    def failing(self) -> int:
        """How many controllers did not answer the last time."""
        return sum(controller.failures > 0 for controller in self._controllers)

    def take(self) -> list[NodePower]:
        """Have those read that are due; return what was read since the last call."""
        now = time.monotonic()
        with self._lock:
            due = []
            while self._due and self._due[0][0] <= now:
                due.append(heapq.heappop(self._due))
        for at, place in due:
            lane = self._slow if self._controllers[place].is_slow else self._quick
            lane.submit(lambda at=at, place=place: self._read_one(at, place))  # type: ignore[misc]
        readings = []
        while not self._read.empty():
            readings.append(self._read.get())
        return readings

    def close(self, *, seconds: float = 0.0) -> None:
        """Read no more, and end the sessions of those that answer; wait so long for it."""
        self._is_over.set()
        for controller in self._controllers:
            (self._slow if controller.is_slow else self._quick).submit(controller.close)
        end = time.monotonic() + seconds
        for thread in (*self._quick.end(), *self._slow.end()):
            thread.join(max(0.0, end - time.monotonic()))

    def _read_one(self, at: float, place: int) -> None:
        if self._is_over.is_set():
            return
        controller, begun = self._controllers[place], time.monotonic()
        try:
            for reading in controller.read():
                self._read.put(reading)
        except _FAILURES as error:
            self._failed(controller, error)
        else:
            controller.failures = 0
        now = time.monotonic()
        controller.is_slow = controller.failures > 0 or now - begun > _SLOW_SECONDS
        pause = self._period * 2 ** min(max(controller.failures - 1, 0), _MOST_DOUBLINGS)
        with self._lock:
            heapq.heappush(self._due, (max(at + pause, now), place))

    def _failed(self, controller: _Controller, error: Exception) -> None:
        controller.failures += 1
        if controller.failures == 1:
            about = {
                "node": controller.nodes[0].node,
                "why": f"{controller.address.url}: {error or type(error).__name__}",
            }
            log.warning("a management controller does not tell its power", extra=about)


class ControllerFile:
    """The controllers of a file, which is read again when it changes; a file that cannot be used changes nothing."""

    def __init__(self, path: Path, *, period: float = READING_SECONDS) -> None:
        self._path, self._period = path, period
        self._seen: tuple[int, ...] | None = None
        self._is_begun = False
        self.pool = ControllerPool((), period=period)

    def take(self) -> list[NodePower]:
        """Return what was read since the last call."""
        self._look()
        return self.pool.take()

    def _look(self) -> None:
        try:
            about = self._path.stat()
            seen = (about.st_mtime_ns, about.st_size, about.st_ino, about.st_mode)
        except OSError:
            seen = None  # reading it says why
        if seen == self._seen and self._is_begun:
            return
        self._seen, self._is_begun = seen, True
        try:
            nodes = redfish_file.read(self._path)
        except OarlockError as refused:
            log.warning("the file of management controllers cannot be used", extra={"why": str(refused)})
            return
        self.pool.close()
        self.pool = ControllerPool(nodes, period=self._period)
