"""What the server keeps of samples: the last of each node, of the jobs that are there."""

from oarlock.measure.batch import JobFacts
from oarlock.measure.live import LiveUsage, MeasuredUsage
from oarlock.node.measure.wire import encode_sample

WHO = {7: JobFacts("root", "physics", "run"), 8: JobFacts("root", "maths", "")}
A, B = (f'block_read_bytes_total{{device="{disk}"}}' for disk in "ab")


def live(**nodes: dict[int, dict[str, float]]) -> LiveUsage:
    made = LiveUsage(10, "alpha")
    for node, jobs in nodes.items():
        made.take(node, encode_sample(1.0, {"load1": 0.5}, jobs), jobs.keys(), at=100.0)
    made.learn(WHO)
    return made


def page(of: LiveUsage, now: float = 100.0) -> list[str]:
    return of.page(of.batches(now=now)).decode().splitlines()


def lines(of: LiveUsage, name: str) -> list[str]:
    return [line for line in page(of) if line.startswith(name)]


def test_a_job_is_told_for_each_of_its_nodes_under_one_head():
    found = live(n1={7: {"cpu_seconds_total": 2.0}}, n2={7: {"cpu_seconds_total": 3.0}})
    told = 'job_id="7",user="root",account="physics"'
    assert lines(found, "oarlock_job_cpu_seconds_total") == [
        f'oarlock_job_cpu_seconds_total{{{told},instance="n1",cluster="alpha"}} 2.0',
        f'oarlock_job_cpu_seconds_total{{{told},instance="n2",cluster="alpha"}} 3.0',
    ]
    assert len(lines(found, "# TYPE oarlock_job_cpu_seconds_total ")) == 1
    heads = lines(found, "# TYPE")
    assert len(heads) == len(set(heads))


def test_usage_adds_up_nodes_and_devices():
    found = live(
        n2={7: {"cpu_seconds_total": 2.0, "memory_usage_bytes": 10, A: 1}},
        n1={7: {"cpu_seconds_total": 3.0, "memory_usage_bytes": 20, A: 2, B: 4}},
    )  # fmt: skip
    assert found.usage(7) == MeasuredUsage(100.0, ("n1", "n2"), cpu_seconds=5.0, memory_bytes=30.0, read_bytes=7.0)
    assert found.usage(8) is None


def test_own_memory_and_cache_are_told_apart_and_shared_memory_is_ones_own():
    values = {
        "memory_usage_bytes": 310,
        "memory_anonymous_bytes": 5,
        "memory_shared_bytes": 3,
        "memory_cache_bytes": 300,
    }
    found = live(n1={7: values | {"memory_limit_bytes": 1000, "cpus": 2}}, n2={7: values | {"cpus": 2}})
    assert found.usage(7) == MeasuredUsage(
        100.0, ("n1", "n2"), cpus=4, memory_bytes=620, memory_own_bytes=16, memory_cache_bytes=594,
        memory_own_peak_bytes=16, memory_limit_bytes=None,
    )  # fmt: skip


def test_the_highest_own_memory_of_all_samples_is_kept_until_the_job_ends():
    found = live(n1={7: {"memory_anonymous_bytes": 500.0, "written_bytes_total": 9.0}})
    for own in (40.0, 60.0):
        found.take(
            "n1",
            encode_sample(1.0, {}, {7: {"memory_anonymous_bytes": own, "written_bytes_total": 9.0}}),
            {7},
            at=100.0,
        )
    assert (found.usage(7).memory_own_bytes, found.usage(7).memory_own_peak_bytes) == (60.0, 500.0)
    assert found.ended("n1", 7) == {"memory_own_peak_bytes": 500.0, "written_bytes_total": 9.0}
    assert found.ended("n1", 7) == {}


def test_no_write_on_a_block_device_does_not_prove_there_was_none():
    block = {'block_written_bytes_total{device="a"}': 0.0, A: 5.0}
    assert (live(n1={7: block}).usage(7).written_bytes, live(n1={7: block}).usage(7).read_bytes) == (None, 5.0)
    assert live(n1={7: block | {"written_bytes_total": 0.0}}).usage(7).written_bytes == 0.0


def test_a_job_that_is_over_vanishes_at_once():
    found = live(n1={7: {"cpus": 2.0}, 8: {"cpus": 1.0}})
    assert len(lines(found, "oarlock_job_cpus")) == 2
    found.ended("n1", 7)
    assert (found.usage(7), lines(found, "oarlock_job_cpus")) == (
        None, ['oarlock_job_cpus{job_id="8",user="root",account="maths",instance="n1",cluster="alpha"} 1.0'],
    )  # fmt: skip


def test_a_node_may_speak_of_its_own_jobs_only():
    found = LiveUsage(10)
    found.take("n1", encode_sample(1.0, {}, {7: {"cpus": 2.0}, 8: {"cpus": 2.0}}), {8}, at=100.0)
    assert (found.usage(7), found.usage(8) is not None, found.refused["n1"]) == (None, True, 1)


def test_what_is_no_sample_is_counted_and_the_last_one_stays():
    found = live(n1={7: {"cpu_seconds_total": 2.0}})
    found.take("n1", b"nonsense", {7}, at=101.0)
    assert (found.refused["n1"], found.usage(7)) == (1, MeasuredUsage(100.0, ("n1",), cpu_seconds=2.0))


def test_a_node_that_is_silent_for_long_is_not_told_any_more():
    found = live(n1={7: {"cpus": 2.0}})
    assert page(found, 160.0) != []
    assert page(found, 161.0) == []
    assert found.usage(7) is None


def test_a_job_of_which_nobody_knows_whose_it_is_waits_until_somebody_does():
    found = LiveUsage(10)
    found.take("n1", encode_sample(1.0, {}, {9: {"cpus": 2.0}}), {9}, at=100.0)
    assert (found.unknown(), lines(found, "oarlock_job_cpus")) == ({9}, [])
    found.learn({9: JobFacts("root", "p", "")})
    assert (found.unknown(), len(lines(found, "oarlock_job_cpus"))) == (set(), 1)
