"""The records of Colmet in Python: structures of fixed size, one after the other, little endian and unpadded.

A record is a backend's name and a host's name (255 bytes each, filled up with zeros), a job (0 is the node), seconds
since the epoch, and the backend's counters in a fixed order. Versions of Colmet differ in what they append to some
records, and nothing in a message says which one sent it. So a backend has several layouts, newest first, and the one is
right behind which the message ends or another record begins.
"""

import json
import math
import struct
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from oarlock.measure.colmet.messages import ColmetMessage, ColmetRecord, Number, UnreadableMessage, check_host

INVOLVED_JOBS = "involved_jobs"
INVOLVED_BYTES = 8192
NAME_BYTES = 255
SUFFIX = "_default"
_HEAD = struct.Struct(f"<{NAME_BYTES}s{NAME_BYTES}sQQ")
_MOST_RECORDS = 50_000
_MOST_SECONDS = 1 << 40
_MOST_JOB = (1 << 53) - 1
_MOST_VALUE = 1 << 63
_COLDEST = -273


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


TASKSTATS = _words(
    "cpu_count cpu_delay_total blkio_count blkio_delay_total swapin_count swapin_delay_total cpu_run_real_total "
    "cpu_run_virtual_total ac_btime ac_etime ac_utime ac_stime ac_minflt ac_majflt coremem virtmem read_char "
    "write_char read_syscalls write_syscalls read_bytes write_bytes cancelled_write_bytes nvcsw nivcsw ac_utimescaled "
    "ac_stimescaled cpu_scaled_run_real_total freepages_count freepages_delay_total"
)
_MEMINFO = _words(
    "memtotal memfree buffers cached swapcached active inactive unevictable mlocked swaptotal swapfree dirty writeback "
    "anonpages mapped shmem slab sreclaimable sunreclaim kernelstack pagetables nfs_unstable bounce writebacktmp "
    "commitlimit committed_as vmalloctotal vmallocused vmallocchunk hardwarecorrupted anonhugepages hugepages_total "
    "hugepages_free hugepages_rsvd hugepages_surp hugepagesize directmap4k directmap2m"
)
_CORRUPTED = "meminfo_hardwarecorrupted"
LOADS = tuple(f"loadavg_{name}" for name in ("1min", "5min", "15min", "runnable", "total_threads"))
PROCSTATS = (
    "uptime_total",
    "uptime_idle",
    *(f"meminfo_{name}" for name in _MEMINFO),
    *(f"vmstat_{name}" for name in ("pgpgin", "pgpgout", "pswpin", "pswpout", "pgfault", "pgmajfault")),
    *(f"stat_cpu_{name}" for name in _words("user nice system idle iowait irq softirq guest guest_nice")),
    *(f"stat_{name}" for name in ("intr", "ctxt", "processes", "procs_blocked")),
    *LOADS,
)
JOBPROC = _words("rchar wchar syscr syscw read_bytes write_bytes cancelled_write_bytes VmRSS RssShmem VmSize")
_OLD_JOBPROC = JOBPROC[:7]
INFINIBAND = _words("portXmitData portRcvData portXmitPkts portRcvPkts")
LUSTRE = _words("lustre_nb_read lustre_bytes_read lustre_nb_write lustre_bytes_write")
NVIDIA = _words("power temperature utilization-gpu utilization-memory memory-total memory-free memory-used")
IPMI = ("average_power_consumption",)


def counters(count: int) -> tuple[str, ...]:
    """Return the names of counters whose meaning stands in a mapping file."""
    return tuple(f"counter_{number}" for number in range(1, count + 1))


PERFHW, TEMPERATURE, RAPL = counters(5), counters(6), counters(24)


class RecordLayout(NamedTuple):
    """The fields of a record behind its head. Counters are unsigned in some records: where −1 cannot be said."""

    fields: tuple[str, ...]
    form: struct.Struct


def _layout(
    fields: tuple[str, ...], code: str, codes: Mapping[str, str] = MappingProxyType({}), *, jobs: bool = False
) -> RecordLayout:
    form = "".join(codes.get(field, code) for field in fields) + (f"{INVOLVED_BYTES}s" if jobs else "")
    return RecordLayout((*fields, INVOLVED_JOBS) if jobs else fields, struct.Struct(f"<{form}"))


def _of_node(
    fields: tuple[str, ...], code: str, codes: Mapping[str, str] = MappingProxyType({})
) -> tuple[RecordLayout, ...]:
    """Return the layouts of a record of the whole node: newer ones name the jobs that were there."""
    return _layout(fields, code, codes, jobs=True), _layout(fields, code, codes)


_FLOATS = dict.fromkeys(LOADS, "f")
_OLD_PROCSTATS = tuple(name for name in PROCSTATS if name != _CORRUPTED)
LAYOUTS: Mapping[str, tuple[RecordLayout, ...]] = {
    "taskstats": (_layout(TASKSTATS, "Q", {"ac_btime": "I"}),),
    "jobprocstats": (_layout(JOBPROC, "q"), _layout(_OLD_JOBPROC, "q")),
    "perfhwstats": (_layout(PERFHW, "q"),),
    "nvidiastats": (_layout(NVIDIA, "q"),),
    "procstats": (*_of_node(PROCSTATS, "Q", _FLOATS), *_of_node(_OLD_PROCSTATS, "Q", _FLOATS)),
    "infinibandstats": _of_node(INFINIBAND, "q"),
    "lustrestats": _of_node(LUSTRE, "Q"),
    "temperaturestats": _of_node(TEMPERATURE, "q"),
    "RAPLstats": _of_node(RAPL, "q"),
    "ipmipowerstats": _of_node(IPMI, "q"),
}
"""The layouts of each backend, newest first."""

_BY_NAME = {f"{backend}{SUFFIX}".encode().ljust(NAME_BYTES, b"\0"): backend for backend in LAYOUTS}


def is_record(data: bytes) -> bool:
    """Return whether a message begins as a record does."""
    return data[:NAME_BYTES] in _BY_NAME


def decode_records(data: bytes) -> ColmetMessage:
    """Decode a message of records, all of one host; raise `UnreadableMessage`."""
    hosts: set[str] = set()
    records: list[ColmetRecord] = []
    for host, record in _records(data):
        hosts.add(host)
        records.append(record)
        if len(hosts) > 1 or len(records) > _MOST_RECORDS:
            raise UnreadableMessage("it has records of several hosts" if len(hosts) > 1 else "it has too many records")
    return ColmetMessage(hosts.pop(), records)


def _records(data: bytes) -> Iterator[tuple[str, ColmetRecord]]:
    place = 0
    while place < len(data):
        backend = _BY_NAME.get(data[place : place + NAME_BYTES])
        if backend is None or len(data) < place + _HEAD.size:
            raise UnreadableMessage(f"byte {place} of {len(data)} does not begin a record")
        _, host, job, seconds = _HEAD.unpack_from(data, place)
        place += _HEAD.size
        layout = _fitting(backend, data, place)
        if job > _MOST_JOB or seconds > _MOST_SECONDS:
            raise UnreadableMessage(f"job {job} at {seconds} s is not possible")
        values = dict(zip(layout.fields, layout.form.unpack_from(data, place), strict=True))
        jobs = _parse_jobs(values.pop(INVOLVED_JOBS, b""))
        yield _parse_host(host), ColmetRecord(backend, job, float(seconds), _checked(backend, values), jobs)
        place += layout.form.size


def _fitting(backend: str, data: bytes, place: int) -> RecordLayout:
    """Return the layout behind which the message ends, or another record begins."""
    for layout in LAYOUTS[backend]:
        end = place + layout.form.size
        if end == len(data) or data[end : end + NAME_BYTES] in _BY_NAME:
            return layout
    raise UnreadableMessage(f"the record of {backend} at byte {place} has another length")


def _parse_host(field: bytes) -> str:
    try:
        return check_host(field.rstrip(b"\0").decode("ascii"))
    except UnicodeDecodeError:
        raise UnreadableMessage("the host's name is not ASCII") from None


def _checked(backend: str, values: dict[str, Number]) -> dict[str, Number]:
    """Check the numbers of a record; −1 says that there is none."""
    least = _COLDEST if backend == "temperaturestats" else 0
    for name, value in values.items():
        if value != -1 and not (math.isfinite(value) and least <= value < _MOST_VALUE):
            raise UnreadableMessage(f"{name} is {value}")
    return {name: value for name, value in values.items() if value != -1}


def _parse_jobs(field: bytes) -> tuple[int, ...]:
    text = field.rstrip(b"\0")
    if not text:
        return ()
    try:
        jobs = json.loads(text)
    except (ValueError, RecursionError):
        raise UnreadableMessage("its involved_jobs are not JSON") from None
    if not isinstance(jobs, list) or not all(type(job) is int and 0 <= job <= _MOST_JOB for job in jobs):
        raise UnreadableMessage("its involved_jobs are not numbers of jobs")
    return tuple(jobs)
