"""The report of a replay in a real browser: everything is drawn, nothing is cut off, nothing is complained of."""

import json
import os
import re
import subprocess
from html import unescape
from pathlib import Path
from random import Random

import pytest

from oarlock.simulate.compare import Comparison
from oarlock.simulate.platform import parse
from oarlock.simulate.report import page
from oarlock.simulate.trace import Trace, TraceJob, flat
from tests.components import COMPONENTS

pytestmark = pytest.mark.component("chromium")

# Chromium looks for nothing but the page: no updates, no accounts, no other machines.
_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage", "--hide-scrollbars",
    "--enable-logging=stderr",
)  # fmt: skip
_SCHEMES = {"dark": 0, "light": 1}

_LOOK = """
const box = (one) => one.getBoundingClientRect();
const seen = (one) => box(one).width > 0 && box(one).height >= 0 && getComputedStyle(one).visibility === "visible";
const drawn = (chart) => [...chart.querySelectorAll("polyline, polygon, .bar rect")].filter(seen).length;
const cut = (chart) => [...chart.querySelectorAll("text")].filter((text) => text.textContent && (
  box(text).left < box(chart).left - 1 || box(text).right > box(chart).right + 1 ||
  box(text).top < box(chart).top - 1 || box(text).bottom > box(chart).bottom + 1)).map((text) => text.textContent);
const charts = [...document.querySelectorAll("svg.plot, svg.gantt")];
const told = {
  charts: charts.map((chart) => [chart.getAttribute("class"), drawn(chart)]),
  cut: charts.flatMap(cut),
  meters: [...document.querySelectorAll(".meter rect:last-child")].filter(seen).length,
  sideways: document.documentElement.scrollWidth - document.documentElement.clientWidth,
  wide: document.documentElement.clientWidth,
  ground: getComputedStyle(document.body).backgroundColor,
};
document.body.innerHTML = "";
document.body.append(Object.assign(document.createElement("pre"), {textContent: JSON.stringify(told)}));
"""


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """A report of two policies on a crowded machine, with a script in it that looks around and writes what it sees."""
    drawing = Random(1)
    jobs = tuple(
        TraceJob(number, 300 * number, 60 * drawing.randint(1, 200), 12_000, flat(size), size, user=f"<{size}> & co")
        for number in range(1, 301)
        for size in [drawing.randint(1, 40)]
    )
    trace = Trace("a <small> trace & more.swf", jobs)
    results = Comparison(parse("nodes=8/core=8", trace)).of(trace, ["fcfs", "easy"])
    file = tmp_path_factory.mktemp("report") / "report.html"
    text = page(trace, parse("nodes=8/core=8", trace), results)
    file.write_text(text.replace("</main>", f"</main><script>{_LOOK}</script>"))
    return file


def _open(report: Path, folder: Path, wide: int, scheme: str):
    """Open a page in a window so wide, where nothing may be complained of; give what its script saw."""
    command = [
        COMPONENTS["chromium"].program, *_FLAGS, f"--user-data-dir={folder}", f"--window-size={wide},2000",
        f"--blink-settings=preferredColorScheme={_SCHEMES[scheme]}", "--dump-dom", report.as_uri(),
    ]  # fmt: skip
    environment = {**os.environ, "HOME": str(folder)}
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True)
    assert [line for line in ran.stderr.splitlines() if "CONSOLE" in line] == []
    [seen] = re.findall(r"<pre>(.*)</pre>", ran.stdout)
    return json.loads(unescape(seen))


@pytest.mark.parametrize(("wide", "scheme", "ground"), [(1280, "light", "#f4f6f8"), (500, "dark", "#0e1319")])
def test_every_chart_of_a_report_is_drawn_and_no_word_is_cut(report, tmp_path, wide, scheme, ground):
    seen = _open(report, tmp_path, wide, scheme)
    assert (seen["wide"], seen["sideways"], seen["cut"], seen["meters"]) == (wide, 0, [], 8)
    assert [kind for kind, _ in seen["charts"]] == ["plot"] * 4 + ["gantt"] * 2
    assert [count for kind, count in seen["charts"] if kind == "plot"] == [2] * 4  # a line a policy, or area and line
    assert all(count > 50 for kind, count in seen["charts"] if kind == "gantt")
    assert seen["ground"] == f"rgb({', '.join(str(int(ground[at : at + 2], 16)) for at in (1, 3, 5))})"
