"""The collector: rows of jobs that are there, gaps that say so, one file a job, whatever is killed."""

import json
import os
import random
import signal
import struct
import sys
import tracemalloc
from pathlib import Path

import h5py
import pandas as pd
import pytest

from oarlock.measure.collect import series
from oarlock.measure.collect.collector import LEAST_SAMPLES, Collector
from oarlock.measure.collect.files import hdf5, rowlog
from oarlock.measure.collect.files.hdf5 import ArchivedJob, DamagedArchive
from oarlock.measure.collect.files.rowlog import RowLog, read_log
from oarlock.measure.collect.files.steps import finish
from oarlock.measure.collect.questions import CSV, JobFile, answer, answer_in_steps
from oarlock.measure.collect.series import SeriesRange, read_job, tracks_of
from oarlock.model.errors import BadRequest
from oarlock.node.measure.wire import SampleEncoder, encode_sample

ADA = ArchivedJob(41302, "ada", "physics", "run", "oarsub -l nodes=2", ("n1", "n2"), 1, "Terminated", 100, 400)
BOOT = "0d5a6a4e7a434d6d9d536f9a2a3a9a11"


@pytest.fixture
def collector(tmp_path) -> Collector:
    made = Collector(tmp_path / "samples")
    made.start()
    yield made
    made.close()


def values(at: float) -> dict[str, float]:
    cores = {f'core_cpu_seconds_total{{core="{core}"}}': at / 2 for core in range(2)}
    return {"cpu_seconds_total": at, **cores, "memory_anonymous_bytes": 5e6 + at, "own_thing": 1.0}


def fed(collector: Collector, job: int = 41302, *, begin: int = 0, count: int = 30, nodes=("n1", "n2")) -> None:
    for second in range(begin, begin + count):
        for node in nodes:
            data = encode_sample(1000.0 + second, {"load1": 1.0}, {job: values(second)})
            collector.take(node, data, {job}, at=1000.0 + second)


def ended(*jobs: ArchivedJob):
    return lambda ids: {job.job: job for job in jobs if job.job in ids}


def archive(collector: Collector, *jobs: ArchivedJob) -> list[int]:
    """Look twice: a job that is over waits for late samples once."""
    return [*collector.archive_ended(ended(*jobs)), *collector.archive_ended(ended(*jobs))]


def test_a_job_becomes_one_file_that_h5py_and_pandas_read(collector):
    fed(collector)
    assert archive(collector, ADA) == [41302]
    path = collector.places.root / "041" / "302" / "41302.h5"
    assert (path.stat().st_mode & 0o777, collector.places.logged_jobs()) == (0o600, set())
    with h5py.File(path) as file:
        group = file["job_41302"]
        assert set(group) == {"cpu", "memory", "other"}
        assert group["cpu"].chunks == (60,)
        assert (group["cpu"].compression, group["cpu"].shuffle) == ("gzip", True)
        assert json.loads(group["cpu"].attrs["hosts"]) == ["n1", "n2"]
        assert json.loads(group["cpu"].attrs["units"])["cpu_seconds_total"] == "seconds"
        assert (
            json.loads(group["cpu"].attrs["series"])["core_cpu_seconds_total_1"] == 'core_cpu_seconds_total{core="1"}'
        )
        assert group["cpu"]["time"][:2].tolist() == [1_000_000, 1_000_000]
    frame = pd.read_hdf(path, "job_41302/cpu")
    assert frame["cpu_seconds_total"].tolist() == [float(n // 2) for n in range(60)]
    about = hdf5.read_about(path)
    assert {name: about[name] for name in ("owner", "project", "nodes", "attempts", "request", "gaps", "version")} == {
        "owner": "ada", "project": "physics", "nodes": ["n1", "n2"], "attempts": 1, "request": "oarsub -l nodes=2",
        "gaps": [], "version": 1,
    }  # fmt: skip


def test_a_short_job_gets_no_file(collector):
    fed(collector, count=LEAST_SAMPLES - 1)
    assert archive(collector, ADA) == [41302]
    assert (collector.places.logged_jobs(), list(collector.places.archived_jobs())) == (set(), [])


def test_without_h5py_logs_stay_curves_work_and_downloads_are_csv(collector, monkeypatch):
    places, file = collector.places, JobFile(41302)
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "h5py", None)
        fed(collector)
        archive(collector, ADA)
        assert (places.logged_jobs(), places.kept(41302)) == ({41302}, None)
        curves = read_job(places, 41302, SeriesRange(["cpu_seconds_total"]))
        view = json.loads(answer(collector, file, lambda _: {}))
        assert (view["form"], len(Path(view["path"]).read_text().splitlines())) == (CSV, 61)
    later = Collector(places.root)
    later.start()
    archive(later, ADA)
    assert (places.logged_jobs(), places.kept(41302)) == (set(), places.archived(41302))
    assert read_job(places, 41302, SeriesRange(["cpu_seconds_total"])).series == curves.series


def test_a_job_that_the_database_lacks_is_kept_without_an_owner(collector):
    """A database that was restored from a backup does not know the jobs that ran since."""
    fed(collector)
    for _ in range(2):
        collector.archive_ended(lambda ids: dict.fromkeys(ids))
    assert (collector.places.logged_jobs(), [job for job, _ in collector.places.archived_jobs()]) == (set(), [41302])
    assert hdf5.read_about(collector.places.archived(41302))["owner"] == ""


def test_only_jobs_that_are_on_the_node_are_logged(collector):
    collector.take("n1", encode_sample(5.0, {}, {7: {"cpus": 1.0}, 8: {"cpus": 1.0}}), {8}, at=5.0)
    assert collector.places.logged_jobs() == {8}


def test_a_sample_that_comes_twice_is_logged_once(collector):
    frame = SampleEncoder(BOOT).encode(5.0, {}, {8: {"cpus": 1.0}})
    for _ in range(2):
        collector.take("n1", frame, {8}, at=5.0)
    assert (read_log(collector.places.log(8).read_bytes()).rows, collector.counts["refused"]) == (1, 1)


def test_where_a_clock_is_wrong_the_arrival_counts_and_the_file_says_so(collector):
    for second in range(20):
        collector.take("n1", encode_sample(9000.0 + second, {}, {41302: values(second)}), {41302}, at=500.0 + second)
    archive(collector, ADA)
    path = collector.places.archived(41302)
    assert hdf5.read_about(path)["clocks"] == {"n1": 8500.0}
    assert hdf5.read_tracks(path, lambda name: name == "cpu_seconds_total", 0, 1 << 62)[0].times[0] == 500_000


def test_a_gap_that_is_marked_and_one_that_is_seen_are_in_the_file(collector):
    fed(collector, count=10, nodes=["n1"])
    collector.mark_gap("n1", [41302], since=1010.0, until=1012.0, why="the collector was behind")
    fed(collector, begin=60, count=10, nodes=["n1"])
    archive(collector, ADA)
    assert hdf5.read_about(collector.places.archived(41302))["gaps"] == [
        ["n1", 1_009_000, 1_060_000, "nothing came"],
        ["n1", 1_010_000, 1_012_000, "the collector was behind"],
    ]


def test_a_disk_that_takes_nothing_costs_a_gap_and_nothing_else(collector, caplog):
    fed(collector, count=3, nodes=["n1"])
    log = collector.places.log(41302)
    collector.close()
    log.rename(log.with_suffix(".aside"))
    log.mkdir()  # nobody can append to a folder
    fed(collector, begin=3, count=3, nodes=["n1"])
    assert collector.counts["dropped"] == 3
    assert collector.trouble
    assert len([record for record in caplog.records if "cannot be written" in record.message]) >= 1
    log.rmdir()
    log.with_suffix(".aside").rename(log)
    fed(collector, begin=6, count=2, nodes=["n1"])
    content = read_log(log.read_bytes())
    assert [note.about for note in content.notes] == [
        {"since": 1_003_000, "until": 1_006_000, "why": "the disk took nothing"}
    ]
    assert [track.times for track in tracks_of(content) if track.series == "cpu_seconds_total"] == [
        [1_000_000, 1_001_000, 1_002_000, 1_006_000, 1_007_000]
    ]


def test_samples_that_come_after_the_file_was_made_are_left_out(collector):
    fed(collector)
    archive(collector, ADA)
    fed(collector, begin=90, count=1, nodes=["n1"])
    assert (collector.refused, collector.places.logged_jobs()) == ({"n1": 1}, set())


def test_a_job_with_very_many_columns_has_several_tables(collector):
    many = {f'threads{{executable="/opt/{"x" * 300}/{n}"}}': float(n) for n in range(700)}
    for second in range(LEAST_SAMPLES):
        collector.take("n1", encode_sample(float(second), {}, {41302: many}), {41302}, at=float(second))
    archive(collector, ADA)
    path = collector.places.archived(41302)
    tracks = hdf5.read_tracks(path, lambda _: True, 0, 1 << 62)
    assert {track.series: track.mean[0] for track in tracks} == many
    with h5py.File(path) as file:
        assert len(file["job_41302"]) > 3


def test_the_file_of_a_log_is_made_with_little_of_it_in_memory(collector, monkeypatch):
    monkeypatch.setattr(hdf5, "_BATCH_VALUES", 1 << 14)
    monkeypatch.setattr(hdf5, "_CHUNK", 64)
    monkeypatch.setattr(rowlog, "_PIECE", 1 << 18)
    names, places = tuple(f'threads{{executable="{n}"}}' for n in range(500)), collector.places
    log = RowLog(places.log(7))
    for row in range(2000):
        log.row(1000 * (2000 - row), f"n{row % 3}", names, struct.pack("<500d", *range(row, row + 500)))
    log.write()
    log.close()
    tracemalloc.start()
    hdf5.write_job(places.archived(7), places.temporary, ArchivedJob(7), rowlog.survey_log(places.log(7)))
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < places.log(7).stat().st_size / 3
    tables = [hdf5.read_tracks(places.archived(7), name.__eq__, 0, 1 << 62) for name in (names[0], names[-1])]
    assert [(track.node, len(track.times)) for track in tables[0]] == [("n0", 667), ("n1", 667), ("n2", 666)]
    for first, last in zip(*tables, strict=True):
        assert list(first.times) == sorted(first.times)
        assert [value - 499 for value in last.mean] == first.mean == [2000 - at / 1000 for at in first.times]


@pytest.fixture
def small_steps(monkeypatch):
    monkeypatch.setattr(hdf5, "_BATCH_VALUES", 1 << 12)
    monkeypatch.setattr(hdf5, "_CHUNK", 64)
    monkeypatch.setattr(rowlog, "_PIECE", 1 << 12)


def test_rows_of_other_jobs_are_taken_between_the_steps_of_a_large_file(collector, small_steps):
    fed(collector, count=500)
    look = ended(ADA)
    assert collector.archive_ended(look) == []  # late samples are waited for once
    steps = 0
    for steps, _ in enumerate(collector.archive_in_steps(look, lambda jobs: jobs), 1):
        fed(collector, 7, begin=500 + steps, count=1)
        fed(collector, begin=500 + steps, count=1)  # too late
    assert steps > 20
    assert collector.refused == {"n1": steps, "n2": steps}
    assert collector.places.logged_jobs() == {7}
    [track, _] = hdf5.read_tracks(collector.places.archived(ADA.job), "cpu_seconds_total".__eq__, 0, 1 << 62)
    assert list(track.mean) == list(range(500))
    [group] = read_log(collector.places.log(7).read_bytes()).groups.values()
    assert len(group.times) == 2 * steps
    assert list(collector.places.temporary.iterdir()) == []


def test_a_file_for_a_download_is_made_in_steps_while_the_job_goes_on(collector, small_steps):
    fed(collector, count=500)
    steps, making = 0, answer_in_steps(collector, JobFile(ADA.job), lambda _: {ADA.job: ADA})
    while True:
        try:
            next(making)
        except StopIteration as end:
            view = json.loads(end.value)
            break
        steps += 1
        fed(collector, begin=500 + steps, count=1)
    assert steps > 20
    with h5py.File(view["path"]) as file:
        assert len(file["job_41302/cpu"]) >= 1000
    assert view["temporary"]


def test_a_download_whose_job_ends_meanwhile_gets_the_file_that_is_kept(collector, small_steps):
    fed(collector, count=500)
    making = answer_in_steps(collector, JobFile(ADA.job), lambda _: {ADA.job: ADA})
    next(making)
    archive(collector, ADA)
    view = json.loads(finish(making))
    with h5py.File(view["path"]) as file:
        assert file["job_41302"].attrs["owner"] == "ada"


def test_a_job_that_cannot_be_archived_keeps_its_log_and_holds_up_no_other(collector, caplog):
    fed(collector, 7)
    fed(collector)
    archive(collector, ArchivedJob(7, name="HDF5 takes no \0 in a text"), ADA)
    assert (collector.places.logged_jobs(), [job for job, _ in collector.places.archived_jobs()]) == ({7}, [ADA.job])
    assert "cannot be archived" in caplog.text
    assert list(collector.places.temporary.iterdir()) == []


def test_more_values_than_can_be_read_at_once_are_refused(collector, monkeypatch):
    monkeypatch.setattr(series, "MOST_READ", 100)
    fed(collector)
    wanted = SeriesRange(["cpu_seconds_total", "memory_anonymous_bytes"])
    for _ in range(2):
        with pytest.raises(BadRequest, match="more than 100 values; so many are not read at once"):
            read_job(collector.places, 41302, wanted)
        part = read_job(collector.places, 41302, wanted._replace(since=1010.0, until=1020.0))
        assert [len(curve.points) for curve in part.series] == [10, 10, 11, 11]
        archive(collector, ADA)


def test_a_damaged_file_is_named(collector):
    fed(collector)
    archive(collector, ADA)
    path = collector.places.archived(41302)
    path.write_bytes(path.read_bytes()[:3000])
    with pytest.raises(DamagedArchive, match=r"41302\.h5 is damaged"):
        hdf5.read_about(path)


def _collect_until_killed(root: Path, line: int) -> None:
    """Log samples of two jobs, one after the other, and tell after each that it is logged; then archive the first."""
    made = Collector(root)
    made.start()
    second = 0
    while True:
        second += 1
        for job in (1, 2):
            made.take("n1", encode_sample(float(second), {}, {job: values(second)}), {job}, at=float(second))
        os.write(line, struct.pack("<I", second))
        if second % 20 == 0:
            made.archive_ended(ended(ArchivedJob(1, "ada")))


def test_killed_at_any_instant_nothing_that_was_logged_is_lost(tmp_path):
    """Twelve kills; job 1 is over all the time, so that the kill comes while its file is made, too."""
    dice, root = random.Random("kills"), tmp_path / "samples"
    for _ in range(12):
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(read)
            _collect_until_killed(root, write)
        os.close(write)
        last = 0
        for _ in range(dice.randrange(1, 90)):
            last = struct.unpack("<I", os.read(read, 4))[0]
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(read)
        made = Collector(root)
        made.start()
        archived = made.places.archived(1)
        kept = _seconds(made, 2)
        assert kept[-1] >= last * 1000
        assert kept == list(range(1000, kept[-1] + 1, 1000))
        if archived.exists():
            assert made.places.logged_jobs() == {2}
            assert hdf5.read_tracks(archived, lambda name: name == "cpu_seconds_total", 0, 1 << 62)[0].times[0] == 1000
            archived.unlink()
        made.places.log(2).unlink()
        made.places.log(1).unlink(missing_ok=True)


def _seconds(collector: Collector, job: int) -> list[int]:
    content = read_log(collector.places.log(job).read_bytes())
    [track] = [track for track in tracks_of(content) if track.series == "cpu_seconds_total"]
    return list(track.times)
