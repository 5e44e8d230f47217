"""A month as Parquet: what pandas reads in the files is what the database and the archive hold."""

import json
import os
import sys
from pathlib import Path

import pandas as pd
import pytest
from sqlalchemy import update

from oarlock.cli.oarlock import main
from oarlock.measure.collect.collector import Collector
from oarlock.measure.collect.files.hdf5 import ArchivedJob
from oarlock.measure.collect.files.parquet import parse_month
from oarlock.measure.collect.retention import Retention, RetentionPolicy
from oarlock.model.errors import BadRequest
from oarlock.model.job import JobState
from oarlock.node.measure.wire import encode_sample
from oarlock.store.engine.opening import open_database
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.usage import summaries
from oarlock.store.queries.usage.summaries import Summary
from oarlock.store.tables import jobs
from tests.store.cluster import add_job

MONTH = parse_month("2026-10")
BEGIN = MONTH.since + 86_400


def _fill(tx: Tx) -> None:
    """Jobs 1 and 2 end in the month, 3 in the next one; 4 never ran. Only job 1 has a summary."""
    for begin, end in ((BEGIN, BEGIN + 900), (BEGIN, MONTH.until - 1), (BEGIN, MONTH.until), (0, BEGIN)):
        job = add_job(tx, user="ada", project="physics", name="run", state=JobState.TERMINATED)
        tx.execute(update(jobs).where(jobs.c.job_id == job.id).values(start_time=begin, stop_time=end, exit_code=0))
    summaries.save(tx, [Summary(job_id=1, date=BEGIN + 900, cpu_seconds=1800.5, memory_peak_bytes=4096)])


@pytest.fixture
def state(sqlite_path) -> Path:
    """A state directory: jobs 1 to 3 were measured on two nodes for 15 minutes."""
    with open_database(sqlite_path) as database:
        database.write(_fill)
    collector = Collector(sqlite_path.parent / "samples")
    collector.start()
    for second in range(0, 900, 10):
        for node in ("n1", "n2"):
            values = {"cpu_seconds_total": 2.0 * second, "memory_anonymous_bytes": float(second % 300)}
            data = encode_sample(BEGIN + second, {"load_1min": 3.0}, dict.fromkeys((1, 2, 3), values))
            collector.take(node, data, {1, 2, 3}, at=BEGIN + second)
    for _ in range(2):
        collector.archive_ended(lambda ids: {job: ArchivedJob(job, "ada") for job in ids})
    collector.close()
    list(Retention(collector.places, RetentionPolicy(keep_free=0)).run(now=BEGIN + 2 * 86_400))
    return sqlite_path.parent


def exported(state: Path, folder: Path, *more: str) -> int:
    return main(["archive", "export", "--parquet", "2026-10", "-o", str(folder), "--state", str(state), *more])


def test_a_month_is_read_by_pandas_as_it_was(state, tmp_path, capsys):
    folder = tmp_path / "out"
    assert exported(state, folder, "--json") == 0
    assert {Path(file["path"]).name: file["rows"] for file in json.loads(capsys.readouterr().out)["files"]} == {
        "summaries-2026-10.parquet": 2, "series-2026-10.parquet": 24, "nodes-2026-10.parquet": 6}  # fmt: skip
    rows = pd.read_parquet(folder / "summaries-2026-10.parquet").set_index("job_id")
    assert rows.index.tolist() == [1, 2]
    assert rows.loc[1, ["job_user", "project", "stop_time", "cpu_seconds", "memory_peak_bytes"]].tolist() == [
        "ada", "physics", BEGIN + 900, 1800.5, 4096]  # fmt: skip
    assert pd.isna(rows.loc[2, "cpu_seconds"])
    assert not {"command", "job_env", "initial_request", "booked"} & set(rows.columns)
    series = pd.read_parquet(folder / "series-2026-10.parquet")
    memory = series[(series.job_id == 2) & (series.node == "n2") & (series.metric == "memory_anonymous_bytes")]
    assert memory[["unit", "kind", "least", "mean", "most"]].values.tolist() == [["bytes", "gauge", 0, 145, 290]] * 3
    assert memory.time.astype("int64").tolist() == [(BEGIN + second) * 1000 for second in (290, 590, 890)]
    nodes = pd.read_parquet(folder / "nodes-2026-10.parquet")
    assert nodes[["node", "series", "mean"]].drop_duplicates().values.tolist() == [
        ["n1", "load_1min", 3.0], ["n2", "load_1min", 3.0]]  # fmt: skip
    assert all(path.stat().st_mode & 0o077 == 0 for path in folder.iterdir())


def test_thinned_files_are_exported_as_they_are(state, tmp_path):
    exported(state, tmp_path / "whole")
    places = Collector(state / "samples").places
    policy = RetentionPolicy(full_days=1, thin_days=0, node_days=0, keep_free=0)
    assert len(list(filter(None, Retention(places, policy).run(now=BEGIN + 10**9)))) == 5
    exported(state, tmp_path / "thin")
    before, after = (pd.read_parquet(tmp_path / name / "series-2026-10.parquet") for name in ("whole", "thin"))
    pd.testing.assert_frame_equal(before, after)


def test_a_damaged_file_is_named_and_the_others_are_exported(state, tmp_path, capsys):
    file = Collector(state / "samples").places.archived(2)
    os.truncate(file, 2000)
    assert exported(state, tmp_path / "out") == 2
    assert f"1 files could not be read, and are left out: {file}" in capsys.readouterr().err
    assert pd.read_parquet(tmp_path / "out" / "series-2026-10.parquet").job_id.unique().tolist() == [1]


def test_what_is_there_is_not_replaced_and_a_month_must_be_one(state, tmp_path, capsys):
    (tmp_path / "nodes-2026-10.parquet").write_text("mine")
    assert exported(state, tmp_path) == 2
    assert "There is a file" in capsys.readouterr().err
    assert [path.name for path in tmp_path.glob("*.parquet")] == ["nodes-2026-10.parquet"]
    for text in ("2026-13", "October", "2026-10-01", ""):
        with pytest.raises(BadRequest, match="is not a month"):
            parse_month(text)
    assert parse_month("2026-12")[1:] == (1796083200, 1798761600)


def test_without_pyarrow_a_sentence_says_what_to_install(state, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert exported(state, tmp_path / "out") == 2
    assert "pyarrow is not installed" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
