"""Messages of Colmet become samples of ours: our names, base units, and counters that only grow.

Some of Colmet's counters start again after each sample. They are summed up here, by host and job, for as long as
something comes of them; after a restart a sum begins at zero, which readers take for a reboot: no rate, no spike.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from oarlock.measure.colmet import maps, records
from oarlock.measure.colmet.meanings import MEANINGS, NODE_BACKENDS, ColmetMeaning, perfhw_meaning, readings
from oarlock.measure.colmet.messages import ColmetMessage, ColmetRecord, UnreadableMessage

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
            raise UnreadableMessage(f"it tells of {len(instants)} instants")
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
