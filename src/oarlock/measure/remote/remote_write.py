"""Remote write 1.0: hands samples to an engine that others keep, from a thread with a bounded queue.

To hand a sample over is one append. While the engine is away or slow, samples wait; when too many do, the oldest are
dropped and counted. What the engine cannot take now (429, 5xx, no answer) is sent again, in its order, with growing
pauses; what it refuses is dropped. What is kept here does not depend on any of it.
"""

import contextlib
import http.client
import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping
from importlib.metadata import version
from urllib.parse import SplitResult, urlsplit

from oarlock.measure.batch import JobFacts
from oarlock.measure.collect.collector import LoggedSample
from oarlock.measure.remote.remote_series import RemoteSeries
from oarlock.measure.remote.target import RemoteTarget
from oarlock.node.measure.wire import NODE

log = logging.getLogger(__name__)

MOST_VALUES = 1_000_000
"""Values that may wait for the engine: 50 s of 1,000 nodes with 200 values every 10 s, and about 10 MB."""

MOST_SERIES = 5_000
"""Series in one request."""

_GATHER_SECONDS = 1.0  # what comes meanwhile goes with the same request
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 30.0
_TIMEOUT_SECONDS = 10.0
_LONGEST_ANSWER = 300
_TOO_MANY = 429
_OK = range(200, 300)
_MOST_FACTS = 100_000

FactsOfJobs = Callable[[Collection[int]], Mapping[int, JobFacts]]
"""Looks up jobs; called in the thread of the writer."""


class _Refused(Exception):
    """The engine will never take this request."""


class _NotNow(Exception):
    """The engine did not take this request; `pause` is how long it wants to be left alone, 0 if it does not say."""

    def __init__(self, why: str, pause: float = 0.0) -> None:
        super().__init__(why)
        self.pause = pause


class RemoteWriter:
    """Writes to one engine. `put` is for one thread; the writing is done in another."""

    def __init__(
        self, target: RemoteTarget, look_up: FactsOfJobs, *, most_values: int = MOST_VALUES,
        gather_seconds: float = _GATHER_SECONDS, first_pause: float = _FIRST_PAUSE,
    ) -> None:  # fmt: skip
        self._engine = _Engine(target)
        self._series = RemoteSeries(target.cluster)
        self._look_up, self._facts = look_up, dict[int, JobFacts]()
        self._most_values, self._gather, self._first_pause = most_values, gather_seconds, first_pause
        self._queue: deque[LoggedSample] = deque()
        self._waiting = 0  # values in the queue
        self._lock = threading.Condition()
        self._over = threading.Event()
        self._counts: Counter[str] = Counter()
        self._is_failing = self._has_refused = False
        self._thread = threading.Thread(target=self._run, name="remote-write", daemon=True)
        self._thread.start()

    @property
    def figures(self) -> dict[str, int]:
        """What was written, dropped and refused, in values, how often it was tried again, and what waits."""
        with self._lock:
            waiting = self._waiting
        counts = {f"remote_{name}": self._counts[name] for name in ("written", "dropped", "refused", "retries")}
        return {**counts, "remote_queue": waiting, "remote_failing": int(self._is_failing)}

    def put(self, sample: LoggedSample) -> None:
        """Queue a sample; never waits. If too much waits, the oldest are dropped."""
        with self._lock:
            self._queue.append(sample)
            self._waiting += sample.values
            while self._waiting > self._most_values and self._queue:
                dropped = self._queue.popleft().values
                self._waiting -= dropped
                self._counts["dropped"] += dropped
            self._lock.notify()

    def close(self, seconds: float = 1.0) -> None:
        """Write what waits, as far as the engine takes it within so many seconds, and end the thread."""
        self._over.set()
        with self._lock:
            self._lock.notify()
        self._thread.join(seconds)

    def _run(self) -> None:
        while True:
            with self._lock:
                self._lock.wait_for(lambda: self._queue or self._over.is_set())
                if not self._queue:
                    break
                waiting = self._waiting
            if waiting < MOST_SERIES:
                self._over.wait(self._gather)
            try:
                self._write(*self._request())
            except Exception:  # one sample that cannot be encoded must not end the writing
                log.exception("samples could not be written to the engine")
        self._engine.close()

    def _request(self) -> tuple[list[bytes], int]:
        """Encode the oldest samples, about as many as a request holds; return how many values they had as well."""
        parts: list[bytes] = []
        values = 0
        while len(parts) < MOST_SERIES:
            with self._lock:
                if not self._queue:
                    break
                sample = self._queue.popleft()
                self._waiting -= sample.values
            values += sample.values
            self._learn({subject.job for subject in sample.subjects} - {NODE})
            parts += self._series.encode(sample, self._facts)
        return parts, values

    def _learn(self, jobs: set[int]) -> None:
        missing = jobs - self._facts.keys()
        if not missing:
            return
        if len(self._facts) > _MOST_FACTS:
            self._facts = {}
            missing = jobs
        self._facts |= self._look_up(missing)

    def _write(self, parts: list[bytes], values: int) -> None:
        """Write series until they are taken, refused, or this ends."""
        pause = self._first_pause
        while parts:
            try:
                self._engine.post(parts)
            except _Refused as refused:
                self._counts["refused"] += values
                self._note_refusal(str(refused))
                return
            except _NotNow as problem:
                self._counts["retries"] += 1
                self._note_failure(str(problem))
                if self._over.wait(min(max(pause, problem.pause), _LONGEST_PAUSE)):
                    self._counts["dropped"] += values
                    return
                pause = min(pause * 2, _LONGEST_PAUSE)
            else:
                self._counts["written"] += values
                self._note_success()
                return

    def _note_refusal(self, why: str) -> None:
        """Log the first of the refusals until a request is taken again."""
        if not self._has_refused:
            log.warning("samples were refused by the engine, and dropped", extra={"url": self._engine.url, "why": why})
        self._is_failing, self._has_refused = False, True

    def _note_failure(self, why: str) -> None:
        if not self._is_failing:
            log.warning("the engine takes no samples now; they wait", extra={"url": self._engine.url, "why": why})
        self._is_failing = True

    def _note_success(self) -> None:
        if self._is_failing or self._has_refused:
            log.warning("the engine takes samples again", extra={"url": self._engine.url})
        self._is_failing = self._has_refused = False


class _Engine:
    """The connection to an engine, which is kept between requests."""

    def __init__(self, target: RemoteTarget) -> None:
        self.url = target.url
        self._parts: SplitResult = urlsplit(target.url)
        self._path = (self._parts.path or "/") + (f"?{self._parts.query}" if self._parts.query else "")
        self._connection: http.client.HTTPConnection | None = None
        self._headers = {
            "Content-Encoding": "snappy",
            "Content-Type": "application/x-protobuf",
            "X-Prometheus-Remote-Write-Version": "0.1.0",
            "User-Agent": f"oarlock/{version('oarlock')}",
        }
        if target.token:
            self._headers["Authorization"] = f"Bearer {target.token}"
        if target.tenant:
            self._headers["X-Scope-OrgID"] = target.tenant

    def post(self, parts: list[bytes]) -> None:
        """Send a request; raise `_Refused` or `_NotNow` if it was not taken."""
        import cramjam

        body = bytes(cramjam.snappy.compress_raw(b"".join(parts)))
        try:
            status, retry_after, answer = self._exchange(body)
        except (OSError, http.client.HTTPException) as error:
            raise _NotNow(str(error) or type(error).__name__) from error
        if status in _OK:
            return
        why = f"{status} {answer}".strip()
        if status == _TOO_MANY or status >= http.client.INTERNAL_SERVER_ERROR:
            raise _NotNow(why, float(retry_after) if retry_after.isdecimal() else 0.0)
        raise _Refused(why)

    def _exchange(self, body: bytes) -> tuple[int, str, str]:
        """Return the status, the header `Retry-After` and the beginning of the text of an answer."""
        is_used = self._connection is not None
        try:
            return self._exchange_once(body)
        except (ConnectionError, http.client.RemoteDisconnected):
            self.close()
            if not is_used:
                raise
            return self._exchange_once(body)  # the engine had closed a connection that was idle
        except BaseException:
            self.close()
            raise

    def _exchange_once(self, body: bytes) -> tuple[int, str, str]:
        began = time.monotonic()
        connection = self._connect()
        connection.request("POST", self._path, body, self._headers)
        response = connection.getresponse()
        text = response.read(_LONGEST_ANSWER).decode(errors="replace").strip()
        if response.read(1) or time.monotonic() - began > _TIMEOUT_SECONDS:
            self.close()  # a long answer, or a slow one: the next request begins afresh
        return response.status, response.headers.get("Retry-After", ""), " ".join(text.split())

    def _connect(self) -> http.client.HTTPConnection:
        if self._connection is None:
            https = self._parts.scheme == "https"
            kind = http.client.HTTPSConnection if https else http.client.HTTPConnection
            self._connection = kind(self._parts.hostname or "", self._parts.port, timeout=_TIMEOUT_SECONDS)
        return self._connection

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(OSError):
                connection.close()
