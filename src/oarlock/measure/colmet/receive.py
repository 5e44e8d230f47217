"""Receiving from Colmet's nodes, in a thread of its own: messages are decoded, checked, translated and handed over.

Nothing is believed: who may send is checked before a message is taken, and a message that is malformed, has unknown
names or numbers, or tells about a host that another one speaks for is refused whole, and counted by its sender.

Some of Colmet's counters start again after each sample. They are summed up here, by host and job, for as long as
something comes of them; after a restart a sum begins at zero, which readers take for a reboot: no rate, no spike.
"""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from oarlock.measure.colmet import maps, records
from oarlock.measure.colmet.meanings import MEANINGS, NODE_BACKENDS, ColmetMeaning, perfhw_meaning, readings
from oarlock.measure.colmet.messages import ColmetMessage, ColmetRecord, UnreadableMessage
from oarlock.measure.colmet.pull import PullSocket, ReceivedMessage
from oarlock.measure.colmet.senders import Senders

log = logging.getLogger(__name__)

MOST_BYTES = 8 << 20
"""Bytes of the largest message: a node with 5,000 jobs sends 7 MB."""

_QUEUED = 16  # messages of a sender that wait


_FORGET_SECONDS = 3600.0
_MOST_INSTANTS = 64  # in one message
_MOST_SUMS = 200_000  # jobs on hosts
_ORDER = {name: place for place, name in enumerate(("taskstats", "jobprocstats"))}  # who wins where both tell


def decode(data: bytes, now: float) -> ColmetMessage:
    """Decode a message of any form that arrived now (epoch seconds); raise `UnreadableMessage`."""
    if records.is_record(data):
        return records.decode_records(data)
    if maps.is_map(data):
        return maps.decode_map(data, now)
    raise UnreadableMessage(f"{len(data)} bytes are in no form of Colmet")


class ColmetSample(NamedTuple):
    """What was measured on a host at one instant (epoch seconds, by its clock), by our names."""

    at: float
    node: dict[str, float]
    jobs: dict[int, dict[str, float]]
    on_node: frozenset[int]


class ColmetTranslator:
    """Translates messages of all hosts. `perf_events` are those that hosts with Colmet in Python count, in order."""

    def __init__(self, perf_events: Sequence[str] = ()) -> None:
        named = dict(zip(records.PERFHW, map(perfhw_meaning, perf_events), strict=False))
        self._meanings: Mapping[str, Mapping[str, ColmetMeaning]] = {
            **MEANINGS,
            "perfhwstats": {**MEANINGS["perfhwstats"], **named},
        }
        self._sums: dict[tuple[str, int], dict[str, float]] = {}
        self._seen: dict[tuple[str, int], float] = {}
        self._forget_at = 0.0

    def translate(self, message: ColmetMessage, now: float) -> list[ColmetSample]:
        """Translate a message that arrived now (epoch seconds): a sample for each instant in it, oldest first."""
        instants: dict[float, list[ColmetRecord]] = {}
        for record in message.records:
            check_subject(record)
            instants.setdefault(record.at, []).append(record)
        if len(instants) > _MOST_INSTANTS:
            raise UnreadableMessage(f"it holds {len(instants)} instants")
        self._forget(now)
        return [self._sample(message.host, at, instants[at], now) for at in sorted(instants)]

    def _sample(self, host: str, at: float, measured: Sequence[ColmetRecord], now: float) -> ColmetSample:
        node: dict[str, float] = {}
        jobs: dict[int, dict[str, float]] = {}
        on_node: set[int] = set()
        for record in sorted(measured, key=lambda record: _ORDER.get(record.backend, -1)):
            on_node.update(record.involved_jobs)
            values = node if record.job == 0 else jobs.setdefault(record.job, {})
            measures = readings(record.backend, record.values, self._meanings[record.backend])
            for meaning, value in measures.items():
                if meaning.grows:
                    values[meaning.series] = self._sum(host, record.job, meaning.series, value, now)
                else:
                    values.setdefault(meaning.series, value)
        return ColmetSample(at, node, jobs, frozenset({*on_node, *jobs} - {0}))

    def _sum(self, host: str, job: int, series: str, value: float, now: float) -> float:
        key = host, job
        self._seen[key] = now
        sums = self._sums.setdefault(key, {})
        sums[series] = sums.get(series, 0.0) + value
        return sums[series]

    def _forget(self, now: float) -> None:
        """Forget sums of jobs that nothing comes of any more."""
        if now < self._forget_at and len(self._sums) < _MOST_SUMS:
            return
        self._forget_at = now + _FORGET_SECONDS
        self._seen = {key: seen for key, seen in self._seen.items() if seen > now - _FORGET_SECONDS}
        if len(self._seen) >= _MOST_SUMS:
            self._seen = {}
        self._sums = {key: sums for key, sums in self._sums.items() if key in self._seen}


def check_subject(record: ColmetRecord) -> None:
    """Raise `UnreadableMessage` if a backend of nodes tells about a job, or one of jobs about the node."""
    if (record.job == 0) != (record.backend in NODE_BACKENDS):
        raise UnreadableMessage(f"{record.backend} does not measure job {record.job}")


class ColmetDelivery(NamedTuple):
    """A sample of a node that arrived at an instant (epoch seconds), and who sent it."""

    sender: str
    node: str
    sample: ColmetSample
    at: float


class ColmetReceiver:
    """Receives at an address. `take` is called in the receiver's thread; while it waits, messages wait at senders."""

    def __init__(
        self,
        address: str,
        senders: Senders,
        take: Callable[[ColmetDelivery], None],
        *,
        perf_events: Sequence[str] = (),
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._senders, self._take, self._clock = senders, take, clock
        self._translator = ColmetTranslator(perf_events)
        self._socket = PullSocket(address, senders, most_bytes=MOST_BYTES, queued=_QUEUED)
        self.received: Counter[str] = Counter()
        """Messages that were believed, by node."""
        self.address = self._socket.address
        self._thread = threading.Thread(target=self._run, name="colmet", daemon=True)
        self._thread.start()
        log.info("receiving from Colmet", extra={"address": self.address})

    @property
    def refused(self) -> dict[str, int]:
        """Messages and connections that were refused, by sender: its address, or with CURVE its node."""
        counts: Counter[str] = Counter()
        for sender, count in dict(self._socket.refused).items():
            counts[self._senders.label(sender)] += count
        return dict(counts)

    def close(self) -> None:
        """Stop receiving; wait for a sample that is being taken."""
        self._socket.stop()
        self._thread.join()
        self._socket.close()

    def _run(self) -> None:
        for message in self._socket.messages():
            try:
                self._believe(message, self._clock())
            except UnreadableMessage as error:
                self._socket.refuse(message.sender, str(error))
            except Exception:  # one message that we cannot handle must not silence all nodes
                log.exception("a message of Colmet could not be handled", extra={"sender": message.sender})
                self._socket.refuse(message.sender, "it could not be handled")

    def _believe(self, message: ReceivedMessage, now: float) -> None:
        decoded = decode(message.data, now)
        if not self._senders.may_speak_for(message.sender, decoded.host, now):
            raise UnreadableMessage(f"another sender speaks for {decoded.host}")
        for sample in self._translator.translate(decoded, now):
            self._take(ColmetDelivery(message.sender, decoded.host, sample, now))
        self.received[decoded.host] += 1
