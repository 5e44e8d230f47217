"""An output of the agent: samples to a server by POST, in a thread of its own.

To hand a sample over is to encode it and to append it; sampling never waits for the network. While the server is away
samples wait, up to `MOST_BYTES`; then the oldest go, are counted, and the curves have a gap there.

The server may have to learn names and jobs again, since it was restarted: with every new connection come all tables of
names and all jobs that the samples which follow build on.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import NamedTuple
from urllib.parse import quote

from oarlock.measure.batch import JOB, JobOwner, SampleBatch
from oarlock.measure.naming import Naming
from oarlock.measure.posting import envelope
from oarlock.measure.posting.envelope import AgentNotice, NotedGap, NotedJob
from oarlock.measure.posting.https import ServerConnection, ServerReply
from oarlock.model.errors import OarlockError
from oarlock.node.measure.discovery import Key
from oarlock.node.measure.stream import boot_id
from oarlock.node.measure.wire import SampleDecoder, SampleEncoder

log = logging.getLogger(__name__)

MOST_BYTES = 16 << 20
"""Bytes of samples that wait while the server is away."""

CLOSE_SECONDS = 3.0
_AT_ONCE_BYTES, _AT_ONCE_FRAMES = 1 << 20, 500
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 30.0
_REFUSED_PAUSE = 30.0  # when the token is refused: somebody has to do something
_UNREADABLE = "UnreadableFrames"
_DROPPED = "the agent's buffer was full"


class _Pending(NamedTuple):
    frame: bytes
    at: float
    jobs: frozenset[int]


class _Post(NamedTuple):
    """A body, and what it holds: samples, jobs that are described, and drops up to an instant.

    `fresh`: it builds on nothing that was sent before. `dropped`: how many samples were, when it was made.
    """

    body: bytes
    chunk: list[_Pending]
    described: list[NotedJob]
    reported: float
    fresh: bool
    dropped: int


@dataclass(slots=True)
class _Dropped:
    """Samples that were dropped and are not reported yet."""

    since: float
    until: float
    why: str
    jobs: set[int] = field(default_factory=set)


class SampleSender:
    """Sends samples; `take` is called by the thread that samples, all else happens in the sender's own."""

    name = "send"

    def __init__(
        self,
        connection: ServerConnection,
        node: str,
        period: Callable[[], float],
        *,
        most_bytes: int = MOST_BYTES,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._connection, self._period, self._most_bytes, self._now = connection, period, most_bytes, now
        self._path = f"/api/v1/samples?node={quote(node, safe='')}"
        # In milliseconds since the boot: above every number that an earlier agent of this boot can have used.
        self._encoder = SampleEncoder(boot_id(), first=int(time.monotonic() * 1000))
        self._taken = SampleDecoder()  # has read what the server took, and what was dropped: it knows their tables
        self._lock = threading.Lock()  # guards all below
        self._pending: deque[_Pending] = deque()
        self._bytes = 0
        self._owners: dict[Key, tuple[JobOwner, int]] = {}
        self._numbers: dict[tuple[str, str], int] = {}
        self._jobs: dict[int, NotedJob] = {}
        self._news: set[int] = set()  # jobs that the server does not know, or not like that
        self._next_number = 1
        self._gap: _Dropped | None = None
        self._fresh = True
        self._away = ""
        self.dropped = 0
        self._wake, self._over = threading.Event(), False
        self._thread = threading.Thread(target=self._run, name="send", daemon=True)
        self._thread.start()

    def take(self, batch: SampleBatch, naming: Naming) -> None:  # noqa: ARG002  (names are the server's choice)
        """Encode a sample and queue it; the oldest go where there are too many."""
        with self._lock:
            jobs: dict[int, Mapping[str, float]] = {}
            for subject in batch.subjects:
                if subject.scope == JOB:
                    jobs.setdefault(self._number(subject.key, subject.owner), subject.values)
            frame = self._encoder.encode(batch.at, batch.node, jobs)
            self._pending.append(_Pending(frame, batch.at, frozenset(jobs)))
            self._bytes += len(frame)
            while self._bytes > self._most_bytes and len(self._pending) > 1:
                self._drop(self._pending[0], _DROPPED)
            self._owners = {subject.key: self._owners[subject.key] for subject in batch.subjects
                            if subject.key in self._owners}  # fmt: skip
        self._wake.set()

    def close(self) -> None:
        """Send what waits, as far as the server takes it within some seconds, and end the thread."""
        self._over = True
        self._wake.set()
        self._thread.join(CLOSE_SECONDS)

    def _number(self, key: Key, owner: JobOwner) -> int:
        """Return the number of a job in our samples, and note what is to be sent about it."""
        entry = self._owners.get(key)
        if entry is not None and entry[0] is owner:
            return entry[1]
        number = self._numbers.setdefault((owner.manager, owner.job), self._next_number)
        self._next_number = max(self._next_number, number + 1)
        uid = int(owner.uid) if owner.uid.isdecimal() else None
        job = NotedJob(number, owner.job[:64], owner.manager, owner.user, uid, owner.account[:255], owner.name[:255])
        if self._jobs.get(number) != job:
            self._jobs[number] = job
            self._news.add(number)
        self._owners[key] = owner, number
        return number

    def _drop(self, pending: _Pending, why: str) -> None:
        """Drop the first sample; what is left may build on its tables."""
        self._remove(pending)
        self._fresh = True
        self.dropped += 1
        gap = self._gap = self._gap or _Dropped(pending.at, pending.at, why)
        gap.until = pending.at
        gap.jobs |= pending.jobs
        if self.dropped == 1 or why != _DROPPED:
            log.warning("samples are dropped: %s", why, extra={"dropped": self.dropped})

    def _remove(self, pending: _Pending) -> None:
        """Take a sample off the queue, if it is its first still, and learn its tables."""
        if self._pending and self._pending[0] is pending:
            self._pending.popleft()
            self._bytes -= len(pending.frame)
            self._taken.parse(pending.frame)

    # In the sender's thread.

    def _run(self) -> None:
        try:
            self._send_for_ever()
        finally:
            self._connection.close()

    def _send_for_ever(self) -> None:
        pause = _FIRST_PAUSE
        while not (self._over and not self._pending):
            self._wake.wait()
            self._wake.clear()
            while self._pending:
                wait = self._send(pause)
                if wait:
                    pause = min(pause * 2, _LONGEST_PAUSE)
                    if self._over:
                        return
                    self._sleep(wait)
                else:
                    pause = _FIRST_PAUSE

    def _sleep(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while not self._over and (left := end - time.monotonic()) > 0:
            self._wake.wait(left)
            self._wake.clear()
        self._wake.set()

    def _send(self, pause: float) -> float:
        """Send some of what waits; return after how many seconds to go on."""
        with self._lock:
            post = self._next_post()
        try:
            path = f"{self._path}&sent={self._now():.3f}"
            reply = self._connection.request("POST", path, post.body, envelope.MEDIA_TYPE)
        except (OSError, OarlockError) as error:
            self._complain(str(error) or type(error).__name__)
            return pause
        if reply.status == HTTPStatus.OK:
            self._acknowledge(post)
            return 0.0
        return self._refused(post, reply, pause)

    def _next_post(self) -> _Post:
        """Choose samples to send, and put before them what the server has to know."""
        chunk = self._chunk()
        if not self._connection.is_open:
            self._fresh = True
        frames = [pending.frame for pending in chunk]
        described = [self._jobs[number] for number in sorted(self._jobs if self._fresh else self._news)]
        gap = self._gap
        if self._fresh or described or gap:
            gaps = [NotedGap(gap.since, gap.until, gap.why, sorted(gap.jobs & self._jobs.keys()))] if gap else []
            notice = AgentNotice(fresh=self._fresh, period=self._period(), jobs=described, gaps=gaps)
            frames = [envelope.encode_notice(notice), *([self._taken.tables_frame()] if self._fresh else []), *frames]
        reported = gap.until if gap else 0.0
        return _Post(envelope.pack(frames), chunk, described, reported, self._fresh, self.dropped)

    def _chunk(self) -> list[_Pending]:
        chunk: list[_Pending] = []
        size = 0
        for pending in self._pending:
            if chunk and (size + len(pending.frame) > _AT_ONCE_BYTES or len(chunk) >= _AT_ONCE_FRAMES):
                break
            chunk.append(pending)
            size += len(pending.frame)
        return chunk

    def _acknowledge(self, post: _Post) -> None:
        with self._lock:
            for pending in post.chunk:
                self._remove(pending)
            self._fresh = self.dropped > post.dropped  # what is left may build on what was dropped meanwhile
            # What was learnt of a job meanwhile is still to be told.
            self._news -= {job.number for job in post.described if self._jobs.get(job.number) is job}
            if self._gap is not None and post.reported:  # more may have been dropped meanwhile
                self._gap.since = post.reported
                self._gap = None if self._gap.until <= post.reported else self._gap
            if not self._pending:
                self._forget(post.chunk[-1].jobs)
        if self._away:
            log.warning("the server takes samples again", extra={"dropped": self.dropped})
            self._away = ""

    def _forget(self, present: frozenset[int]) -> None:
        """Forget jobs that are over: nothing that waits names them."""
        self._jobs = {number: job for number, job in self._jobs.items() if number in present}
        self._numbers = {key: number for key, number in self._numbers.items() if number in present}

    def _refused(self, post: _Post, reply: ServerReply, pause: float) -> float:
        """Decide what follows a refusal."""
        if reply.status == HTTPStatus.CONFLICT and not post.fresh:
            self._fresh = True  # it lacks what was said before
            return 0.0
        self._complain(f"{reply.status} {reply.sentence}")
        if reply.kind == _UNREADABLE or reply.status in {HTTPStatus.BAD_REQUEST, HTTPStatus.REQUEST_ENTITY_TOO_LARGE}:
            with self._lock:
                for pending in post.chunk:
                    self._drop(pending, f"the server refused them: {reply.sentence}"[:250])
            return 0.0
        if reply.status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT}:
            return _REFUSED_PAUSE
        return reply.retry or pause

    def _complain(self, why: str) -> None:
        """Log why samples are not taken, once for each reason."""
        if why != self._away:
            log.warning("samples are not taken: %s", why, extra={"waiting": len(self._pending)})
        self._away = why
