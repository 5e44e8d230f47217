"""Of an array with a limit the scheduler sees as many jobs as may run, and no more."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oarlock.store.engine.tx import Tx
from oarlock.store.queries.job import jobs, new_jobs
from oarlock.store.queries.planning import array_limits, snapshot
from oarlock.store.queries.planning.array_limits import LimitedJob, choose_held_back
from tests.clusters import NOW, add_nodes
from tests.store.cluster import new, run


@pytest.fixture
def tx(tx: Tx) -> Tx:
    add_nodes(tx, ["a"])
    return tx


def add_array(tx: Tx, count: int, *types: str) -> list[int]:
    members = [new(array_index=place, types=types) for place in range(1, count + 1)]
    return [job.id for job in new_jobs.add(tx, members)]


def seen(tx: Tx, **more: object) -> list[int]:
    found = snapshot.read(tx, karma_window=30 * 86400, now=NOW, **more)  # type: ignore[arg-type]
    return [job.job_id for job in found.snapshot.waiting]


def test_only_as_many_as_may_run_are_seen(tx: Tx):
    first, limited, others = add_array(tx, 2), add_array(tx, 5, "at_once=2"), add_array(tx, 3)
    assert seen(tx) == [*first, *limited[:2], *others]


def test_whoever_holds_resources_counts(tx: Tx):
    limited = add_array(tx, 5, "besteffort", "at_once=2")
    run(tx, jobs.get(tx, limited[3]), [1])
    assert seen(tx) == limited[:1]
    held = array_limits.held_back(tx)
    assert sorted(held) == [limited[1], limited[2], limited[4]]
    assert held[limited[1]].says == (
        f"array {limited[0]} runs at most 2 jobs at once; first come: {limited[3]}, {limited[0]}"
    )


def test_two_arrays_have_a_limit_each(tx: Tx):
    one, two = add_array(tx, 3, "at_once=1"), add_array(tx, 3, "at_once=2")
    assert seen(tx) == [one[0], *two[:2]]


@pytest.mark.parametrize("arrays", [False, True])
def test_a_long_array_leaves_the_depth_of_a_pass_to_others(tx: Tx, arrays: bool):
    limited, others = add_array(tx, 20, "at_once=1"), add_array(tx, 6)
    found = snapshot.read(tx, karma_window=30 * 86400, now=NOW, depth=3, arrays=arrays)
    assert [job.job_id for job in found.snapshot.waiting][:3] == [limited[0], *others[:2]]
    assert not {job.job_id for job in found.snapshot.waiting} & {*limited[1:]}
    assert found.left == (3 if arrays else 4)


limited_jobs = st.lists(st.tuples(st.integers(1, 3), st.booleans()), max_size=30).map(
    lambda drawn: [LimitedJob(number, array, array + 1, waits) for number, (array, waits) in enumerate(drawn, 1)]
)


@given(limited_jobs)
def test_no_more_than_allowed_are_seen_or_run(drawn: list[LimitedJob]):
    held = choose_held_back(drawn)
    for array in (1, 2, 3):
        members = [job for job in drawn if job.array_id == array]
        running = [job for job in members if not job.waits]
        open_ = [job for job in members if job.waits and job.job_id not in held]
        behind = [job.job_id for job in members if job.job_id in held]
        assert len(open_) == min(max(0, array + 1 - len(running)), len([job for job in members if job.waits]))
        assert all(job.job_id < number for job in open_ for number in behind)
    assert all(job.waits for job in drawn if job.job_id in held)
