"""What the server and the collector's process say to each other: a length of four bytes, then msgpack."""

import msgspec
from msgspec import Struct

from oarlock.measure.collect.questions import Question
from oarlock.measure.collect.retention import RetentionPolicy
from oarlock.measure.energy.division import BookingKey, EnergyBooking, EnergyRules
from oarlock.measure.remote.target import RemoteTarget

LENGTH = 4
"""Bytes of the length before each message."""

BOOKING_SECONDS = 60.0
"""How often energy is handed to the server. What was not handed over when a collector died is read from the logs."""

SUMMARY_SECONDS = 300.0
"""How often the summaries of jobs that run are handed to the server."""

PROGRESS_SECONDS = 1.0
"""How often the process tells how far it has come, at most."""


class Begin(Struct, frozen=True, tag=True):
    """The first message: where samples go, the database, and how often to look for jobs that are over."""

    root: str
    database: str
    look_seconds: float
    policy: RetentionPolicy
    energy: EnergyRules = EnergyRules()
    booking_seconds: float = BOOKING_SECONDS
    summary_seconds: float = SUMMARY_SECONDS
    remote: RemoteTarget | None = None
    redfish: str = ""
    """The file of the management controllers; empty if there is none."""
    booked: dict[str, int] = {}
    """Up to which millisecond the server has the energy of each node, beyond what the database says."""


class TakenSample(Struct, frozen=True, tag=True):
    """A sample of a node as it came; the number is given back in `Progress`.

    `posted`: it came from an agent; `cluster` is that of the agent.
    """

    number: int
    node: str
    data: bytes
    expected: dict[int, int]  # the attempt of each job; 0 where it is not known
    at: float
    posted: bool = False
    cluster: str = ""


class MissingSamples(Struct, frozen=True, tag=True):
    """Samples that were dropped, or lost with a process."""

    node: str
    jobs: list[int]
    since: float
    until: float
    why: str


class Asked(Struct, frozen=True, tag=True):
    """A question; its number comes back with the answer."""

    number: int
    question: Question


class Answered(Struct, frozen=True, tag=True):
    """An answer in JSON, or the kind, sentence and way out of a refusal."""

    number: int
    content: bytes = b""
    refusal: tuple[str, str, str] | None = None


class Progress(Struct, frozen=True, tag=True):
    """How far the process has come: the last sample that it took, and what it counted since its start.

    `refused` are samples by node that the server could read, and the collector did not take.
    """

    number: int
    counts: dict[str, int]
    trouble: str = ""
    warnings: list[str] = []
    refused: dict[str, int] = {}


class BookedEnergy(Struct, frozen=True, tag=True):
    """Energy that was booked since the last such message, for the server to store."""

    bookings: list[tuple[BookingKey, EnergyBooking]]


class ArchiveShortage(Struct, frozen=True, tag=True):
    """The disk of the measurements is nearly full, since an instant (epoch seconds)."""

    at: int
    description: str


class MeasuredJobs(Struct, frozen=True, tag=True):
    """What samples said of jobs by an instant: msgpack of `MeasuredJob` by number, for the server to store.

    It is decoded where it is stored: of thousands of jobs that takes a while.
    """

    number: int
    at: float
    jobs: bytes


class StoredSummaries(Struct, frozen=True, tag=True):
    """The `MeasuredJobs` of this number are in the database."""

    number: int


ToWorker = Begin | TakenSample | MissingSamples | Asked | StoredSummaries
FromWorker = Answered | Progress | BookedEnergy | ArchiveShortage | MeasuredJobs
_encoder = msgspec.msgpack.Encoder()


def encode(message: ToWorker | FromWorker) -> bytes:
    """Encode a message with its length."""
    body = _encoder.encode(message)
    return len(body).to_bytes(LENGTH, "big") + body
