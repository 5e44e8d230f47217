"""What is told of a replay: a table, JSON, CSV, a page."""

import csv
import json
import re
from html.parser import HTMLParser

import pytest

from oarlock.cli.oarlock import main
from oarlock.simulate.gantt import stretches
from tests.simulate.test_formats import SWF


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
    tiles, legends = 4 * 2, 2 * 2 + 3
    assert tags.seen["svg"] == tiles + legends + 2 + 2 + 2  # distributions, use over time, Gantt charts
    assert "job 2 of 7: 4 processors" in page
    assert "&lt;small&gt;.swf" in page


def _page(swf, tmp_path, *arguments):
    file = tmp_path / "report.html"
    assert main(["simulate", str(swf), *arguments, "--html", str(file)]) == 0
    return file.read_text()


def test_where_no_job_ever_fits_the_page_says_so(swf, tmp_path, capsys):
    assert "3 jobs on 1 resource; 3 jobs asked for more than there is and never ran." in _page(
        swf, tmp_path, "--resources", "1"
    )


def test_no_policy_is_left_out_of_a_picture_however_many_there_are(swf, tmp_path, capsys):
    policies = [f"depth-{depth}" for depth in range(1, 11)]
    page = _page(swf, tmp_path, "--policy", ",".join(policies))
    looks = re.findall(r'<polyline class="(l [cd0-9 ]+)" [^>]*><title>(depth-[0-9]+)<', page)
    waits, slowdowns = looks[:10], looks[10:]
    assert [name for _, name in waits] == [name for _, name in slowdowns] == policies
    assert len({look for look, _ in waits}) == 10


def test_on_nodes_every_resource_is_a_row_beside_the_name_of_its_node(swf, tmp_path, capsys):
    page = _page(swf, tmp_path, "--resources", "nodes=2/core=3")
    assert re.findall(r">(node[0-9]+)</text>", page) == ["node000001", "node000002"]
    tall = {
        float(height)
        for height in re.findall(r'<g class="bar [^<]*<title>[^<]*</title><rect [^>]*height="([0-9.]+)"', page)
    }
    assert tall == {80.0, 160.0}  # two and four of six
    assert "A row is a resource." in page


def test_on_a_large_machine_a_row_is_several_processors(swf, tmp_path, capsys):
    page = _page(swf, tmp_path, "--resources", "10000")
    assert "A row is 20 processors." in page
    assert ">10,000</text>" in page


def test_where_most_jobs_start_at_once_the_distributions_look_at_the_rest(swf, tmp_path, capsys):
    assert ">92 %</text>" in _page(swf, tmp_path, "--resources", "10000")
    assert ">92 %</text>" not in _page(swf, tmp_path, "--resources", "4")


def test_all_users_have_a_wait_under_every_policy(tmp_path, capsys):
    # Job 2 needs all processors; forty short jobs of a user each pass it, or do not.
    asked = [(0, 1000, 3), (1, 1000, 4), *((2 + 20 * number, 10, 1) for number in range(40))]
    lines = (
        f"{n} {at} -1 {run} {size} -1 -1 {size} {run} -1 1 {n} 1 -1 -1 -1 -1 -1"
        for n, (at, run, size) in enumerate(asked)
    )
    (tmp_path / "crowd.swf").write_text("".join(f"{line}\n" for line in lines))
    page = _page(tmp_path / "crowd.swf", tmp_path, "--policy", "fcfs,easy", "--resources", "4")
    rows = page.partition("Users who waited most")[2]
    assert "<td>5</td><td>1</td><td>0:32:18</td><td>0</td>" in rows


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--policy", "eazy"], "There is no policy `eazy`."),
        (["--resources", "core=x"], "`core=x` in `core=x` is not a level of a tree."),
        (["--since", "yesterday"], "`yesterday` is not a date."),
        (["--since", "2026-01-01"], "small.swf is a file, of which all is replayed."),
        (["--csv", "/nowhere/jobs.csv"], "/nowhere/jobs.csv cannot be written: No such file or directory."),
        (["--html", "/"], "/ cannot be written: Is a directory."),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(capsys, swf, arguments, says):
    assert main(["simulate", str(swf), *arguments]) == 2
    assert says in capsys.readouterr().err


def test_no_bar_where_nobody_looks(capsys, swf):
    main(["simulate", str(swf)])
    assert "█" not in capsys.readouterr().err


def test_stretches_of_neighbours_are_drawn_as_one():
    assert list(stretches(0b1101110)) == [(1, 4), (5, 7)]
    assert list(stretches(0)) == []
