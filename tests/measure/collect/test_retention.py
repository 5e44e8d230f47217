"""How long measurements are kept: whole, then thinned, then no more."""

import contextlib
import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oarlock.cli.oarlock import main
from oarlock.measure.collect import retention
from oarlock.measure.collect.collector import Collector
from oarlock.measure.collect.files import hdf5, thinning
from oarlock.measure.collect.files.hdf5 import ArchivedJob
from oarlock.measure.collect.files.places import SamplePlaces
from oarlock.measure.collect.files.rowlog import RowLog, read_log
from oarlock.measure.collect.retention import Retention, RetentionPolicy
from oarlock.measure.collect.series import SeriesRange, read_job, read_node
from oarlock.node.measure.wire import encode_sample

DAY = 86_400
NOW = 1_000_000_000.0


def fed(places: SamplePlaces, *jobs: int, begin: float = NOW - 900, seconds: int = 900) -> Collector:
    """Let jobs be measured every ten seconds, and be over."""
    collector = Collector(places.root)
    collector.start()
    for second in range(0, seconds, 10):
        values = {"cpu_seconds_total": 3.0 * second, "memory_anonymous_bytes": float(second % 300)}
        data = encode_sample(begin + second, {"load_1min": 2.0}, dict.fromkeys(jobs, values))
        collector.take("n1", data, set(jobs), at=begin + second)
    for _ in range(2):
        collector.archive_ended(lambda ids: {job: ArchivedJob(job, "ada") for job in ids})
    collector.close()
    return collector


@pytest.fixture
def places(tmp_path) -> SamplePlaces:
    (tmp_path / "state").mkdir()
    return SamplePlaces(tmp_path / "state" / "samples")


def aged(path: Path, days: float) -> None:
    os.utime(path, (NOW - days * DAY, NOW - days * DAY))


def names(places: SamplePlaces) -> list[str]:
    return [path.name for _, path in places.archived_jobs()]


def run(places: SamplePlaces, now: float = NOW, **policy: int) -> list[str]:
    return [
        change for change in Retention(places, RetentionPolicy(**{"keep_free": 0, **policy})).run(now=now) if change
    ]


def test_files_are_whole_then_thinned_then_gone(places):
    fed(places, 1, 2, 3)
    for job, days in ((1, 800), (2, 100), (3, 10)):
        aged(places.archived(job), days)
    run(places)
    assert names(places) == ["2.thin.h5", "3.h5"]
    assert run(places) == []
    assert places.kept(2).stat().st_mtime == NOW - 100 * DAY


def test_a_thinned_job_has_curves_with_least_mean_and_most(places):
    fed(places, 1)
    aged(places.archived(1), 100)
    run(places)
    view = read_job(places, 1, SeriesRange())
    assert (view.thinned, view.live) == (300, False)
    curves = {curve.series: curve.points for curve in view.series}
    assert [(low, high) for _, low, _, high in curves["memory_anonymous_bytes"]][1] == (0.0, 290.0)
    assert [mean for _, _, mean, _ in curves["cpu_seconds_total"]] == [3.0] * (len(curves["cpu_seconds_total"]))
    assert hdf5.read_about(places.kept(1))["owner"] == "ada"


def test_pinned_files_stay_as_they_are(places):
    fed(places, 1, 2, 3)
    for job, days in ((1, 800), (2, 100), (3, 100)):
        aged(places.archived(job), days)
    policy = RetentionPolicy(keep_free=101)  # no disk is as free as that
    list(Retention(places, policy, pinned=lambda: {1, 2}).run(now=NOW))
    assert names(places) == ["1.h5", "2.h5", "3.thin.h5"]


@pytest.fixture
def small_disk(tmp_path) -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small disk")
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", str(disk)], check=True)
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def noisy(places: SamplePlaces, job: int) -> None:
    """Let a job be measured for 20 minutes, with values that do not get smaller in a file: about 400 kB."""
    collector = Collector(places.root)
    collector.start()
    dice = random.Random(job)
    for second in range(0, 1200, 10):
        values = {f'process_cpu_seconds_total{{exe="p{n}"}}': dice.random() for n in range(400)}
        at = NOW - 900 + second
        collector.take("n1", encode_sample(at, {}, {job: values}), {job}, at=at)
    for _ in range(2):
        collector.archive_ended(lambda ids: {job: ArchivedJob(job, "ada") for job in ids})
    collector.close()


def saved_by_thinning(places: SamplePlaces, job: int) -> int:
    """Return how much smaller such a file gets; nothing stays of it."""
    noisy(places, job)
    path, before = places.archived(job), places.room().free
    thinning.thin(path, path, places.temporary)
    saved = places.room().free - before
    path.unlink()
    return saved


def test_a_nearly_full_disk_thins_the_oldest_until_there_is_room(small_disk, caplog):
    places, told = SamplePlaces(small_disk / "samples"), []
    for job, days in ((1, 3), (2, 50), (3, 10), (4, 20)):
        noisy(places, job)
        aged(places.archived(job), days)
    saved = saved_by_thinning(places, 5)
    room = places.room()
    filler = small_disk / "other"  # there is room again once the two oldest are thinned
    filler.write_bytes(bytes(room.free - room.total * 10 // 100 + saved * 3 // 2))
    keeping = Retention(places, RetentionPolicy(), on_shortage=told.append)
    keeping.step(now=NOW, seconds=60)
    assert names(places) == ["1.h5", "2.thin.h5", "3.h5", "4.thin.h5"]
    assert len(told) == caplog.text.count("nearly full") == 1
    assert "less than 10 % (ARCHIVE_KEEP_FREE)" in told[0]
    with filler.open("ab") as file:
        file.write(bytes(saved))
    keeping.step(now=NOW + 400, seconds=60)  # long before the next look at all files
    assert names(places) == ["1.h5", "2.thin.h5", "3.thin.h5", "4.thin.h5"]
    assert len(told) == 1


def test_the_end_of_a_disk_is_left_to_the_server(small_disk, caplog):
    places = SamplePlaces(small_disk / "samples")
    noisy(places, 1)
    left = places.room().total // 20
    filler = small_disk / "other"
    filler.write_bytes(bytes(places.room().free - left + 100_000))
    collector = fed(places, 2)
    assert (collector.counts["rows"], collector.counts["dropped"]) == (0, 180)
    assert [record.why for record in caplog.records] == ["[Errno 28] what is left of the disk is the server's"]
    assert places.room().free >= left - 110_000
    filler.unlink()
    collector = fed(places, 2)
    assert (collector.counts["dropped"], names(places)) == (0, ["1.h5", "2.h5"])


def test_a_day_of_a_node_becomes_a_file_and_its_curve_stays(places):
    begin = NOW - NOW % DAY - 2 * DAY + 1000
    fed(places, 7, begin=begin)
    before = read_node(places, "n1", SeriesRange(["load_1min"], begin - 1, begin + 900), now=NOW)
    run(places)
    assert [path.suffix for path in places.node_files("n1")] == [".h5"]
    after = read_node(places, "n1", SeriesRange(["load_1min"], begin - 1, begin + 900), now=NOW)
    assert (after.series, after.involved_jobs) == (before.series, [7])
    run(places, now=NOW + 800 * DAY)
    assert [path.name.partition(".")[2] for path in places.node_files("n1")] == ["thin.h5"]
    run(places, now=NOW + 800 * DAY)
    assert hdf5.read_about(places.node_files("n1")[0])["thinned"] == 3600
    run(places, now=NOW + 4000 * DAY)
    assert places.node_files("n1") == []


def test_a_step_does_a_little_and_goes_on_the_next_time(places):
    fed(places, *range(1, 6))
    for job in range(1, 6):
        aged(places.archived(job), 100)
    kept = Retention(places, RetentionPolicy(keep_free=0))
    kept.step(now=NOW, seconds=0.0)
    assert names(places).count("1.thin.h5") == 1 or "5.h5" in names(places)
    for _ in range(60):  # it stops after each part of a file
        kept.step(now=NOW, seconds=0.0)
    assert names(places) == [f"{job}.thin.h5" for job in range(1, 6)]


def test_a_huge_file_is_thinned_in_steps_and_samples_are_taken_meanwhile(places, monkeypatch):
    collector = fed(places, 1)
    aged(places.archived(1), 100)
    monkeypatch.setattr(thinning, "_BATCH_VALUES", 8)  # as if it had millions of rows
    kept = Retention(places, RetentionPolicy(keep_free=0))
    steps = 0
    while names(places) != ["1.thin.h5"]:
        kept.step(now=NOW, seconds=0.0)
        steps += 1
        assert {path.name for path in places.root.rglob("1*.h5")} & {"1.h5", "1.thin.h5"}  # never without a file
        collector.take("n1", encode_sample(float(NOW + steps), {"load_1min": 2.0}, {}), set(), at=float(NOW + steps))
        assert steps < 1000
    assert steps > 10
    assert collector.counts["rows"] > steps


def test_thinning_that_is_given_up_leaves_the_file(places):
    fed(places, 1)
    whole = places.archived(1)
    walk = thinning.thin_in_steps(whole, whole.with_name("1.thin.h5"), places.temporary)
    next(walk)
    walk.close()
    assert (names(places), list(places.temporary.iterdir())) == (["1.h5"], [])


@settings(max_examples=25)
@given(
    st.lists(
        st.tuples(st.integers(0, 1500), st.sampled_from(["n1", "n2"]), st.floats(-1e6, 1e6) | st.just(float("nan"))),
        min_size=1, max_size=40, unique_by=lambda row: row[:2],
    ),
    st.sampled_from([1, 9, 1 << 20]),
)  # fmt: skip
def test_thinning_keeps_least_mean_and_most_of_each_stretch(rows, batch):
    """However many values of the file are in memory at once."""
    folder = Path(os.environ.get("TMPDIR", "/tmp")) / f"oarlock-thin-{os.getpid()}-{time.monotonic_ns()}"
    places = SamplePlaces(folder)
    places.prepare()
    log = RowLog(folder / "log")
    for second, node, value in sorted(rows):
        log.row(second * 1000, node, ("cpus",), np.float64(value).tobytes())
    log.write()
    log.close()
    path = places.archived(1)
    hdf5.write_job(path, places.temporary, ArchivedJob(1), read_log((folder / "log").read_bytes()))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(thinning, "_BATCH_VALUES", batch)
        thinning.thin(path, path, places.temporary)
    expected = {}
    for second, node, value in rows:
        if value == value:
            expected.setdefault((node, second // 300), []).append(value)
    tracks = hdf5.read_tracks(path, lambda _: True, 0, 1 << 62)
    shutil.rmtree(folder)
    seen = {
        (track.node, at // 300_000): (low, mean, high)
        for track in tracks
        for at, low, mean, high in zip(track.times, track.least, track.mean, track.most, strict=True)
    }
    assert seen.keys() == expected.keys()
    for key, values in expected.items():
        assert seen[key][0] == min(values)
        assert seen[key][2] == max(values)
        assert seen[key][1] == pytest.approx(sum(values) / len(values), abs=1e-6)


def test_check_names_what_cannot_be_read_and_status_counts(places, capsys):
    fed(places, 1, 2)
    state = ["--state", str(places.root.parent)]
    assert main(["archive", "check", *state]) == 0
    assert main(["archive", "status", *state]) == 0
    assert "jobs, whole           2 files" in capsys.readouterr().out
    path = places.archived(2)
    path.write_bytes(path.read_bytes()[:2000])
    with (places.live / "9.rows").open("wb") as file:
        file.write(b"torn")
    problems = []
    assert retention.check(places, problems.append) == 4
    assert [problem.partition(":")[0] for problem in problems] == [str(places.live / "9.rows"), str(path)]
    assert main(["archive", "check", *state]) == 2
    assert "2 of 4 files cannot be read whole" in capsys.readouterr().err


def _everything_drawn(master: int) -> str:
    """Return all that was written to a terminal whose other end is closed.

    A read returns what has arrived so far, which may be the first of several writes; EIO says that all was read.
    """
    drawn = b""
    with os.fdopen(master, "rb", buffering=0) as ours, contextlib.suppress(OSError):
        while piece := ours.read(10_000):
            drawn += piece
    return drawn.decode()


def test_a_check_at_a_terminal_shows_how_far_it_is(places, capsys, monkeypatch):
    fed(places, 1, 2)
    ours, theirs = os.openpty()
    with os.fdopen(theirs, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        assert main(["archive", "check", "--state", str(places.root.parent)]) == 0
        monkeypatch.undo()
    drawn = _everything_drawn(ours)
    assert capsys.readouterr().out == "All 3 files are whole.\n"
    assert drawn.startswith(f"\r\x1b[K{'░' * 30}   0 %  checked")
    assert drawn.endswith("\r\x1b[K")


def test_thin_by_hand_takes_what_is_older_than_asked(places, sqlite_path, capsys):
    fed(places, 1, 2)
    for job, days in ((1, 5), (2, 1)):
        old = time.time() - days * DAY
        os.utime(places.archived(job), (old, old))
    shutil.copy(sqlite_path, places.root.parent / "oarlock.db")
    assert main(["archive", "thin", "--keep-days", "3", "--json", "--state", str(places.root.parent)]) == 0
    assert json.loads(capsys.readouterr().out)["changes"][-1] == f"{places.archived(1)} thinned"
    assert names(places) == ["1.thin.h5", "2.h5"]
    assert main(["archive", "status", "--state", str(places.root.parent / "nowhere")]) == 2
    assert "There are no measurements at" in capsys.readouterr().err
