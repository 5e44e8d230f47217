"""Columns over days."""

import xml.etree.ElementTree as ET

import pytest

from oarlock.insight.drawing.columns import DayColumn, draw_columns, round_top


@pytest.mark.parametrize(("highest", "top"), [(0, 0), (0.03, 0.05), (1, 1), (7, 10), (11, 20), (24, 25), (43, 50)])
def test_the_axis_ends_at_a_round_number(highest: float, top: float):
    assert round_top(highest) == pytest.approx(top)


def test_the_used_part_stands_in_the_held_one_and_says_so():
    drawn = ET.fromstring(draw_columns([DayColumn("<1>", 50, 25, "half & half")], unit="h", label="use"))
    [day] = [group for group in drawn.iter("g") if group.get("class") == "day"]
    held, used = (float(part.get("height")) for part in day.iter("rect"))
    assert held == 2 * used > 0
    assert day.find("title").text == "half & half"
    assert [text.text for text in drawn.iter("text")][-1] == "<1>"


def test_parts_stand_one_on_the_other():
    column = DayColumn("1", 30, 30, "", [("c0", 20), ("c3", 10)])
    drawn = ET.fromstring(draw_columns([column, DayColumn("2", 50, 0, "")], unit="h", label="use", width=400))
    parts = [part for part in drawn.iter("rect") if part.get("class") in {"f-c0", "f-c3"}]
    (low, high), (tall, small) = ([float(part.get(name)) for part in parts] for name in ("y", "height"))
    assert (tall, high) == pytest.approx((2 * small, low - small), abs=0.2)


def test_no_days_are_an_empty_chart():
    assert list(ET.fromstring(draw_columns([], unit="h", label="x")).iter("g")) == []
