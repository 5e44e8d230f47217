"""What the collector adds up of jobs: the same however rows are split, and the same after it was killed."""

import os
import struct
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oarlock.measure.collect.collector import Collector
from oarlock.measure.collect.sums import running_sums
from oarlock.measure.collect.sums.accumulate import DAY, NodeAccumulator
from oarlock.measure.collect.sums.row_values import RowValues
from oarlock.model.summary import DayUsage, GpuMeasured, MeasuredJob, NodeMeasured
from oarlock.node.measure.wire import encode_sample
from tests.measure.collect.test_collector import ADA, archive, ended

LONGEST = 30.0
NAN = float("nan")

Sample = dict[str, float]


def accumulate(samples: Sequence[tuple[float, Sample]], longest: float = LONGEST) -> NodeAccumulator:
    accumulator = NodeAccumulator()
    for at, sample in samples:
        feed(accumulator, at, sample, longest)
    return accumulator


def feed(accumulator: NodeAccumulator, at: float, sample: Sample, longest: float = LONGEST) -> None:
    packed = struct.pack(f"<{len(sample)}d", *sample.values())
    accumulator.take(at, RowValues(tuple(sample)), packed, longest=longest)


def gpu(uuid: str, busy: float, memory: float = 0.0) -> Sample:
    labels = f'{{gpu="0",gpu_type="A100",uuid="{uuid}"}}'
    return {
        f"gpu_utilization_ratio{labels}": busy,
        f"gpu_memory_used_bytes{labels}": memory,
        f"gpu_memory_total_bytes{labels}": 80e9,
    }


def cores(*seconds: float) -> Sample:
    return {f'core_cpu_seconds_total{{core="{core}"}}': value for core, value in enumerate(seconds)}


def test_an_hour_of_a_job_in_one_record():
    """Two of four cores are busy for half an hour, then nothing happens but calls."""
    samples = []
    for second in range(10, 3601, 10):
        busy = min(second, 1800)
        samples.append((float(second), {
            "cpu_seconds_total": 2.0 * busy, "cpus": 4.0, **cores(busy, busy, 0.0, 0.0),
            "memory_anonymous_bytes": 300.0 if second <= 1800 else 100.0, "memory_shared_bytes": 50.0,
            "memory_cache_bytes": 90.0, "memory_limit_bytes": 360.0, "memory_peak_bytes": 500.0,
            "memory_limit_hits_total": float(second >= 600), "memory_oom_kills_total": 0.0,
            'threads{state="running"}': 2.0, "processes": 3.0, 'process_threads{exe="solver"}': 9.0,
            "open_files": 5.0, "uses_scratch": float(second == 50), "read_bytes_total": 4.0 * second,
            "written_bytes_total": float(second), "read_calls_total": 7.0 * max(0, second - 1800),
            "write_calls_total": 0.0, **gpu("GPU-1", 0.5 if 600 < second <= 1200 else 0.0, 1e9),
        }))  # fmt: skip
    assert accumulate(samples).measured() == NodeMeasured(
        since=10.0, until=3600.0, samples=360, seconds=3590.0, cores=4.0, cpu_seconds=3600.0, cpu_most_cores=2.0,
        cpu_least_10min_cores=0.0, cpu_idle_seconds=1800.0, cpu_idle_now_seconds=1800.0, core_least_seconds=0.0,
        core_mean_seconds=900.0, core_most_seconds=1800.0, memory_asked_bytes=360.0,
        memory_own_mean_bytes=pytest.approx((1790 * 350 + 10 * 250 + 1790 * 150) / 3590, abs=1e-3),
        memory_own_most_bytes=350.0, memory_cache_mean_bytes=40.0, memory_cache_most_bytes=40.0,
        memory_peak_bytes=500.0, memory_near_samples=180, memory_limit_hits=1.0, oom_kills=0.0,
        runnable_mean_threads=2.0, runnable_most_threads=2.0, processes_most=3.0, threads_most={"solver": 9},
        open_files_mean=5.0, open_files_most=5.0, scratch_samples=1, read_bytes=14400.0, written_bytes=3600.0,
        calls=12600.0, calls_most_10min_per_second=7.0,
        gpus={"GPU-1": GpuMeasured(
            model="A100", seconds=3590.0, busy_mean_ratio=round(300 / 3590, 3), busy_most_ratio=0.5,
            busy_least_10min_ratio=0.0, idle_seconds=2390.0, idle_after_work_seconds=2390.0, idle_now_seconds=2390.0,
            memory_mean_bytes=1e9, memory_most_bytes=1e9, memory_total_bytes=80e9,
        )},
    )  # fmt: skip


def test_what_was_not_measured_stays_absent():
    assert accumulate([(5.0, {"open_files": NAN, "cpus": 2.0})]).measured() == NodeMeasured(
        since=5.0, until=5.0, samples=1, cores=2.0
    )


def test_even_shares_of_cores_are_no_count_of_cores():
    """On version 2 the kernel does not count by core."""
    assert accumulate([(5.0, {"cpu_seconds_total": 4.0, **cores(2.0, 2.0)})]).measured().core_least_seconds is None
    assert accumulate([(5.0, {"cpu_seconds_total": 4.0, **cores(4.0)})]).measured().core_least_seconds == 4.0


def test_counters_go_on_over_a_hole_and_gauges_do_not():
    samples = [
        (at, {"cpu_seconds_total": at, "memory_anonymous_bytes": 8.0, **gpu("g", 0.0)}) for at in (10.0, 20.0, 500.0)
    ]
    measured = accumulate(samples).measured()
    assert (measured.seconds, measured.cpu_seconds, measured.cpu_most_cores) == (10.0, 500.0, 1.0)
    assert (measured.gpus["g"].seconds, measured.gpus["g"].idle_now_seconds) == (10.0, 0.0)


def test_a_counter_that_falls_adds_nothing():
    samples = [(at, {"cpu_seconds_total": used}) for at, used in ((10.0, 8.0), (20.0, 2.0), (30.0, 5.0), (30.0, 99.0))]
    measured = accumulate(samples).measured()
    assert (measured.cpu_seconds, measured.cpu_most_cores, measured.samples) == (11.0, 0.3, 3)


def test_what_is_measured_belongs_to_its_day():
    samples = [
        (DAY + at, {"cpu_seconds_total": 2 * (at + 10), "memory_anonymous_bytes": 5.0, "memory_limit_bytes": 9.0})
        for at in (-10.0, 0.0, 10.0)
    ]
    assert accumulate(samples).days == {
        0: DayUsage(),
        DAY: DayUsage(core_busy_seconds=40.0, memory_asked_byte_seconds=180.0, memory_used_byte_seconds=100.0),
    }


def test_executables_that_come_and_go_take_bounded_room():
    accumulator = accumulate([(float(n), {f'process_threads{{exe="run{n}"}}': float(n)}) for n in range(1, 500)])
    assert len(accumulator.threads) <= 64
    assert accumulator.measured().threads_most == {f"run{n}": n for n in range(499, 491, -1)}


ROWS = st.lists(
    st.tuples(
        st.floats(0.5, 900.0),
        st.fixed_dictionaries(
            {"cpu_seconds_total": st.floats(0, 1e6)},
            optional={
                "cpus": st.sampled_from([1.0, 2.0, 8.0]),
                "memory_anonymous_bytes": st.floats(0, 1e12) | st.just(NAN),
                "memory_limit_bytes": st.floats(1, 1e12),
                "read_calls_total": st.floats(0, 1e9),
                'process_threads{exe="a"}': st.integers(0, 99).map(float),
                'gpu_utilization_ratio{gpu="0",uuid="g"}': st.floats(0, 1),
                'core_cpu_seconds_total{core="0"}': st.floats(0, 1e6),
            },
        ),
    ),
    min_size=1,
    max_size=40,
)


def _instants(rows: Sequence[tuple[float, Sample]]) -> list[tuple[float, Sample]]:
    at, samples = 0.0, []
    for pause, sample in rows:
        at += pause
        samples.append((at, sample))
    return samples


@given(ROWS, st.data())
def test_sums_do_not_depend_on_how_rows_are_split(rows: Any, data: st.DataObject):
    """An accumulator that is stored at any row, read again and fed with the rest says what it would have said."""
    samples = _instants(rows)
    cut = data.draw(st.integers(0, len(samples)))
    first = accumulate(samples[:cut])
    stored = msgspec.msgpack.decode(msgspec.msgpack.encode(first), type=NodeAccumulator)
    for at, sample in samples[cut:]:
        feed(stored, at, sample)
    assert msgspec.msgpack.encode(stored) == msgspec.msgpack.encode(accumulate(samples))


@given(ROWS)
def test_days_add_up_to_the_job(rows: Any):
    accumulator = accumulate(_instants(rows), longest=1000.0)
    assert sum(day.core_busy_seconds for day in accumulator.days.values()) == pytest.approx(accumulator.cpu.total)
    used = sum(day.memory_used_byte_seconds for day in accumulator.days.values())
    assert used == pytest.approx(accumulator.own_byte_seconds)
    assert all(usage.gpu_busy_seconds <= usage.gpu_seconds + 1e-6 for usage in accumulator.days.values())


# The collector.


def take(
    collector: Collector, job: int, second: int, *, node: str = "n1", attempt: int = 1, alone: bool = True
) -> None:
    values = {"cpu_seconds_total": float(second), "cpus": 2.0, "memory_anonymous_bytes": 1000.0 + second}
    of_node = {
        'network_received_bytes_total{interface="eth0"}': 10.0 * second,
        'network_received_bytes_total{interface="lo"}': 1e9 * second,
        'network_transmitted_bytes_total{interface="eth0"}': 3.0 * second,
        **{f'core_cpu_seconds_total{{core="{core}",mode="user"}}': 0.0 for core in range(16)},
    }
    expected = {job: attempt} if alone else {job: attempt, job + 1: 1}
    data = encode_sample(1000.0 + second, of_node, {job: values})
    collector.take(node, data, expected, at=1000.0 + second)


def collector_at(root: Path) -> Collector:
    made = Collector(root)
    made.start()
    return made


def test_a_second_attempt_on_the_same_node_is_counted_beside_the_first(tmp_path):
    collector = collector_at(tmp_path / "samples")
    for second in range(1, 6):
        take(collector, 7, second)
    for second in range(1, 4):
        take(collector, 7, second + 100, attempt=2)
    nodes = collector.sums.measured(7).nodes
    assert {attempt: by_node["n1"].samples for attempt, by_node in nodes.items()} == {"1": 5, "2": 3}
    assert nodes["2"]["n1"].cpu_seconds == 103.0
    again = collector_at(tmp_path / "samples")
    assert {attempt: by_node["n1"].samples for attempt, by_node in again.sums.measured(7).nodes.items()} == {
        "1": 5, "2": 3,
    }  # fmt: skip


def test_traffic_of_a_node_is_a_jobs_while_it_is_alone_there(tmp_path):
    collector = collector_at(tmp_path / "samples")
    for second in range(1, 10):
        take(collector, 7, second, alone=second < 4 or second > 6)
    node = collector.sums.measured(7).nodes["1"]["n1"]
    assert (node.network_received_bytes, node.network_sent_bytes, node.node_cores) == (40.0, 12.0, 16)


def test_cores_of_a_node_are_counted_by_its_cpu_time(tmp_path):
    collector = collector_at(tmp_path / "samples")
    for second in range(0, 61, 10):
        of_node = {'cpu_seconds_total{mode="idle"}': 100 + 7.98 * second, 'cpu_seconds_total{mode="user"}': 9.0}
        collector.take("n1", encode_sample(float(second), of_node, {7: {"cpus": 2.0}}), {7: 1}, at=float(second))
        node = collector.sums.measured(7).nodes["1"]["n1"]
        assert node.node_cores == (8 if second >= 30 else None)


def _without_traffic(measured: MeasuredJob) -> MeasuredJob:
    for by_node in measured.nodes.values():
        for node in by_node.values():
            node.network_received_bytes = node.network_sent_bytes = node.node_cores = None
    return measured


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from(["sample", "other node", "attempt", "store", "kill", "tear"]), max_size=30))
def test_a_collector_that_is_killed_says_what_it_would_have_said(tmp_path_factory: Any, events: list[str]):
    """Stored at any time, killed at any time, with a torn frame at the end of the log: nothing counts twice."""
    root = tmp_path_factory.mktemp("killed")
    killed, spared = collector_at(root / "a"), collector_at(root / "b")
    attempt = 1
    for second, event in enumerate(events, 1):
        match event:
            case "store":
                killed.sums.store()
            case "kill" | "tear":
                path = killed.places.log(7)
                if event == "tear" and path.exists():
                    with path.open("ab") as file:
                        file.write(b"\xa9R\x03torn")
                killed.close()
                killed = collector_at(root / "a")
            case _:
                attempt += event == "attempt"
                for collector in (killed, spared):
                    take(collector, 7, second, node="n2" if event == "other node" else "n1", attempt=attempt)
    first, second_one = killed.sums.measured(7), spared.sums.measured(7)
    killed.close()
    spared.close()
    if second_one is not None:
        assert _without_traffic(first) == _without_traffic(second_one)


def test_a_stored_state_that_is_torn_or_of_another_log_is_not_believed(tmp_path):
    root = tmp_path / "samples"
    collector = collector_at(root)
    for second in range(1, 6):
        take(collector, 7, second)
    collector.sums.store()
    state = root / "summaries.state"
    assert state.stat().st_mode & 0o777 == 0o600
    os.truncate(state, state.stat().st_size // 2)
    assert collector_at(root).sums.measured(7).nodes["1"]["n1"].samples == 5
    collector.sums.store()
    log = collector.places.log(7)
    os.truncate(log, log.stat().st_size // 2)
    assert 0 < collector_at(root).sums.measured(7).nodes["1"]["n1"].samples < 5


def test_names_that_jobs_share_are_in_memory_once_after_a_restart(tmp_path):
    root, jobs = tmp_path / "samples", range(1, 151)
    job = {"cpus": 1.0} | {
        f'process_threads{{exe="a rather long name of a program, number {n}"}}': 1.0 for n in range(200)
    }
    first = collector_at(root)
    for number in jobs:
        first.take("n1", encode_sample(1000.0, {"load1": 1.0}, {number: job}), {number: 1}, at=1000.0)
    first.close()
    tracemalloc.start()
    second = collector_at(root)
    for number in jobs:
        second.take("n1", encode_sample(1001.0, {"load1": 1.0}, {number: job}), {number: 1}, at=1001.0)
    size = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    second.close()
    assert second.sums.measured(150).nodes["1"]["n1"].samples == 2
    assert size < 150 * 12_000  # the names alone take 20 KB


def test_what_many_logs_say_is_stored_as_soon_as_it_was_read_again(tmp_path, monkeypatch):
    monkeypatch.setattr(running_sums, "_MUCH", 0)
    root = tmp_path / "samples"
    collector = collector_at(root)
    for second in range(1, 6):
        take(collector, 7, second)
    collector.close()
    collector_at(root).close()  # it lives no longer
    read = []
    monkeypatch.setattr(NodeAccumulator, "take", lambda *row, **_: read.append(row))
    again = collector_at(root)
    assert (again.sums.measured(7).nodes["1"]["n1"].samples, read) == (5, [])
    again.close()


def test_only_what_changed_is_handed_over_and_what_is_over_is_forgotten(tmp_path):
    collector = collector_at(tmp_path / "samples")
    for job in (7, ADA.job):
        take(collector, job, 1)
    assert [list(collector.sums.hand_over()) for _ in range(2)] == [[7, ADA.job], []]
    take(collector, 7, 2)
    assert list(collector.sums.hand_over()) == [7]
    assert archive(collector, ADA) == [ADA.job]
    assert collector.sums.measured(ADA.job) is None


def test_a_log_stays_until_the_summary_is_stored(tmp_path):
    collector = collector_at(tmp_path / "samples")
    take(collector, ADA.job, 1)
    for _ in range(3):
        assert collector.archive_ended(ended(ADA), lambda _: []) == []
    assert collector.archive_ended(ended(ADA), lambda jobs: jobs) == [ADA.job]


def test_cpu_time_is_added_up_by_executable_over_a_restart_of_its_count():
    solver, shell = 'process_cpu_seconds_total{exe="solver"}', 'process_cpu_seconds_total{exe="sh"}'
    seen = [(10.0, {solver: 5.0, shell: 0.1}), (20.0, {solver: 25.0, shell: 0.1}), (30.0, {solver: 3.0, shell: NAN})]
    assert accumulate(seen).measured().executable_cpu_seconds == {"solver": 25.0, "sh": 0.1}
    assert accumulate([*seen, (40.0, {solver: 7.0})]).measured().executable_cpu_seconds == {"solver": 29.0, "sh": 0.1}
