"""Names of nodes, written short."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oarlock.web.nodeset import folded


@pytest.mark.parametrize(
    ("names", "short"),
    [
        ([], ""),
        (["login"], "login"),
        (["node7"], "node7"),
        (["node3", "node1", "node2", "node7", "login"], "login,node[1-3,7]"),
        (["n01", "n02", "n10"], "n10,n[01-02]"),
        (["a1-ib", "a2-ib"], "a[1-2]-ib"),
        (["rack1node2", "rack1node3"], "rack1node[2-3]"),
    ],
)
def test_names_that_differ_in_a_number_become_one(names, short):
    assert folded(names) == short


@given(st.sets(st.integers(0, 60), min_size=2))
def test_nothing_is_lost_or_added(numbers):
    inside = folded(f"node{number}" for number in numbers).removeprefix("node[").removesuffix("]")
    found = [part.partition("-")[::2] for part in inside.split(",")]
    assert {n for first, last in found for n in range(int(first), int(last or first) + 1)} == numbers
