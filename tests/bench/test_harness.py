import json
import sys

import pytest

from bench.harness import Figure, Result, Unmeasured, all_hold, chosen, cpu_seconds, discover, figure, measured, write


def a_figure(value, *, name="parse", target=10, better="lower"):
    return Figure(name, "µs", target, better, lambda: value)


def test_a_figure_is_registered_under_its_name_and_stays_a_plain_function():
    among = {}

    @figure("parse", unit="µs", target=10, among=among)
    def parse() -> float:
        return 3

    assert among == {"parse": Figure("parse", "µs", 10, "lower", parse)}
    assert parse() == 3


def test_two_figures_of_one_name_are_a_mistake():
    among = {"parse": a_figure(3)}
    with pytest.raises(ValueError, match="two figures named parse"):
        figure("parse", unit="s", target=1, among=among)(lambda: 1.0)


@pytest.mark.parametrize(
    ("value", "better", "holds"),
    [(9, "lower", True), (10, "lower", True), (11, "lower", False), (11, "higher", True), (9, "higher", False)],
)
def test_a_target_holds_on_its_good_side(value, better, holds):
    assert measured(a_figure(value, better=better)).holds is holds


def test_a_line_tells_the_name_the_value_the_target_and_the_verdict():
    missed = Result("snapshot", 1.23456, "s", 1, "lower")
    assert missed.full_text().split() == ["snapshot", "1.235", "s", "target", "≤", "1", "s", "MISSED"]
    held = Result("moves", 250000, "rows/s", 100000, "higher")
    assert held.full_text().split() == ["moves", "250,000", "rows/s", "target", "≥", "100,000", "rows/s", "holds"]


def test_what_cannot_be_measured_is_told_in_one_line_and_counts_as_missed():
    def broken() -> float:
        raise RuntimeError("no database\nand a long story")

    outcome = measured(Figure("snapshot", "s", 1, "lower", broken))
    assert outcome == Unmeasured("snapshot", "RuntimeError: no database")
    assert "not measured: RuntimeError: no database" in outcome.full_text()
    assert not all_hold([Result("parse", 1, "µs", 10, "lower"), outcome])


def test_a_value_that_is_no_number_is_not_a_result():
    assert measured(a_figure(float("nan"))) == Unmeasured("parse", "the result is nan")


def test_figures_are_chosen_by_name_or_by_its_beginning():
    among = {name: a_figure(1, name=name) for name in ("plan", "plan_event", "snapshot")}
    assert [f.name for f in chosen("", among)] == ["plan", "plan_event", "snapshot"]
    assert [f.name for f in chosen("plan", among)] == ["plan"]
    assert [f.name for f in chosen("plan_", among)] == ["plan_event"]
    assert chosen("nothing", among) == []


def test_what_was_measured_is_written_for_programs(tmp_path):
    path = tmp_path / "build" / "bench.json"
    write([measured(a_figure(3)), Unmeasured("snapshot", "gone")], path)
    assert json.loads(path.read_text()) == [
        {"name": "parse", "value": 3.0, "unit": "µs", "target": 10, "better": "lower"}
    ]


def test_a_file_that_cannot_be_imported_does_not_hide_the_others(tmp_path, monkeypatch):
    package = tmp_path / "some_figures"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text("raise AssertionError('the program itself is not a figure')")
    (package / "broken.py").write_text("import no_such_module_at_all")
    (package / "good.py").write_text("VALUE = 1")
    monkeypatch.syspath_prepend(tmp_path)
    assert discover("some_figures") == [
        Unmeasured("some_figures.broken", "ModuleNotFoundError: No module named 'no_such_module_at_all'")
    ]
    assert sys.modules["some_figures.good"].VALUE == 1


def test_the_least_cpu_time_of_several_runs_counts():
    runs = []
    assert 0 <= cpu_seconds(lambda: runs.append(1), times=4) < 1
    assert runs == [1, 1, 1, 1]
