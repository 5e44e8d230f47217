"""Where a trace is replayed."""

import pytest

from oarlock.simulate.platform import fitted, parse
from oarlock.simulate.replay import Replay
from oarlock.simulate.trace import Trace, TraceJob, TraceRefused, flat, parts
from tests.simulate.drawing import trace


def test_a_tree_is_a_table_of_its_leaves():
    made = parse("switch=2/2*nodes/core=2", trace((0, 1, 1, 1)))
    columns = made.resources.columns
    assert made.size == 8
    assert columns["switch"] == (0, 0, 0, 0, 1, 1, 1, 1)
    assert columns["core"] == tuple(range(8))
    assert [name.lstrip("node0") for name in columns["network_address"]] == list("11223344")


def test_trees_are_joined():
    made = parse("nodes=2/core=4 + nodes=1/core=1", trace((0, 1, 1, 1)))
    assert made.size == 9
    assert len(set(made.resources.columns["network_address"])) == 3


def test_requests_for_nodes_need_nodes_and_are_counted_without():
    jobs = Trace("t", tuple(TraceJob(number, 0, 10, 10, parts(2, 2), 4) for number in (1, 2)))
    nodes = parse("nodes=3/core=2", jobs)
    assert [one.start for one in Replay(fitted(jobs, nodes), nodes, "easy").run()] == [0, 10]
    counted = parse("8", jobs)
    assert fitted(jobs, counted).jobs[0].shape == flat(4)
    assert [one.start for one in Replay(fitted(jobs, counted), counted, "easy").run()] == [0, 0]


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ("0", "means 0 resources"),
        ("nodes=2/core", "`core` in `nodes=2/core` is not a level of a tree"),
        ("core=8", "has no nodes"),
        ("nodes=100000/core=1000", "means 100000000 resources"),
        (None, "does not say how large"),
    ],
)
def test_what_cannot_be_built_is_refused(asked, says):
    with pytest.raises(TraceRefused, match=says):
        parse(asked, trace((0, 1, 1, 1)))
