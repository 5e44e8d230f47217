"""Time falls into windows without a second lost or counted twice."""

from hypothesis import given
from hypothesis import strategies as st

from oarlock.store.queries.usage.accounting import window_shares


def test_a_job_over_midnight_is_in_two_windows():
    assert list(window_shares(86_390, 86_410, 86_400)) == [(0, 86_399, 10), (86_400, 172_799, 10)]


def test_a_job_that_ends_with_its_window_is_in_one():
    assert list(window_shares(86_390, 86_400, 86_400)) == [(0, 86_399, 10)]


def test_no_time_is_in_no_window():
    assert list(window_shares(5, 5, 10)) == []
    assert list(window_shares(5, 3, 10)) == []


@given(st.integers(0, 10**6), st.integers(0, 10**4), st.integers(10, 10**5))
def test_the_shares_of_a_job_are_its_duration(start: int, seconds: int, window: int):
    found = list(window_shares(start, start + seconds, window))
    assert sum(share for *_, share in found) == seconds
    assert all(begin % window == 0 and end == begin + window - 1 and 0 < share <= window for begin, end, share in found)
    assert [end + 1 for _, end, _ in found[:-1]] == [begin for begin, *_ in found[1:]]
