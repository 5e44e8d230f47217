"""The messages of Colmet in Rust: maps in MessagePack, in which numbers stand for the names of metrics.

The branch colmet-rust sends `{job: [host, milliseconds, [[backend, [numbers], [values]], …]]}` by a fixed table; its
milliseconds are cut to 32 bits. colmet-rs sends `{job: [host, milliseconds, version, [[job, backend, [numbers as text],
[values]], …]]}`, and the version names the table.
"""

import contextlib
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from oarlock.measure.colmet.messages import ColmetMessage, ColmetRecord, Number, UnreadableMessage, check_host
from oarlock.node.sources.job import perf

MEMORY, CPU, PERFHW = "memory", "cpu", "perfhw"
_OWN = (
    "cache", "rss", "rss_huge", "shmem", "mapped_file", "dirty", "writeback", "swap", "pgpgin", "pgpgout", "pgfault",
    "pgmajfault", "inactive_anon", "active_anon", "inactive_file", "active_file", "unevictable",
)  # fmt: skip
_LIMIT, _LIMIT_WITH_SWAP = "hierarchical_memory_limit", "hierarchical_memsw_limit"
_CPU = ("nr_periods", "nr_throttled", "throttled_time")
EVENTS = tuple(event for event in perf.EVENTS if event not in perf.BEYOND_COLMET)

MEMORY_METRICS = (*_OWN, _LIMIT, _LIMIT_WITH_SWAP, *(f"total_{name}" for name in _OWN))
"""The lines of memory.stat on version 1, in its order."""

_NOT_IN_RUST = {"swap", "total_swap", _LIMIT_WITH_SWAP}

Table = Mapping[int, tuple[str, str]]
"""The backend and the name of each number."""


def _table(first: int, memory: Iterable[str]) -> Table:
    names = [
        *((MEMORY, name) for name in memory),
        *((CPU, name) for name in _CPU),
        *((PERFHW, name) for name in EVENTS),
    ]
    return dict(enumerate(names, first))


RUST_TABLE = _table(1, (name for name in MEMORY_METRICS if name not in _NOT_IN_RUST))
VERSIONS: Mapping[int, Table] = {1: _table(0, MEMORY_METRICS)}
"""The tables of colmet-rs."""

_Plain = dict[int, tuple[str, int, list[tuple[str, list[int], list[int]]]]]
_Versioned = dict[int, tuple[str, int, int, list[tuple[int, str, list[str], list[int]]]]]
_plain = msgspec.msgpack.Decoder(_Plain)
_versioned = msgspec.msgpack.Decoder(_Versioned)
_NO_MAP = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_MAP_BYTES = frozenset({*range(0x80, 0x90), 0xDE, 0xDF})
_MOST_VALUE = 1 << 63
_MOST_JOB = (1 << 53) - 1
_WRAP = 1 << 32
_MOST_MILLISECONDS = 1 << 50
_MOST_DIGITS = 4  # of a metric's number


def is_map(data: bytes) -> bool:
    """Return whether a message begins as a map does."""
    return data[:1] != b"" and data[0] in _MAP_BYTES


def decode_map(data: bytes, now: float) -> ColmetMessage:
    """Decode a message of either kind that arrived now (epoch seconds); raise `UnreadableMessage`."""
    with contextlib.suppress(*_NO_MAP):
        plain = _plain.decode(data)
        return _decode_plain(plain, now)
    try:
        versioned = _versioned.decode(data)
    except _NO_MAP as error:
        raise UnreadableMessage(f"it is not a map of measurements: {str(error)[:120]}") from None
    return _decode_versioned(versioned)


def whole_milliseconds(cut: int, now: float) -> int:
    """Return the instant next to `now` (epoch seconds) of which 32 bits are left; as it is if there are more."""
    if not -_WRAP // 2 <= cut < _WRAP:
        return cut
    arrival = int(now * 1000)
    return arrival + (cut - arrival + _WRAP // 2) % _WRAP - _WRAP // 2


def _decode_plain(message: _Plain, now: float) -> ColmetMessage:
    records = [
        _record(RUST_TABLE, job, whole_milliseconds(at, now), backend, numbers, values)
        for job, (_, at, backends) in message.items()
        for backend, numbers, values in backends
    ]
    return ColmetMessage(_host(host for host, _, _ in message.values()), records)


def _decode_versioned(message: _Versioned) -> ColmetMessage:
    records = []
    for job, (_, at, version, backends) in message.items():
        if version not in VERSIONS:
            raise UnreadableMessage(f"version {version} of colmet-rs' table is unknown; there is {max(VERSIONS)}")
        for of_job, backend, texts, values in backends:
            if of_job != job:
                raise UnreadableMessage(f"values of job {of_job} stand below job {job}")
            records.append(_record(VERSIONS[version], job, at, backend, [_number(text) for text in texts], values))
    return ColmetMessage(_host(host for host, _, _, _ in message.values()), records)


def _record(
    table: Table, job: int, milliseconds: int, backend: str, numbers: Sequence[int], values: Sequence[int]
) -> ColmetRecord:
    if not 0 <= job <= _MOST_JOB or not 0 <= milliseconds <= _MOST_MILLISECONDS:
        raise UnreadableMessage(f"job {job} at {milliseconds} ms is not possible")
    if len(numbers) != len(values) or len(set(numbers)) != len(numbers):
        raise UnreadableMessage(f"{len(values)} values have {len(set(numbers))} different names")
    named: dict[str, Number] = {}
    for number, value in zip(numbers, values, strict=True):
        owner, name = table.get(number, ("", ""))
        if owner != backend.lower():
            raise UnreadableMessage(f"metric {number} is not one of backend {backend[:40]!r}")
        if not -1 <= value < _MOST_VALUE:
            raise UnreadableMessage(f"{name} is {value}")
        if value != -1:
            named[name] = value
    return ColmetRecord(backend.lower(), job, milliseconds / 1000, named)


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS):
        raise UnreadableMessage(f"{text[:40]!r} is not the number of a metric")
    return int(text)


def _host(hosts: Iterable[str]) -> str:
    different = set(hosts)
    if len(different) != 1:
        raise UnreadableMessage(f"it has measurements of {len(different)} hosts")
    return check_host(different.pop())
