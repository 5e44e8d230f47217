"""What a job may use of a node: its share, so that all jobs together leave something to the system."""

from hypothesis import given
from hypothesis import strategies as st

from oarlock.config import Config
from oarlock.job.run.reports import Hello
from oarlock.job.run.starting.share import NodeCapacity, limits
from oarlock.model.resource import Resource


def processes(count: int, size: int, together: int) -> int:
    hello = Hello("boot", "v2", (), size, 1 << 33, "3.11", 0, 0.0, processes=together)
    mine = [Resource(number, {"cpuset": number}) for number in range(count)]
    allowed = limits(mine, NodeCapacity(size, hello), Config()).pids
    assert allowed is not None
    return allowed


@given(st.lists(st.integers(1, 16), min_size=1, max_size=16), st.integers(24_576, 3_145_728))
def test_the_processes_of_all_jobs_of_a_node_stay_below_what_it_allows(counts, together):
    size = sum(counts)
    assert sum(processes(count, size, together) for count in counts) < together


def test_a_job_has_all_threads_of_its_cores():
    mine = [Resource(number, {"cpuset": cpus}) for number, cpus in enumerate(["0,32", "1-2", 5, None])]
    assert limits(mine, NodeCapacity(4, None), Config()).cpus == (0, 1, 2, 5, 32)


def test_a_job_has_at_most_16384_processes_and_enough_for_a_shell():
    assert (processes(1, 1, 3_145_728), processes(1, 256, 3_000)) == (16_384, 64)
