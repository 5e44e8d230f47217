import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oarlock.node.sources.files import UNIFIED
from oarlock.node.sources.job import perf
from oarlock.node.sources.job.perf import EVENTS, PerfSource
from tests.monitoring import job_at, needs_cgroups, real_groups

COLMET = (  # noqa: SIM905
    "cpu_cycles instructions cache_references cache_misses branch_instructions branch_misses bus_cycles ref_cpu_cycles "
    "cache_l1d cache_ll cache_dtlb cache_itlb cache_bpu cache_node cache_op_read cache_op_prefetch cache_result_access "
    "cpu_clock task_clock page_faults context_switches cpu_migrations page_faults_min page_faults_maj alignment_faults "
    "emulation_faults dummy bpf_output"
).split()
SOFTWARE = [name for name in COLMET if EVENTS[name][0] == perf.SOFTWARE]
PAGES = 2000
# Touches so many pages, one fault each whatever huge pages the machine gives by itself; sleeps once, so that it is
# switched also where nobody else wants the CPU; and computes for 0.3 s.
BUSY = f"""
import mmap, time
memory = mmap.mmap(-1, {PAGES} * 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
memory.madvise(mmap.MADV_NOHUGEPAGE)
for page in range({PAGES}):
    memory[page * 4096] = 1
time.sleep(0.001)
end = time.process_time() + 0.3
while time.process_time() < end:
    pass
"""


def test_all_28_names_of_colmet_are_known():
    assert len(COLMET) == 28
    assert set(COLMET) <= set(EVENTS)


def test_an_unknown_event_is_refused_with_the_list():
    with pytest.raises(ValueError, match="no event `cycles`; there are cpu_cycles, instructions"):
        PerfSource(["cycles"])


@given(st.integers(0, 2**62), st.integers(0, 2**62), st.integers(1, 2**62))
def test_what_ran_half_the_time_counted_half(value, enabled, running):
    assert perf.scaled(value, enabled, running) == value * enabled / running
    assert perf.scaled(0, 1, 0) is None, "it could not count: nothing is said"
    assert perf.scaled(0, 0, 0) == 0.0, "nothing happened on this CPU"


@pytest.fixture
def groups():
    with real_groups() as made:
        yield made


def run_in(groups, made, program):
    """Run a program inside a group, to its end."""
    child = subprocess.Popen([sys.executable, "-c", f"input()\n{program}"], stdin=-1)
    groups.join(made, child.pid)
    child.communicate(b"\n")
    assert child.returncode == 0


def read(probe):
    values = {}
    probe.read(values, thorough=True)
    return values


def test_a_job_without_a_directory_for_events_is_told_once(tmp_path, caplog):
    source = PerfSource(["task_clock"])
    probes = [source.open(job_at({"cpuacct": tmp_path / number}, number)) for number in ("7", "8")]
    assert [read(probe) for probe in probes] == [{}, {}]
    assert not caplog.records, "the directory may be made a moment later"
    for probe in probes * 2:
        read(probe)
    [record] = caplog.records
    assert record.getMessage() == (
        f"events cannot be counted for {tmp_path}/7: its resource manager makes no directory for it in the perf_event"
        " hierarchy"
    )


@needs_cgroups
def test_real_software_events_are_counted_for_the_job_alone(groups):
    made = groups.make("ada_7", UNIFIED)
    probe = PerfSource(SOFTWARE).open(job_at(made))
    before = read(probe)
    assert set(before) == {perf.metric(name) for name in SOFTWARE}
    assert set(before.values()) == {0.0}
    run_in(groups, made, BUSY)
    values = read(probe)
    probe.close()
    assert values["perf_page_faults_total"] > PAGES
    assert (
        values["perf_page_faults_total"] == values["perf_page_faults_min_total"] + values["perf_page_faults_maj_total"]
    )
    assert 0.3 <= values["perf_task_clock_seconds_total"] < 3
    assert values["perf_context_switches_total"] >= 1
    assert values["perf_dummy_total"] == 0


@needs_cgroups
def test_events_the_machine_does_not_offer_are_left_out_for_all_jobs(groups):
    made = groups.make("ada_7", UNIFIED)
    source = PerfSource(["cache_node", "page_faults", "bus_cycles"])
    probe = source.open(job_at(made))
    offered = list(source.events)
    values = read(probe)
    probe.close()
    assert "page_faults" in offered
    assert set(values) == {perf.metric(event) for event in offered}


@needs_cgroups
def test_counters_are_given_back_at_the_jobs_end(groups):
    made = groups.make("ada_7", UNIFIED)
    before = len(list(Path("/proc/self/fd").iterdir()))
    probe = PerfSource(["page_faults", "task_clock"]).open(job_at(made))
    cpus = len(perf.online_cpus())
    assert len(list(Path("/proc/self/fd").iterdir())) == before + 2 * cpus, "one counter an event a CPU"
    probe.close()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


@needs_cgroups
def test_what_was_opened_before_an_error_is_given_back(groups):
    made = groups.make("ada_7", UNIFIED)
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(OSError, match="Invalid argument"):
        PerfSource(["page_faults"], cpus=[0, 4000]).open(job_at(made))
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_job_without_a_cgroup_for_events_is_not_opened(tmp_path):
    assert read(PerfSource(["page_faults"]).open(job_at({"cpuacct": tmp_path}))) == {}


def test_without_the_right_to_count_it_is_said_once(caplog, tmp_path):
    source = PerfSource(["page_faults"])
    source._refuse(PermissionError(13, "Permission denied"))
    assert source.open(job_at({UNIFIED: tmp_path})) is None
    assert len(caplog.records) == 1
    assert "CAP_PERFMON" in caplog.text


@needs_cgroups
def test_counting_goes_on_after_the_cgroup_is_gone_until_it_is_closed(groups):
    made = groups.make("ada_7", UNIFIED)
    probe = PerfSource(["page_faults"]).open(job_at(made))
    groups.remove("ada_7", UNIFIED)
    assert read(probe) == {"perf_page_faults_total": 0.0}
    probe.close()
