"""Copies of jobs that run: the same curves as the log has, in bounded memory, also after a crash."""

import struct
from functools import partial

import pytest

from oarlock.measure.collect import series
from oarlock.measure.collect.collector import Collector
from oarlock.measure.collect.files.rowlog import RowLog
from oarlock.measure.collect.series import SeriesRange, read_job
from oarlock.measure.collect.sums.running_sums import RunningSums
from oarlock.measure.collect.sums.thinned_copy import MOST_NODES, JobCopy, ThinnedCopies
from oarlock.node.measure.wire import SampleEncoder

JOB = 7
NAMES = ("cpu_seconds_total", "cpus", "memory_anonymous_bytes")
GPU = 'gpu_utilization_ratio{gpu="0"}'

EVERYTHING = SeriesRange()


def feed(collector: Collector, instants: list[float], encoder: SampleEncoder, names: tuple[str, ...] = NAMES) -> None:
    for at in instants:
        values = dict.fromkeys(names, 2.0 * at % 977) | {"cpu_seconds_total": 1.5 * at}
        collector.take("n1", encoder.encode(at, {"load_1min": 1.0}, {JOB: values}), {JOB}, at=at)


def started(root) -> Collector:
    collector = Collector(root / "samples")
    collector.start()
    return collector


def views(collector: Collector, wanted: SeriesRange = EVERYTHING) -> tuple:
    """The curves by the copy, and by the log."""
    by_copy = read_job(collector.places, JOB, wanted, read_copy=partial(collector.sums.curves, JOB))
    return by_copy, read_job(collector.places, JOB, wanted)


def test_the_copy_of_a_short_job_says_what_its_log_says(tmp_path):
    collector, encoder = started(tmp_path), SampleEncoder("1" * 32)
    feed(collector, [1000.0 + 10 * n for n in range(50)], encoder)
    feed(collector, [3000.0 + 10 * n for n in range(41)], encoder)  # long after: a gap
    by_copy, by_log = views(collector)
    assert by_copy.series == by_log.series
    assert by_copy.gaps == by_log.gaps == [("n1", 1490.0, 3000.0, "nothing came")]
    inside = SeriesRange(["memory_anonymous_bytes"], 1100.0, 1200.0, 5)
    by_copy, by_log = views(collector, inside)
    assert by_copy.series == by_log.series != []


def test_what_the_copy_lacks_is_read_from_the_log(tmp_path):
    collector = started(tmp_path)
    feed(collector, [1000.0 + 10 * n for n in range(20)], SampleEncoder("1" * 32))
    for wanted in (SeriesRange(["cpus"]), SeriesRange(["cpus", "cpu_seconds_total"])):
        by_copy, by_log = views(collector, wanted)
        assert by_copy == by_log


def test_a_copy_goes_on_where_it_was_stored(tmp_path):
    collector, encoder = started(tmp_path), SampleEncoder("1" * 32)
    feed(collector, [1000.0 + 10 * n for n in range(45)], encoder)
    collector.mark_gap("n1", [JOB], since=1445.0, until=1449.0, why="the server was away")
    collector.sums.store()
    feed(collector, [1450.0 + 10 * n for n in range(45)], encoder)
    whole, _ = views(collector)
    collector.close()  # and killed: what came after is in the log alone
    assert views(started(tmp_path))[0] == whole
    (tmp_path / "samples" / "summaries.state").unlink()
    assert views(started(tmp_path))[0] == whole
    assert ("n1", 1445.0, 1449.0, "the server was away") in whole.gaps


def test_series_that_come_and_go_stay_one_curve(tmp_path):
    collector, encoder = started(tmp_path), SampleEncoder("1" * 32)
    for begin, names in ((1000, NAMES), (1400, (*NAMES, GPU)), (1800, NAMES)):
        feed(collector, [begin + 10.0 * n for n in range(40)], encoder, names)
    by_copy, by_log = views(collector)
    assert [curve.series for curve in by_copy.series] == ["cpu_seconds_total", GPU, "memory_anonymous_bytes"]
    assert by_copy.series[1:] == by_log.series[1:]


def test_all_copies_keep_within_their_room():
    room, jobs = 200_000, [JobCopy() for _ in range(30)]
    copies = ThinnedCopies(room)
    for second in range(1500):
        packed = struct.pack("<3d", second, 1.0, second % 977)
        for copy in jobs:
            copies.take(copy, "n1", second * 1000, NAMES, packed)
    size = sum(len(part.times) + len(part.cells) for copy in jobs for part in copy.nodes["n1"])
    assert room / 3 < size < 1.5 * room
    curves = copies.read(jobs[-1], lambda name: name == "memory_anonymous_bytes")
    assert curves is not None
    [track] = curves.tracks
    assert (min(track.least), max(track.most)) == (0.0, 976.0)
    assert curves.width > 10_000
    for copy in jobs[1:]:
        copies.forget(copy)
    for second in range(1500, 4500):
        copies.take(jobs[0], "n1", second * 1000, NAMES, struct.pack("<3d", second, 1.0, 1.0))
    assert len(jobs[0].nodes["n1"][0].times) > 8 * 100  # the others left it their room


def test_a_job_whose_copy_would_have_to_be_joined_late_has_none():
    copies, copy = ThinnedCopies(), JobCopy()
    for second in range(40):
        copies.take(copy, "n0", 1000 * second, NAMES, bytes(24))
    for node in range(1, MOST_NODES + 1):
        copies.take(copy, f"n{node}", 40_000, NAMES, bytes(24))
    assert (copies.read(copy, lambda _: True), copy.nodes) == (None, {})


def test_a_plot_of_a_huge_log_does_not_read_it(tmp_path, monkeypatch):
    collector, encoder = started(tmp_path), SampleEncoder("1" * 32)
    feed(collector, [1000.0 + 10 * n for n in range(2000)], encoder)
    monkeypatch.setattr(series, "_LARGE_LOG", 1000)
    monkeypatch.setattr(series, "read_log_file", pytest.fail)
    copy = read_job(collector.places, JOB, SeriesRange(), read_copy=partial(collector.sums.curves, JOB))
    assert 100 < len(copy.series[0].points) <= 500
    assert copy.series[0].points[-1][0] == 20_990.0
    assert all(rate == pytest.approx(1.5) for _, *rates in copy.series[0].points for rate in rates)


def test_without_numpy_logs_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr("oarlock.measure.collect.sums.thinned_copy.find_spec", lambda _name: None)
    collector = started(tmp_path)
    feed(collector, [1000.0 + 10 * n for n in range(40)], SampleEncoder("1" * 32))
    assert collector.sums.curves(JOB, lambda _: True) is None
    by_copy, by_log = views(collector)
    assert by_copy == by_log


def test_late_rows_are_in_the_log_alone(tmp_path):
    places = started(tmp_path).places
    log = RowLog(places.log(JOB))
    for at in (1000, 2000, 1500, 3000):
        log.row(at, "n1", NAMES, struct.pack("<3d", at, 1.0, at))
    log.write()
    sums = RunningSums(places, 30.0)
    sums.restore([JOB])
    copy = sums.curves(JOB, lambda name: name == "memory_anonymous_bytes")
    assert [list(track.times) for track in copy.tracks] == [[1000, 2000, 3000]]
