import os
import signal
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oarlock.node.sources.files import UNIFIED, WordPositions, cpu_list, limit
from oarlock.node.sources.job import cpu
from oarlock.node.sources.job.cpu import CpuSource
from oarlock.node.sources.job.memory import MemorySource
from tests.monitoring import cases, job_at, needs_cgroups, real_groups, recorded

V1 = ("cpuacct", "cpu", "cpuset", "memory")


def read_all(sources, job):
    """Open a job with sources, read it once, close it."""
    values = {}
    for source in sources:
        probe = source.open(job)
        if probe:
            probe.beat()
            probe.read(values, thorough=True)
            probe.read_costly(values)
            probe.close()
    return values


def read_tree(folder, files, version):
    recorded(folder, files)
    directories = (
        {UNIFIED: folder} if version == 2 else {name: folder / name for name in V1 if (folder / name).is_dir()}
    )
    return read_all([CpuSource(user_hz=100), MemorySource()], job_at(directories))


def in_the_words_of_peers(values):
    """Give our values under the names that recorded cases use."""
    cores = {key.split('"')[1]: round(value * 1e9) for key, value in values.items() if key.startswith("core_")}
    nanoseconds = {name: round(values[f"cpu_{name}seconds_total"] * 1e9)
                   for name in ("", "user_", "system_") if f"cpu_{name}seconds_total" in values}  # fmt: skip
    usec = {name.rstrip("_") or "usage": value // 1000 for name, value in nanoseconds.items()}
    anon, file = values.get("memory_anonymous_bytes"), values.get("memory_cache_bytes")
    return {
        "cpu_total_seconds": values.get("cpu_seconds_total"), "cpu_user_seconds": values.get("cpu_user_seconds_total"),
        "cpu_system_seconds": values.get("cpu_system_seconds_total"), "cpus": values.get("cpus"),
        "memory_rss_bytes": anon, "memory_cache_bytes": file, "memory_used_bytes": values.get("memory_usage_bytes"),
        "memory_limit_bytes": values.get("memory_limit_bytes"),
        "memsw_limited": "memory_swap_limit_bytes" in values or "memory_with_swap_limit_bytes" in values,
        "slurm_job_core_usage_total": cores, "sum_ns": sum(cores.values()),
        "cpu_total_ns": nanoseconds.get(""), "cpu_usage_ns": nanoseconds.get(""),
        "cpu_user_ns": nanoseconds.get("user_"), "cpu_system_ns": nanoseconds.get("system_"),
        "cgroup_memory_anonymous": anon, "cgroup_memory_file": file, "memory_usage": values.get("memory_usage_bytes"),
        "cgroup_memory_kernel_stack": values.get("memory_kernel_stack_bytes"),
        "cgroup_memory_pagetables": values.get("memory_page_tables_bytes"),
        "memory_anon_plus_file_bytes": None if anon is None else anon + file, "cpu_usec": usec,
        "anon": anon, "file": file, "kernel_stack": values.get("memory_kernel_stack_bytes"),
        "pagetables": values.get("memory_page_tables_bytes"),
        "slab_reclaimable": values.get("memory_slab_reclaimable_bytes"), "pswpin": values.get("swap_in_pages_total"),
        "pswpout": values.get("swap_out_pages_total"), "memory_current": values.get("memory_usage_bytes"),
        "usage_usec": usec.get("usage"), "nr_periods": values.get("cpu_periods_total"),
        "nr_bursts": values.get("cpu_burst_periods_total"), "nr_throttled": values.get("cpu_throttled_periods_total"),
        "cpu": nanoseconds or None, "memory_stat": anon, "error": None,
    }  # fmt: skip


NOT_READ_HERE = {"job_id", "user_id"}  # of the path, see the layouts


@pytest.mark.parametrize("case", [*cases("job_v1"), *cases("job_v2")])
def test_a_recorded_job_reads_as_its_peer_read_it(case, tmp_path):
    values = read_tree(tmp_path, case["input"]["files"], 2 if case["kind"] == "job_v2" else 1)
    expected = {name: value for name, value in case["expected"].items() if name not in NOT_READ_HERE}
    said = in_the_words_of_peers(values)
    assert {name: said[name] for name in expected} == expected


def test_the_lines_of_version_1_that_count_children_are_taken(tmp_path):
    values = read_tree(tmp_path, {"memory/memory.stat": "cache 1\nrss 2\ntotal_cache 30\ntotal_rss 40\n"}, 1)
    assert values == {"memory_cache_bytes": 30, "memory_anonymous_bytes": 40}


def test_user_and_system_time_are_those_of_the_ticks(tmp_path):
    files = {
        "cpuacct/cpuacct.usage": "3000000000\n", "cpuacct/cpuacct.usage_user": "2100000000\n",
        "cpuacct/cpuacct.usage_sys": "1000000000\n", "cpuacct/cpuacct.stat": "user 200\nsystem 100\n",
    }  # fmt: skip
    assert read_tree(tmp_path, files, 1) == {
        "cpu_seconds_total": 3.0,
        "cpu_user_seconds_total": 2.0,
        "cpu_system_seconds_total": 1.0,
    }


@needs_cgroups
def test_user_and_system_time_of_a_real_job_add_up_to_its_total():
    work = "import os, time\nend = time.process_time() + 0.5\nwhile time.process_time() < end: os.getppid()"
    with real_groups() as groups:
        made = groups.make("oarlock/n1/ada_7", "cpuacct")
        # It stops itself, so that it joins the group before it does anything.
        worker = subprocess.Popen(
            [sys.executable, "-c", f"import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)\n{work}"]
        )
        os.waitpid(worker.pid, os.WUNTRACED)
        groups.join(made, worker.pid)
        worker.send_signal(signal.SIGCONT)
        worker.wait()
        values = read_all([CpuSource()], job_at({"cpuacct": made["cpuacct"]}))
    parts = values["cpu_user_seconds_total"] + values["cpu_system_seconds_total"]
    assert values["cpu_seconds_total"] > 0.4
    # Each of the two is cut to a whole tick.
    assert parts == pytest.approx(values["cpu_seconds_total"], abs=2 / os.sysconf("SC_CLK_TCK"))


def test_no_limit_is_no_series(tmp_path):
    unlimited = {
        "memory/memory.limit_in_bytes": "9223372036854771712\n",
        "memory/memory.memsw.limit_in_bytes": "9223372036854771712\n",
        "memory/memory.failcnt": "3\n",
    }
    assert read_tree(tmp_path / "1", unlimited, 1) == {"memory_limit_hits_total": 3}
    assert read_tree(tmp_path / "2", {"memory.max": "max\n", "memory.swap.max": "max\n"}, 2) == {}


@pytest.mark.parametrize("text", [b"9" * 30, b"18446744073709551616\n"])
def test_a_limit_of_more_than_64_bits_is_refused(text):
    with pytest.raises(ValueError, match="neither a whole number of 64 bits"):
        limit(text)


def test_memory_and_swap_of_version_1_are_measured_together(tmp_path):
    files = {"memory/memory.usage_in_bytes": "100\n", "memory/memory.memsw.limit_in_bytes": "500\n",
             "memory/memory.memsw.usage_in_bytes": "130\n", "memory/memory.stat": "total_swap 30\n"}  # fmt: skip
    expected = {"memory_usage_bytes": 100, "memory_swap_bytes": 30, "memory_with_swap_bytes": 130,
                "memory_with_swap_limit_bytes": 500}  # fmt: skip
    assert read_tree(tmp_path, files, 1) == expected


@needs_cgroups
def test_memory_and_swap_are_the_memory_while_nothing_is_on_swap():
    with real_groups() as groups:
        made = groups.make("oarlock/n1/ada_7", "memory")
        if not (made["memory"] / "memory.memsw.usage_in_bytes").exists():
            pytest.skip("this kernel does not count swap")
        values = read_all([MemorySource()], job_at({"memory": made["memory"]}))
    assert values["memory_with_swap_bytes"] == values["memory_usage_bytes"]


def test_version_2_gives_every_allocated_core_an_even_share(tmp_path):
    files = {"cpu.stat": "usage_usec 4000000\n", "cpuset.cpus.effective": "2,5\n"}
    assert read_tree(tmp_path, files, 2) == {
        "cpu_seconds_total": 4.0,
        "cpus": 2,
        'core_cpu_seconds_total{core="2"}': 2.0,
        'core_cpu_seconds_total{core="5"}': 2.0,
    }


def test_oom_kills_and_limit_hits_of_version_2_are_told_apart(tmp_path):
    files = {"memory.events": "low 0\nhigh 0\nmax 5\noom 2\noom_kill 1\noom_group_kill 0\n"}
    assert read_tree(tmp_path, files, 2) == {
        "memory_limit_hits_total": 5,
        "memory_oom_events_total": 2,
        "memory_oom_kills_total": 1,
    }


def test_throttled_time_is_in_seconds_whatever_the_version():
    assert cpu.throttling(b"nr_periods 9\nnr_throttled 4\nthrottled_time 2500000000\n") == {
        "cpu_periods_total": 9,
        "cpu_throttled_periods_total": 4,
        "cpu_throttled_seconds_total": 2.5,
    }
    assert (
        cpu.throttling(b"nr_periods 9\nnr_throttled 4\nthrottled_usec 2500000\n")["cpu_throttled_seconds_total"] == 2.5
    )


@pytest.mark.parametrize("case", cases("cpu_list"))
def test_lists_of_cpus_are_read(case):
    text = case["input"]["text"].encode()
    if "error" in case["expected"]:
        with pytest.raises(ValueError, match="not a CPU"):
            cpu_list(text)
    else:
        assert cpu_list(text) == case["expected"]["cpus"]


@pytest.mark.parametrize("case", cases("u64_or_max"))
def test_limits_are_numbers_or_none(case):
    text, expected = case["input"]["text"].encode(), case["expected"]
    if "error" in expected:
        with pytest.raises(ValueError, match="neither a whole number of 64 bits"):
            limit(text)
    else:
        assert limit(text) == (None if expected["value"] == "unlimited" else expected["value"])


@given(st.dictionaries(st.sampled_from([b"anon", b"file", b"shmem", b"pgfault", b"other", b"more"]), st.integers(0)))
def test_picking_by_position_finds_what_a_dictionary_finds(lines):
    wanted = {b"anon": "a", b"file": "f", b"shmem": "s"}
    positions = WordPositions(wanted)
    positions.pick(b"file 1\nanon 2\n".split(), {})  # another order was learnt before
    text, values = b"".join(b"%s %d\n" % line for line in lines.items()), {}
    positions.pick(text.split(), values)
    assert values == {wanted[word]: value for word, value in lines.items() if word in wanted}
