"""Instants and durations as OAR prints them and as people type them."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oarlock.cli.layout import readable
from oarlock.client import RequestRefused


@pytest.fixture
def paris(monkeypatch):
    monkeypatch.setenv("TZ", "Europe/Paris")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def test_dates_are_local(paris):
    assert readable.date(1794766962) == "2026-11-15 19:22:42"
    assert readable.instant("2026-11-15 19:22:42", what="-r") == 1794766962
    assert readable.instant(" 2026-07-01 ", what="-r") == 1782856800


@given(st.integers(0, 4_000_000_000))
def test_a_date_that_is_printed_can_be_typed(instant):
    # Once a year an hour comes twice; it is then the same hour that is printed.
    assert readable.date(readable.instant(readable.date(instant), what="x")) == readable.date(instant)


@pytest.mark.parametrize(
    ("seconds", "duration", "walltime"),
    [(0, "0:00:00", "0:0:0"), (7, "0:00:07", "0:0:7"), (600, "0:10:00", "0:10:0"), (90061, "25:01:01", "25:1:1")],
)
def test_durations_have_two_forms(seconds, duration, walltime):
    assert (readable.duration(seconds), readable.walltime(seconds)) == (duration, walltime)


@pytest.mark.parametrize(
    "text",
    ["", "tomorrow", "2026-02-30", "2026-13-01", "2026-01-01 24:00:00", "2026-01-01 1:60:00", "2026-01-01 1:2:60",
     "2026-01-01 1:2", "2026-01", "26-x-01", "99999-01-01", "2026-01-01 1:2:3 x", "2026--1-01", "٢٠٢٦-01-01"],
)  # fmt: skip
def test_what_is_no_date_is_refused(text):
    with pytest.raises(RequestRefused, match="is not a date") as refused:
        readable.instant(text, what="--gantt")
    assert (refused.value.kind, refused.value.hint) == ("BadDate", 'Write it as "YYYY-MM-DD hh:mm:ss".')


def test_an_interval_is_two_dates_in_order():
    first, second = readable.interval("2026-11-15 18:03:18, 2026-11-15 18:43:18", what="-g")
    assert second - first == 2400
    with pytest.raises(RequestRefused, match="is before 2026-11-16"):
        readable.interval("2026-11-16,2026-11-15", what="-g")
    with pytest.raises(RequestRefused, match="takes two dates"):
        readable.interval("2026-11-16", what="-g")


def test_clocks_that_are_put_forward_or_back_change_no_duration(paris):
    nights = [("2026-03-28", "2026-03-29", 23), ("2026-10-24", "2026-10-25", 25)]
    for before, after, hours in nights:
        begin, end = (readable.instant(f"{day} 12:00:00", what="-r") for day in (before, after))
        assert (end - begin, readable.duration(end - begin)) == (hours * 3600, f"{hours}:00:00")
    # In October this hour comes twice, and two instants are printed as the same date.
    assert readable.date(1792888200) == readable.date(1792888200 + 3600) == "2026-10-25 02:30:00"
    # In March it does not come at all: what is typed is the hour after it. The same holds for a leap second.
    assert readable.date(readable.instant("2026-03-29 02:30:00", what="-r")) == "2026-03-29 03:30:00"
