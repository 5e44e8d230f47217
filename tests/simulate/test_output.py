"""What is told of a replay: a table, JSON, CSV, a page."""

import csv
import json
from html.parser import HTMLParser

import pytest

from oarlock.cli.oarlock import main
from oarlock.simulate.gantt import _runs
from tests.simulate.test_reading import SWF


@pytest.fixture
def swf(tmp_path):
    path = tmp_path / "small.swf"
    path.write_text(SWF)
    return path


def test_a_table_has_a_column_a_policy(capsys, swf):
    assert main(["simulate", str(swf), "--policy", "fcfs,easy"]) == 0
    told = capsys.readouterr()
    lines = [line.split() for line in told.out.splitlines()]
    assert lines[:2] == [["fcfs", "easy"], ["jobs", "3", "3"]]
    assert "1 line of small.swf skipped: short line." in told.err


def test_json_is_policies_with_their_measures(capsys, swf):
    assert main(["simulate", str(swf), "--policy", "easy,depth-2", "--resources", "4", "--shake", "2", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert list(told) == ["easy", "depth-2"]
    # Job 2 wants all four processors and gets them from 50 to 150; job 4, which comes at 50, waits.
    assert told["easy"]["mean_wait"] == pytest.approx((0 + 20 + 100) / 3)
    assert {"mean_wait", "bounded_slowdown", "utilisation", "makespan", "shaken"} <= set(told["easy"])
    assert set(told["easy"]["shaken"]["mean_wait"]) == {"mean", "spread", "min", "max"}


def test_csv_has_a_line_a_job_and_policy(swf, tmp_path, capsys):
    file = tmp_path / "jobs.csv"
    assert main(["simulate", str(swf), "--policy", "easy,fcfs", "--resources", "4", "--csv", str(file)]) == 0
    rows = list(csv.DictReader(file.read_text().splitlines()))
    assert [(row["policy"], row["job"], row["wait"]) for row in rows[:3]] == [
        ("easy", "1", "0"),
        ("easy", "2", "20"),
        ("easy", "4", "100"),
    ]
    assert len(rows) == 6


class Tags(HTMLParser):
    """Follows which elements are open; whatever is not closed in order is a mistake."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: dict[str, int] = {}
        self.addresses: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.seen[tag] = self.seen.get(tag, 0) + 1
        self.addresses += [value for name, value in attrs if name in {"src", "href", "style"}]
        if tag not in {"meta"}:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.seen[tag] = self.seen.get(tag, 0) + 1

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.mark.parametrize("resources", ["4", "nodes=2/core=2"])
def test_the_page_is_whole_and_needs_nothing_else(swf, tmp_path, capsys, resources):
    file = tmp_path / "report.html"
    renamed = swf.rename(tmp_path / "<small>.swf")
    assert main(["simulate", str(renamed), "--policy", "easy,fcfs", "--resources", resources, "--html", str(file)]) == 0
    page = file.read_text()
    tags = Tags()
    tags.feed(page)
    assert tags.open == []
    assert tags.addresses == []
    assert tags.seen["svg"] == 2 * 2 + 2 + 2 + 2  # legends, distributions, use over time, Gantt charts
    assert "job 2 of 7: 4 processors" in page
    assert "&lt;small&gt;.swf" in page


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--policy", "eazy"], "There is no policy `eazy`."),
        (["--resources", "core=x"], "`core=x` in `core=x` is no level of a tree."),
        (["--since", "yesterday"], "`yesterday` is no date."),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(capsys, swf, arguments, says):
    assert main(["simulate", str(swf), *arguments]) == 2
    assert says in capsys.readouterr().err


def test_no_bar_where_nobody_looks(capsys, swf):
    main(["simulate", str(swf)])
    assert "█" not in capsys.readouterr().err


def test_stretches_of_neighbours_are_drawn_as_one():
    assert list(_runs(0b1101110)) == [(1, 4), (5, 7)]
    assert list(_runs(0)) == []
