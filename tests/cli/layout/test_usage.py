"""What jobs used, as people read it."""

import pytest

from oarlock.cli.layout.usage import size, usage_blocks
from oarlock.web.verbs.measurements.usage import UsageView


def lines(**fields):
    view = UsageView(**{"job_id": 42, **fields})
    return usage_blocks([{name: getattr(view, name) for name in view.__struct_fields__}])


def test_every_number_stands_beside_what_it_is_a_part_of():
    assert lines(
        at=5.0, nodes=("n1", "n2"), seconds=600.0, walltime=3600, cpus=16, cpu_seconds=1140.0,
        cpu_seconds_offered=9600.0, memory_own_bytes=3 << 29, memory_cache_bytes=295 << 20,
        memory_own_peak_bytes=2 << 30, memory_peak_bytes=3 << 30, memory_limit_bytes=16 << 30, gpus=2,
        gpu_seconds=1180.0, gpu_busy_seconds=590.0, read_bytes=12 << 20, written_bytes=0, energy_joules=90_000.0,
        energy_methods=("rapl",), energy_coverage=0.9, samples=120, coverage=0.98,
    ) == [
        "Job 42: so far, 0:10:00 on 2 nodes",
        "    CPU                  1.9 of 16 cores, 12 % (0:19:00 of 2:40:00)",
        "    Own memory           1.5 GiB of 16.0 GiB, 9 %",
        "    Own memory, highest  2.0 GiB of 16.0 GiB, 12 %",
        "    Page cache           295.0 MiB of 16.0 GiB, 2 %",
        "    With cache, highest  3.0 GiB of 16.0 GiB, 19 %",
        "    GPUs                 2 GPUs, 50 % busy",
        "    Time                 0:10:00 of 1:00:00, 17 %",
        "    Read                 12.0 MiB, 20.5 KiB/s",
        "    Written              0 B, 0 B/s",
        "    Energy               25.0 Wh (rapl, 90 % of the time)",
        "    Samples              120, 98 % of the time",
    ]  # fmt: skip


def test_what_is_not_known_is_a_dash_and_never_a_zero():
    assert lines(final=True, at=5.0, nodes=("n1",), cpu_seconds=61.4) == [
        "Job 42: at its end on 1 node",
        "    CPU                  0:01:01 of CPU time",
        "    Own memory, mean     -",
        "    Own memory, highest  -",
        "    Page cache, mean     -",
        "    With cache, highest  -",
        "    Time                 -",
        "    Read                 -",
        "    Written              -",
        "    Samples              none",
    ]


def test_a_job_of_less_than_a_second_has_cpu_time_and_no_cores():
    told = lines(final=True, at=5.0, nodes=("n1",), seconds=0.002, cpu_seconds=0.0039, cpu_seconds_offered=0.0039)
    assert told[1] == "    CPU                  0.004 s of CPU time"


def test_memory_without_a_limit_and_jobs_without_a_sample_say_so():
    assert lines(at=5.0, nodes=("n1",), memory_own_bytes=2048)[2] == "    Own memory           2.0 KiB, not limited"
    assert lines() == ["Job 42: not measured yet"]


@pytest.mark.parametrize(
    ("count", "told"), [(None, "-"), (0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1 << 60, "1024.0 PiB")]
)
def test_sizes_have_a_unit_that_makes_them_short(count, told):
    assert size(count) == told
