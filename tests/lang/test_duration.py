"""Walltimes, read and written."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oarlock.lang import duration
from oarlock.model.submission_errors import BadDuration


@pytest.mark.manual(6)
@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2", 7200),
        ("0:30", 1800),
        ("1:02:03", 3723),
        (" 1:00 ", 3600),
        ("0:0:45", 45),
        ("0:90:90", 5490),
        ("007", 25200),
        ("596523:14:07", duration.LONGEST),
    ],
)
def test_hours_come_first_and_fields_may_run_over(text, seconds):
    assert duration.parse(text) == seconds


@pytest.mark.parametrize(
    ("text", "at", "expected"),
    [
        ("", 0, "hours, hours:minutes or hours:minutes:seconds"),
        ("  ", 2, "hours, hours:minutes or hours:minutes:seconds"),
        ("abc", 0, "hours, hours:minutes or hours:minutes:seconds"),
        (" -1", 1, "hours, hours:minutes or hours:minutes:seconds"),
        ("2h", 1, "hours, hours:minutes or hours:minutes:seconds"),
        ("1.5", 1, "hours, hours:minutes or hours:minutes:seconds"),
        ("1:", 1, "hours, hours:minutes or hours:minutes:seconds"),
        ("1:2:3:4", 5, "hours, hours:minutes or hours:minutes:seconds"),
        ("٣", 0, "hours, hours:minutes or hours:minutes:seconds"),
        ("0", 0, "a time above zero"),
        (" 0:00:00", 1, "a time above zero"),
        ("596523:14:08", 0, "at most 596523:14:07"),
        ("9" * 5000, 0, "at most 596523:14:07"),
    ],
)
def test_what_is_no_time_is_refused_at_its_place(text, at, expected):
    with pytest.raises(BadDuration) as refusal:
        duration.parse(text)
    assert (refusal.value.text, refusal.value.at, refusal.value.expected) == (text, at, expected)


def test_the_refusal_shows_the_place_and_the_way_out():
    with pytest.raises(BadDuration) as refusal:
        duration.parse("1:2:3:4")
    assert refusal.value.full_text() == (
        "`1:2:3:4` is not a walltime: expected hours, hours:minutes or hours:minutes:seconds.\n"
        "  1:2:3:4\n"
        "       ^\n"
        "  `2` is two hours, `0:30` half an hour, `0:0:45` three quarters of a minute."
    )


def test_days_are_written_as_hours():
    assert [duration.show(seconds) for seconds in (0, 59, 5490, 260000)] == [
        "0:00:00",
        "0:00:59",
        "1:31:30",
        "72:13:20",
    ]


@given(st.integers(1, duration.LONGEST))
def test_a_duration_that_was_written_is_read_as_itself(seconds):
    assert duration.parse(duration.show(seconds)) == seconds
