"""Curves: few points, nothing invented between them, nothing lost at their ends."""

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oarlock.measure.collect.collector import Collector
from oarlock.measure.collect.files.hdf5 import ArchivedJob, Track
from oarlock.measure.collect.series import NoSamples, SeriesRange, _draw_many, draw, read_job, read_node
from oarlock.model.errors import BadRequest
from oarlock.node.measure.wire import encode_sample

GAP = (None, None, None)


def track(times: list[int], values: list[float]) -> Track:
    return Track("x", "n1", times, values, values, values)


def drawn(values: list[float], *, counts: bool = False, times: list[int] | None = None, points: int = 500) -> list:
    times = times or [1000 * n for n in range(len(values))]
    return draw(track(times, values), counts=counts, since=times[0], until=times[-1], points=points)


def test_few_values_are_drawn_as_they_are():
    assert drawn([1.0, 5.0, 3.0]) == [(0.0, 1.0, 1.0, 1.0), (1.0, 5.0, 5.0, 5.0), (2.0, 3.0, 3.0, 3.0)]


def test_a_counter_is_a_rate_and_where_it_falls_there_is_none():
    assert drawn([0.0, 2.0, 4.0, 1.0, 2.0], counts=True) == [
        (1.0, 2.0, 2.0, 2.0), (2.0, 2.0, 2.0, 2.0), (4.0, 1.0, 1.0, 1.0),
    ]  # fmt: skip


def test_where_nothing_came_for_long_the_curve_has_a_hole():
    times = [0, 1000, 2000, 60_000, 61_000]
    assert drawn([1.0] * 5, times=times)[2:4] == [(2.0, 1.0, 1.0, 1.0), (31.0, *GAP)]
    assert [point[1:] for point in drawn([0, 1, 2, 60, 61], times=times, counts=True)] == [
        (1.0, 1.0, 1.0), (1.0, 1.0, 1.0), GAP, (1.0, 1.0, 1.0),
    ]  # fmt: skip


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.integers(1, 50), st.floats(-1e6, 1e6)), min_size=2, max_size=120),
    st.integers(1, 40),
)
def test_any_curve_keeps_least_most_and_mean_in_as_many_points(steps, points):
    times, values = [], []
    at = 0
    for step, value in steps:
        at += step * 1000
        times.append(at)
        values.append(value)
    curve = drawn(values, times=times, points=points)
    present = [point for point in curve if point[2] is not None]
    assert len(curve) <= points
    assert [point[0] for point in curve] == sorted(point[0] for point in curve)
    assert (min(p[1] for p in present), max(p[3] for p in present)) == (min(values), max(values))
    assert all(low - 1e-3 <= mean <= high + 1e-3 for _, low, mean, high in present)


@settings(max_examples=60)
@given(st.lists(st.floats(0, 1e9), min_size=2, max_size=60), st.integers(1, 30))
def test_no_rate_is_negative_and_none_is_above_what_was_counted(values, points):
    for _, low, mean, high in drawn(values, counts=True, points=points):
        assert low is None or 0 <= low <= mean * 1.000001 + 1e-6 <= high * 1.00001 + 2e-6 <= 1.1e9


@settings(max_examples=40)
@given(
    st.lists(st.tuples(st.sampled_from([1, 10, 10, 10, 200]), st.floats(0, 1e6)), min_size=4, max_size=150),
    st.integers(1, 160),
    st.booleans(),
)
def test_many_values_are_drawn_as_few_are(steps, points, counts):
    times = [1000 * sum(step for step, _ in steps[: place + 1]) for place in range(len(steps))]
    values = [value for _, value in steps]
    few = drawn(values, times=times, points=points, counts=counts)
    many = _draw_many(track(times, values), counts=counts, since=times[0], until=times[-1], points=points)
    assert [point[0] for point in many] == [point[0] for point in few]
    for left, right in zip(many, few, strict=True):
        assert left[1:] == (GAP if right[2] is None else pytest.approx(right[1:], abs=1e-6))


@pytest.fixture
def collector(tmp_path) -> Collector:
    made = Collector(tmp_path / "samples")
    made.start()
    for second in range(1000, 1040):
        for node in ("n1", "n2"):
            values = {"cpu_seconds_total": 2.0 * second, 'gpu_utilization_ratio{gpu="0"}': 0.5}
            data = encode_sample(float(second), {"load_1min": 3.0}, {7: values})
            made.take(node, data, {7, 8}, at=float(second))
    return made


def curves(view) -> list:
    return [(c.series, c.node, c.kind, c.unit, len(c.points), c.points[-1][1:]) for c in view.series]


EXPECTED = [
    ("cpu_seconds_total", "n1", "rate", "seconds/s", 39, (2.0, 2.0, 2.0)),
    ("cpu_seconds_total", "n2", "rate", "seconds/s", 39, (2.0, 2.0, 2.0)),
    ('gpu_utilization_ratio{gpu="0"}', "n1", "gauge", "ratio", 40, (0.5, 0.5, 0.5)),
    ('gpu_utilization_ratio{gpu="0"}', "n2", "gauge", "ratio", 40, (0.5, 0.5, 0.5)),
]


def test_a_job_has_the_same_curves_while_it_runs_and_when_it_is_over(collector):
    live = read_job(collector.places, 7, SeriesRange())
    assert (curves(live), live.live, live.since, live.until) == (EXPECTED, True, 1000.0, 1039.0)
    for _ in range(2):
        collector.archive_ended(lambda ids: {7: ArchivedJob(7)} if 7 in ids else {})
    kept = read_job(collector.places, 7, SeriesRange())
    assert (curves(kept), kept.live) == (EXPECTED, False)
    part = read_job(collector.places, 7, SeriesRange(["cpu_seconds_total"], 1010.0, 1020.0, 5))
    assert [(c.node, [point[0] for point in c.points]) for c in part.series] == [
        ("n1", [1012.0, 1014.0, 1016.0, 1018.0, 1020.0]), ("n2", [1012.0, 1014.0, 1016.0, 1018.0, 1020.0]),
    ]  # fmt: skip


def test_a_node_has_curves_and_the_jobs_that_were_on_it(collector):
    view = read_node(collector.places, "n1", SeriesRange(["load_1min"]), now=1040.0)
    assert (curves(view), view.involved_jobs) == ([("load_1min", "n1", "gauge", "1", 40, (3.0, 3.0, 3.0))], [7, 8])


def test_what_is_not_there_is_refused_with_a_way_out(collector):
    with pytest.raises(BadRequest, match=r"no metric `cpu_second` of a job") as refusal:
        read_job(collector.places, 7, SeriesRange(["cpu_second"]))
    assert "cpus" in refusal.value.hint or "cpu_seconds_total" in refusal.value.hint
    with pytest.raises(NoSamples, match="no curves of job 99"):
        read_job(collector.places, 99, SeriesRange())
    with pytest.raises(NoSamples, match="no curves of node n9"):
        read_node(collector.places, "n9", SeriesRange(), now=1040.0)
    with pytest.raises(NoSamples):
        read_node(collector.places, "../../etc", SeriesRange(), now=1040.0)
    with pytest.raises(BadRequest, match="no stretch of time"):
        read_job(collector.places, 7, SeriesRange((), 9.0, 8.0))


def test_values_that_are_not_numbers_are_not_drawn(tmp_path):
    made = Collector(tmp_path / "samples")
    made.start()
    names = ("cpus",)
    log = made._log(made.places.log(7))
    for at, value in enumerate([1.0, float("nan"), float("inf"), 2.0]):
        log.row(at * 1000, "n1", names, struct.pack("<d", value))
    log.write()
    assert [p[2] for p in read_job(made.places, 7, SeriesRange(["cpus"])).series[0].points] == [1.0, 2.0]
