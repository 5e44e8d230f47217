"""The Gantt chart: bars, pieces of a job, narrow jobs together, nothing of a user's as markup."""

import re
import xml.etree.ElementTree as ET
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oarlock.insight.drawing.gantt import GanttJob, GanttNode, GanttSpan, GanttView, draw_gantt, round_instants

NODES = [GanttNode("n1", [1, 2, 3, 4]), GanttNode("n2", [5, 6, 7, 8])]


def _job(number: int, start: int, stop: int, resources: list[int], **more: object) -> GanttJob:
    return GanttJob(number, start, stop, resources, **{"phase": "running", "title": f"job {number}"} | more)


def _draw(jobs: list[GanttJob], spans: list[GanttSpan] = (), **more: object) -> ET.Element:
    view = GanttView(
        **{"window": (0, 3600), "now": 1800, "instants": [(0, "0:00")], "now_text": "0:30", "label": "x"} | more
    )
    return ET.fromstring(draw_gantt(NODES, jobs, spans, view))


def _bars(chart: ET.Element) -> list[str]:
    """Return the addresses of the bars, in the order in which they are painted."""
    return [bar.get("href") for bar in chart.iter("a") if "running" in bar.get("class", "")]


def _tints(chart: ET.Element) -> list[list[tuple[float, float, float, float]]]:
    """Return the pieces of each bar as (left, top, width, height) in the chart: what its groups move it by is added."""
    found = []
    for row in chart.iter("g"):
        for bar in [child for child in row if child.get("class", "").startswith("c")]:
            left, _ = _moved(bar)
            _, down = _moved(row)
            [tint] = [path for path in bar if path.get("class") == "g-tint"]
            pieces = re.findall(r"M(\S+) (\S+?)h(\S+?)v(\S+?)H0z", tint.get("d"))
            assert "".join("M{} {}h{}v{}H0z".format(*piece) for piece in pieces) == tint.get("d")
            found.append([(left + float(x), down + float(y), float(w), float(h)) for x, y, w, h in pieces])
    return found


def _moved(element: ET.Element) -> tuple[float, float]:
    across, down = re.fullmatch(r"translate\((\S+?)(?: (\S+))?\)", element.get("transform")).groups()
    return float(across), float(down or 0)


def test_a_job_has_a_piece_for_each_run_of_neighbouring_cores():
    [pieces] = _tints(_draw([_job(1, 0, 1800, [1, 2, 4, 5])]))
    heights = [(top, height) for _, top, _, height in pieces]
    assert heights == [(0.0, 8.5), (12.8, 4.2), (19.0, 4.2)], "cores 1 and 2; 4; 5 on the next node"
    assert {(left, width) for left, _, width, _ in pieces} == {(96.0, 568.0)}


def test_a_bar_lies_where_its_cores_and_its_time_are():
    jobs = [_job(1, 900, 1800, [7, 8]), _job(2, 1800, 5000, [5, 6]), _job(3, 1800, 2700, [1, 2, 3, 4, 5, 6, 7, 8])]
    assert _tints(_draw(jobs)) == [
        [(664.0, 0.0, 283.0, 17.0), (664.0, 19.0, 283.0, 17.0)],
        [(380.0, 27.5, 284.0, 8.5)],
        [(664.0, 19.0, 567.0, 8.5)],
    ]


def test_narrow_jobs_side_by_side_are_one_bar_that_counts_them():
    jobs = [_job(number, number * 4, number * 4 + 3, [1]) for number in range(100)]
    chart = _draw([*jobs, _job(900, 2000, 2003, [1]), _job(901, 0, 3600, [2])], link="/jobs/{}".format)
    [many] = [group for group in chart.iter("g") if group.get("class") == "g-many"]
    assert many.find("title").text == "100 short jobs, 0 to 99"
    assert _bars(chart) == ["/jobs/901", "/jobs/900"]


def test_a_narrow_bar_has_no_edge_and_a_wide_one_has_its_number():
    chart = _draw([_job(1, 0, 12, [1, 2, 3, 4]), _job(2, 1000, 3000, [5, 6, 7, 8])])
    assert len([path for path in chart.iter("path") if path.get("class") == "g-edge"]) == 1
    assert [text.text for text in chart.iter("text") if text.get("class") == "g-number"] == ["2"]


def test_a_link_has_words_and_a_bar_of_an_unknown_job_is_none():
    jobs = [
        _job(1, 0, 12, [1, 2], title=""),
        _job(2, 1000, 3000, [5, 6, 7, 8], title=""),
        _job(0, 0, 900, [3], title=""),
    ]
    chart = _draw(jobs, link="/jobs/{}".format)
    assert {bar.get("href"): "".join(bar.itertext()) for bar in chart.iter("a")} == {"/jobs/1": "1", "/jobs/2": "2"}
    assert len(_tints(chart)) == 3


def test_pauses_hatches_and_a_ghost_lie_on_their_pieces():
    paused = _job(1, 900, 2700, [5, 6, 7, 8], pauses=[(1200, 1500)], best_effort=True)
    ghost = _job(0, 2700, 3600, [3, 4], marks="?", title="could run here")
    chart = _draw([paused], ghost=ghost)
    by_kind = {path.get("class"): path.get("d") for path in chart.iter("path")}
    assert by_kind["g-pause"] == "M94 0h95v17h-95z"
    assert by_kind["g-best"] == "M0 0h567v17H0z"
    assert _tints(chart) == [[(380.0, 19.0, 567.0, 17.0)], [(947.0, 8.5, 284.0, 8.5)]]
    [drawn] = [group for group in chart.iter("g") if "g-ghost" in group.get("class", "")]
    assert drawn.find("title").text == "could run here"


def test_the_now_line_is_drawn_only_where_now_is():
    assert "g-now" in {path.get("class") for path in _draw([]).iter("path")}
    assert "g-now" not in {path.get("class") for path in _draw([], now=3600).iter("path")}


def test_times_in_which_nodes_were_away_cover_their_rows():
    chart = _draw([], [GanttSpan(0, 900, [5, 6, 7, 8], "suspected", "Suspected")])
    [span] = [group for group in chart.iter("g") if "g-span" in group.get("class", "")]
    assert [(piece.get("y"), piece.get("height")) for piece in span.iter("rect")] == [("19.0", "17.0")]


@given(st.text(max_size=30))
def test_no_name_becomes_markup(name: str):
    name = re.sub("[\0-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]|[\ud800-\udfff]", "", name)
    node = GanttNode(name or "n", [1], link=f"/gantt?open={name}")
    view = GanttView((0, 60), 30, [(0, name)], name, name, link=lambda number: f"/jobs/{number}?{name}")
    drawn = draw_gantt([node], [_job(1, 0, 60, [1], title=name, marks=name)], [], view)
    chart = ET.fromstring(drawn)
    assert chart.get("aria-label").split() == name.split()
    assert {element.tag for element in chart.iter()} <= {"svg", "g", "a", "rect", "path", "text", "title"}


@given(st.integers(0, 2**32), st.integers(600, 90 * 86_400), st.integers(-12, 14))
def test_round_instants_lie_in_the_window_and_are_not_too_many(since: int, length: int, zone: int):
    instants = round_instants((since, since + length), lambda _: zone * 3600)
    assert len(instants) <= 11
    assert all(since <= at < since + length for at in instants)


def _in_paris(instant: int) -> datetime:
    return datetime.fromtimestamp(instant, ZoneInfo("Europe/Paris"))


@pytest.mark.parametrize(
    ("night", "hours"),
    [
        ("2026-03-29", ["00:00", "03:00", "06:00", "09:00", "12:00", "15:00", "18:00", "21:00"]),
        ("2026-10-25", ["00:00", "03:00", "06:00", "09:00", "12:00", "15:00", "18:00", "21:00"]),
    ],
)
def test_hours_of_a_chart_are_round_on_the_day_when_clocks_are_set(night: str, hours: list[str]):
    begin = datetime.fromisoformat(f"{night}T00:00").replace(tzinfo=ZoneInfo("Europe/Paris"))
    since = int(begin.timestamp())
    until = int((begin + timedelta(days=1)).timestamp())
    assert until - since == {"03": 23, "10": 25}[night[5:7]] * 3600
    instants = round_instants((since, until), lambda at: int(_in_paris(at).utcoffset().total_seconds()))
    assert [_in_paris(at).strftime("%H:%M") for at in instants] == hours


def test_the_missing_hour_is_not_marked_and_one_that_comes_twice_is_once():
    def offset(at: int) -> int:
        return int(_in_paris(at).utcoffset().total_seconds())

    spring = int(datetime(2026, 3, 29, 0, 30, tzinfo=UTC).timestamp())  # the clock shows 1:30
    autumn = int(datetime(2026, 10, 24, 23, 30, tzinfo=UTC).timestamp())
    marked = [
        [_in_paris(at).strftime("%H:%M") for at in round_instants((begin, begin + 5 * 3600), offset)]
        for begin in (spring, autumn)
    ]
    assert marked[0][:5] == ["01:30", "03:00", "03:30", "04:00", "04:30"]
    assert marked[1].count("02:00") == marked[1].count("02:30") == 1
