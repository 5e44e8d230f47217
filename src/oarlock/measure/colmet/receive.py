"""Receiving from Colmet's nodes, in a thread of its own: messages are decoded, checked, translated and handed over.

Nothing is believed: who may send is checked before a message is taken, and a message that is malformed, has unknown
names or numbers, or tells about a host that another one speaks for is refused whole, and counted by its sender.
"""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from oarlock.measure.colmet.messages import UnreadableMessage
from oarlock.measure.colmet.pull import PullSocket, ReceivedMessage
from oarlock.measure.colmet.senders import Senders
from oarlock.measure.colmet.translate import ColmetSample, ColmetTranslator, decode

log = logging.getLogger(__name__)

MOST_BYTES = 8 << 20
"""Bytes of the largest message: a node with 5,000 jobs sends 7 MB."""

_QUEUED = 16  # messages of a sender that wait


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
