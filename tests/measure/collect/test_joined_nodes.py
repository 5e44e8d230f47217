"""Curves of a job on very many nodes: one a metric, of the least, the mean and the most over all nodes."""

from collections.abc import Sequence
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oarlock.measure.collect import series
from oarlock.measure.collect.collector import Collector
from oarlock.measure.collect.files import thinning
from oarlock.measure.collect.files.hdf5 import ArchivedJob
from oarlock.measure.collect.series import SeriesRange, SeriesView, read_job
from oarlock.measure.collect.sums import joined_nodes, thinned_copy
from oarlock.measure.collect.sums.joined_nodes import JoinedNodes, NodeRows, by_column, join_rows, joined_tracks
from oarlock.model.errors import BadRequest
from oarlock.node.measure.wire import SampleEncoder

JOB, NODES = 7, 5


@pytest.fixture
def few(monkeypatch):
    monkeypatch.setattr(thinned_copy, "MOST_NODES", NODES - 1)
    monkeypatch.setattr(series, "MOST_CURVES", NODES - 1)


@pytest.fixture
def collector(tmp_path):
    made = Collector(tmp_path / "samples")
    made.start()
    yield made
    made.close()


def fed(collector: Collector, samples: int = 60) -> None:
    """Nodes of which the first uses one core and 100 bytes, the next two and 200, and so on; with two GPUs each."""
    encoders = [SampleEncoder(f"{node + 1:032x}") for node in range(NODES)]
    for sample in range(samples):
        at = 1000.0 + 10 * sample
        for node, encoder in enumerate(encoders):
            of_job = {
                "cpu_seconds_total": (node + 1.0) * at,
                "memory_anonymous_bytes": 100.0 * (node + 1),
                f'gpu_utilization_ratio{{gpu="0",uuid="GPU-{node}a"}}': 0.5,
                f'gpu_utilization_ratio{{gpu="1",uuid="GPU-{node}b"}}': 1.0,
            }
            collector.take(f"n{node}", encoder.encode(at, {}, {JOB: of_job}), {JOB}, at=at)


def curves(view: SeriesView) -> dict[str, tuple[str, str, str, set[Sequence[float | None]]]]:
    return {
        curve.series: (curve.node, curve.kind, curve.unit, {tuple(point[1:]) for point in curve.points})
        for curve in view.series
    }


EXPECTED = {
    "cpu_seconds_total": ("5 nodes", "rate", "seconds/s", {(1.0, 3.0, 5.0)}),
    "memory_anonymous_bytes": ("5 nodes", "gauge", "bytes", {(100.0, 300.0, 500.0)}),
    "gpu_utilization_ratio": ("5 nodes", "gauge", "ratio", {(0.75, 0.75, 0.75)}),
}


def test_a_wide_job_has_the_same_curves_of_its_copy_its_log_and_its_files(collector, few):
    fed(collector)
    places, read_copy = collector.places, partial(collector.sums.curves, JOB)
    views = [read_job(places, JOB, SeriesRange(), read_copy=read_copy), read_job(places, JOB, SeriesRange())]
    for _ in range(2):
        collector.archive_ended(lambda ids: {JOB: ArchivedJob(JOB)} if JOB in ids else {})
    views.append(read_job(places, JOB, SeriesRange()))
    thinning.thin(places.archived(JOB), places.archived(JOB).with_name(f"{JOB}.thin.h5"), places.temporary)
    views.append(read_job(places, JOB, SeriesRange()))
    for view in views:
        assert (curves(view), view.joined_nodes) == (EXPECTED, NODES)
    assert [len(view.series[0].points) for view in views[:3]] == [59, 59, 59]
    assert [view.live for view in views] == [True, True, False, False]


def test_the_joined_copy_of_a_wide_job_goes_on_after_a_crash(collector, few, tmp_path):
    fed(collector, samples=20)
    collector.sums.store()
    fed_again = Collector(collector.places.root)
    fed_again.start()
    view = read_job(fed_again.places, JOB, SeriesRange(), read_copy=partial(fed_again.sums.curves, JOB))
    assert (curves(view), len(view.series[0].points)) == (EXPECTED, 19)
    fed_again.close()


def test_many_curves_of_one_node_are_refused_as_ever(collector, monkeypatch):
    monkeypatch.setattr(series, "MOST_CURVES", 3)
    of_job = {f'process_threads{{exe="{n}"}}': 1.0 for n in range(4)}
    collector.take("n1", SampleEncoder("1" * 32).encode(5.0, {}, {JOB: of_job}), {JOB}, at=5.0)
    with pytest.raises(BadRequest, match="4 curves"):
        read_job(collector.places, JOB, SeriesRange(["process_threads"]))


def test_a_value_that_one_of_several_series_lacks_counts_for_gauges_alone():
    columns, nan = ("read_bytes_total", "gpu_utilization_ratio", "cpus"), np.nan
    values = np.array([[1.0, 2.0, 0.25, 0.75], [1.0, nan, nan, 0.5], [nan, nan, nan, nan]])
    expected = [[3.0, 0.5, nan], [nan, 0.5, nan], [nan, nan, nan]]
    np.testing.assert_equal(by_column(columns, [[0, 1], [2, 3], []], values), expected)


Rows = list[tuple[int, int, float]]
row = st.tuples(st.integers(0, 4), st.integers(0, 200), st.floats(0, 1e6))


@given(st.lists(row, min_size=1, max_size=60, unique_by=lambda row: row[:2]), st.data())
def test_rows_joined_in_any_parts_keep_least_most_mean_and_count(rows: Rows, data: st.DataObject):
    rows.sort(key=lambda row: row[1])
    cuts = sorted({0, len(rows), *data.draw(st.lists(st.integers(0, len(rows)), max_size=4))})
    joined = JoinedNodes(("cpus",))
    for begin, end in pairwise(cuts):
        nodes, ticks, values = zip(*rows[begin:end], strict=True)
        column = np.array(values).reshape(-1, 1)
        join_rows(joined, NodeRows([*"abcde"], np.array(nodes), 1000 * np.array(ticks), column, column, column))
    [track] = joined_tracks(joined)
    by_stretch: dict[int, list[float]] = {}
    for _, tick, value in rows:
        by_stretch.setdefault(tick // 10, []).append(value)
    assert list(track.least) == [min(values) for values in by_stretch.values()]
    assert list(track.most) == [max(values) for values in by_stretch.values()]
    assert list(track.mean) == pytest.approx([sum(values) / len(values) for values in by_stretch.values()])
    assert track.node == f"{len({node for node, *_ in rows})} nodes"


def test_a_long_job_has_wider_stretches_and_not_more(monkeypatch):
    monkeypatch.setattr(joined_nodes, "_MOST_STRETCHES", 16)
    joined = JoinedNodes(("cpus",))
    for begin in range(0, 4000, 100):
        times, values = 10_000 * np.arange(begin, begin + 100), np.arange(begin, begin + 100.0).reshape(-1, 1)
        join_rows(joined, NodeRows(["a"], np.zeros(100, int), times, values, values, values))
    [track] = joined_tracks(joined)
    assert 8 <= len(track.times) <= 16
    assert (track.least[0], track.most[-1], track.times[-1]) == (0.0, 3999.0, 39_990_000)
