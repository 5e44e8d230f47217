"""What Colmet's metrics are called here, and how many of its units make one of ours.

Read one way it translates what Colmet's nodes send, read the other way it fills Colmet's tables. What has no name in
our catalogue is kept under Colmet's own, behind `colmet_`, so that nothing is lost.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

from oarlock.measure.colmet import maps, records
from oarlock.node.sources.host import machine
from oarlock.node.sources.job import perf
from oarlock.node.sources.probe import series

_NANO, _MICRO, _KIB, _MIB, _PERCENT = 1e-9, 1e-6, 1024.0, 1024.0**2, 0.01
_TICK = 0.01  # USER_HZ is 100 on every machine that Colmet runs on
_UNLIMITED = 1 << 62  # version 1 writes a limit that is not set as almost 2^63


class ColmetMeaning(NamedTuple):
    """Our series for a metric of Colmet; its values times `unit` are ours.

    Where Colmet sends what was added since its last sample, `grows` says so: ours is the sum.
    """

    series: str
    unit: float = 1.0
    grows: bool = False


RAPL_DOMAINS = ("package", "core", "dram")
SOCKETS = len(records.RAPL) // (2 * len(RAPL_DOMAINS))


def rapl_series(place: int) -> str:
    """Return our series for the energy of a pair of columns: for each socket its package, core and dram."""
    socket, domain = divmod(place, len(RAPL_DOMAINS))
    zone = f"colmet:{socket}:{RAPL_DOMAINS[domain]}"
    return series("rapl_energy_joules_total", zone=zone, domain=RAPL_DOMAINS[domain], socket=str(socket))


def zone_series(number: int) -> str:
    """Return our series for a thermal zone; what kind it is stands in a file on the node alone."""
    return series("temperature_celsius", chip=f"thermal_zone{number}", sensor=f"thermal_zone{number}")


_TASKSTATS = {
    "cpu_run_virtual_total": ColmetMeaning("cpu_seconds_total", _NANO),
    "ac_utime": ColmetMeaning("cpu_user_seconds_total", _MICRO),
    "ac_stime": ColmetMeaning("cpu_system_seconds_total", _MICRO),
    "ac_majflt": ColmetMeaning("major_page_faults_total"),
    "read_char": ColmetMeaning("read_characters_bytes_total"),
    "write_char": ColmetMeaning("written_characters_bytes_total"),
    "read_syscalls": ColmetMeaning("read_calls_total"),
    "write_syscalls": ColmetMeaning("write_calls_total"),
    "read_bytes": ColmetMeaning("read_bytes_total"),
    "write_bytes": ColmetMeaning("written_bytes_total"),
    "cpu_delay_total": ColmetMeaning("colmet_cpu_delay_seconds_total", _NANO),
    "blkio_delay_total": ColmetMeaning("colmet_blkio_delay_seconds_total", _NANO),
    "swapin_delay_total": ColmetMeaning("colmet_swapin_delay_seconds_total", _NANO),
    "freepages_delay_total": ColmetMeaning("colmet_freepages_delay_seconds_total", _NANO),
    "cpu_run_real_total": ColmetMeaning("colmet_cpu_run_real_seconds_total", _NANO),
    "cpu_scaled_run_real_total": ColmetMeaning("colmet_cpu_scaled_run_real_seconds_total", _NANO),
    "ac_utimescaled": ColmetMeaning("colmet_cpu_user_scaled_seconds_total", _MICRO),
    "ac_stimescaled": ColmetMeaning("colmet_cpu_system_scaled_seconds_total", _MICRO),
    "ac_btime": ColmetMeaning("colmet_begin_seconds"),
    "ac_etime": ColmetMeaning("colmet_elapsed_seconds", _MICRO),
    "coremem": ColmetMeaning("colmet_coremem_byte_seconds_total", _MIB * _MICRO),
    "virtmem": ColmetMeaning("colmet_virtmem_byte_seconds_total", _MIB * _MICRO),
    "cancelled_write_bytes": ColmetMeaning("colmet_cancelled_write_bytes_total"),
}
_JOBPROC = {
    "rchar": ColmetMeaning("read_characters_bytes_total"),
    "wchar": ColmetMeaning("written_characters_bytes_total"),
    "syscr": ColmetMeaning("read_calls_total"),
    "syscw": ColmetMeaning("write_calls_total"),
    "read_bytes": ColmetMeaning("read_bytes_total"),
    "write_bytes": ColmetMeaning("written_bytes_total"),
    "cancelled_write_bytes": ColmetMeaning("colmet_cancelled_write_bytes_total"),
    "VmRSS": ColmetMeaning("resident_bytes", _KIB),
    "RssShmem": ColmetMeaning("colmet_resident_shared_bytes", _KIB),
    "VmSize": ColmetMeaning("colmet_virtual_bytes", _KIB),
}
_NVIDIA = {  # sums over all GPUs of the job, so they are not those of one GPU
    "power": ColmetMeaning("colmet_gpu_power_watts"),
    "temperature": ColmetMeaning("colmet_gpu_temperature_celsius"),
    "utilization-gpu": ColmetMeaning("colmet_gpu_utilization_ratio", _PERCENT),
    "utilization-memory": ColmetMeaning("colmet_gpu_memory_utilization_ratio", _PERCENT),
    "memory-total": ColmetMeaning("colmet_gpu_memory_total_bytes", _MIB),
    "memory-free": ColmetMeaning("colmet_gpu_memory_free_bytes", _MIB),
    "memory-used": ColmetMeaning("colmet_gpu_memory_used_bytes", _MIB),
}
_MEMORY = {
    "total_rss": ColmetMeaning("memory_anonymous_bytes"),
    "total_cache": ColmetMeaning("memory_cache_bytes"),
    "total_shmem": ColmetMeaning("memory_shared_bytes"),
    "total_rss_huge": ColmetMeaning("memory_huge_bytes"),
    "total_mapped_file": ColmetMeaning("memory_mapped_bytes"),
    "total_active_file": ColmetMeaning("memory_active_file_bytes"),
    "total_inactive_file": ColmetMeaning("memory_inactive_file_bytes"),
    "total_unevictable": ColmetMeaning("memory_unevictable_bytes"),
    "total_swap": ColmetMeaning("memory_swap_bytes"),
    "total_pgfault": ColmetMeaning("page_faults_total"),
    "total_pgmajfault": ColmetMeaning("major_page_faults_total"),
    "hierarchical_memory_limit": ColmetMeaning("memory_limit_bytes"),
    "hierarchical_memsw_limit": ColmetMeaning("memory_with_swap_limit_bytes"),
}
_CPU = {
    "nr_periods": ColmetMeaning("cpu_periods_total"),
    "nr_throttled": ColmetMeaning("cpu_throttled_periods_total"),
    "throttled_time": ColmetMeaning("cpu_throttled_seconds_total", _NANO),
}
_VMSTAT = {
    "pgpgin": ColmetMeaning("page_in_bytes_total", _KIB),
    "pgpgout": ColmetMeaning("page_out_bytes_total", _KIB),
    "pswpin": ColmetMeaning("swap_in_pages_total"),
    "pswpout": ColmetMeaning("swap_out_pages_total"),
    "pgfault": ColmetMeaning("page_faults_total"),
    "pgmajfault": ColmetMeaning("major_page_faults_total"),
}
# Colmet reads one column too far to the left: its guest is the time that was stolen, its guest_nice that of guests.
_MODES = {**{mode: mode for mode in machine.MODES[:7]}, "guest": "steal", "guest_nice": "guest"}
_KEPT_MEMINFO = {key.lower(): key for key in machine.MEMINFO}


def _meminfo(name: str) -> ColmetMeaning:
    if name in _KEPT_MEMINFO:
        return ColmetMeaning(machine.meminfo_metric(_KEPT_MEMINFO[name]), _KIB)
    if name.startswith("hugepages_"):
        return ColmetMeaning(f"colmet_meminfo_{name.removesuffix('_total')}_pages")
    return ColmetMeaning(f"colmet_meminfo_{name}_bytes", _KIB)


def _procstats() -> dict[str, ColmetMeaning]:
    meanings = {
        "uptime_total": ColmetMeaning("uptime_seconds"),
        "uptime_idle": ColmetMeaning("idle_seconds_total"),
        "stat_intr": ColmetMeaning("interrupts_total"),
        "stat_ctxt": ColmetMeaning("context_switches_total"),
        "stat_processes": ColmetMeaning("forks_total"),
        "stat_procs_blocked": ColmetMeaning("processes_blocked"),
        "loadavg_1min": ColmetMeaning("load_1min"),
        "loadavg_5min": ColmetMeaning("load_5min"),
        "loadavg_15min": ColmetMeaning("load_15min"),
        "loadavg_runnable": ColmetMeaning("threads_runnable"),
        "loadavg_total_threads": ColmetMeaning("threads"),
    }
    for name in records.PROCSTATS:
        kind, _, rest = name.partition("_")
        if kind == "meminfo":
            meanings[name] = _meminfo(rest)
        elif kind == "vmstat":
            meanings[name] = _VMSTAT[rest]
        elif name.startswith("stat_cpu_"):
            mode = _MODES[name.removeprefix("stat_cpu_")]
            meanings[name] = ColmetMeaning(series("cpu_seconds_total", mode=mode), _TICK)
    return meanings


_INFINIBAND = {
    "portXmitData": ColmetMeaning("infiniband_transmitted_bytes_total"),
    "portRcvData": ColmetMeaning("infiniband_received_bytes_total"),
    "portXmitPkts": ColmetMeaning("infiniband_transmitted_packets_total"),
    "portRcvPkts": ColmetMeaning("infiniband_received_packets_total"),
}
_LUSTRE = {
    "lustre_nb_read": ColmetMeaning("lustre_reads_total"),
    "lustre_bytes_read": ColmetMeaning("lustre_read_bytes_total"),
    "lustre_nb_write": ColmetMeaning("lustre_writes_total"),
    "lustre_bytes_write": ColmetMeaning("lustre_written_bytes_total"),
}


def _other_memory(name: str) -> ColmetMeaning:
    unit = "total" if "pgpg" in name or "pgfault" in name or "pgmajfault" in name else "bytes"
    return ColmetMeaning(f"colmet_memory_{name}_{unit}")


def perfhw_meaning(event: str) -> ColmetMeaning:
    """Return what an event is called here; Colmet starts its counters again after each sample."""
    return ColmetMeaning(perf.metric(event), _NANO if event in perf.CLOCKS else 1.0, grows=True)


MEANINGS: Mapping[str, Mapping[str, ColmetMeaning]] = {
    "taskstats": {name: _TASKSTATS.get(name, ColmetMeaning(f"colmet_{name}_total")) for name in records.TASKSTATS},
    "jobprocstats": _JOBPROC,
    "nvidiastats": _NVIDIA,
    "perfhwstats": {
        name: ColmetMeaning(f"colmet_perfhw_{name}_total", grows=True) for name in records.PERFHW
    },  # an event's name is in a file on the node alone
    maps.MEMORY: {name: _MEMORY.get(name) or _other_memory(name) for name in maps.MEMORY_METRICS},
    maps.CPU: _CPU,
    maps.PERFHW: {event: perfhw_meaning(event) for event in maps.EVENTS},
    "procstats": _procstats(),
    "infinibandstats": _INFINIBAND,
    "lustrestats": _LUSTRE,
    "temperaturestats": {name: ColmetMeaning(zone_series(place)) for place, name in enumerate(records.TEMPERATURE)},
    "RAPLstats": {
        name: ColmetMeaning(rapl_series(place // 2), _MICRO, grows=True)
        for place, name in enumerate(records.RAPL)
        if place % 2 == 0
    },  # behind each energy stands the range of its counter
    "ipmipowerstats": {"average_power_consumption": ColmetMeaning(series("power_watts", meter="ipmi"))},
}
"""What each backend's metrics mean."""

NODE_BACKENDS = frozenset(
    {"procstats", "infinibandstats", "lustrestats", "temperaturestats", "RAPLstats", "ipmipowerstats"}
)
"""The backends that measure the whole node; the others measure jobs."""

_SUPPORTED_RANGE = re.compile("counter_([0-9]+)")


def readings(
    backend: str, values: Mapping[str, float], meanings: Mapping[str, ColmetMeaning]
) -> dict[ColmetMeaning, float]:
    """Return what was measured, in our units. Limits that are not set and counters that do not exist are left out."""
    values_here: dict[ColmetMeaning, float] = {}
    for name, value in values.items():
        meaning = meanings.get(name)
        if meaning is None or (backend == "RAPLstats" and not _is_supported(name, values)):
            continue
        if name.startswith("hierarchical_") and value >= _UNLIMITED:
            continue
        values_here[meaning] = value * meaning.unit
    return values_here


def _is_supported(name: str, values: Mapping[str, float]) -> bool:
    """Return whether a processor has a RAPL counter: the range of one that it lacks is 0."""
    match = _SUPPORTED_RANGE.fullmatch(name)
    return match is not None and values.get(f"counter_{int(match[1]) + 1}", 0) > 0
