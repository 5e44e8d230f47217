"""Round numbers along the axes of a report."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oarlock.simulate.plot import instants, span, top


@pytest.mark.parametrize(
    ("begin", "end", "words"),
    [
        (0, 1, ["0:00:00", "0:00:01"]),
        (10, 3700, ["0:15", "0:30", "0:45", "1:00"]),
        (0, 97_225, ["0 h", "6 h", "12 h", "18 h", "1 d 0 h"]),
        (2_203_000, 2_370_000, ["25 d 12 h", "26 d 0 h", "26 d 12 h", "27 d 0 h"]),
        (0, 31 * 86_400, ["0 d", "5 d", "10 d", "15 d", "20 d", "25 d", "30 d"]),
        (0, 30 * 365 * 86_400, ["0 d", "2,000 d", "4,000 d", "6,000 d", "8,000 d", "10,000 d"]),
    ],
)
def test_instants_are_as_exact_as_they_are_apart(begin, end, words):
    assert [text for _, text in instants(begin, end)] == words


@given(st.integers(0, 10**10), st.integers(0, 10**10))
def test_an_axis_is_never_crowded_and_no_two_instants_read_alike(begin, length):
    found = list(instants(begin, begin + length))
    assert len(found) <= 8
    assert len({text for _, text in found}) == len(found)
    assert all(begin <= at <= begin + length for at, _ in found)


@given(st.floats(0, 1e9))
def test_the_top_of_an_axis_is_little_above_what_it_holds(highest):
    found = top(highest)
    assert found % 4 == 0
    assert highest <= found <= max(4, 2 * highest)


def test_a_long_time_is_told_in_days_too():
    assert [span(seconds) for seconds in (0, 0.6, 59, 3601, 345_599, 345_600, 2_714_001)] == [
        "0", "0:00:01", "0:00:59", "1:00:01", "95:59:59", "4 d 0:00:00", "31 d 9:53:21",
    ]  # fmt: skip
