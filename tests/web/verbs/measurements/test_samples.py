"""Curves and files of jobs as they are asked for: by their owner, in every form."""

import io
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import h5py
import pytest

from oarlock.cli.oarlock import main
from oarlock.node.measure.wire import encode_sample
from oarlock.store.engine.tx import Tx
from tests.store.cluster import add_job
from tests.web.nodeless_server import Running, alone

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be several users")


def _fill(tx: Tx) -> None:
    add_job(tx, user="nobody", project="physics")
    add_job(tx, user="nobody")


@pytest.fixture
def api(sqlite_path: Path) -> Iterator[Running]:
    with alone(sqlite_path, job_min_uid=1) as running:
        running.core.database.write(_fill)
        for second in range(1000, 1020):
            data = encode_sample(
                float(second), {"load_1min": 1.0}, {1: {"cpu_seconds_total": second * 3.0, "cpus": 4.0}}
            )
            running.core.collector.collector.take("n1", data, {1}, at=float(second))
        yield running


def _raw(api: Running, path: str) -> tuple[int, dict[str, str], bytes]:
    with api.client_of("nobody").connected() as connection:
        connection.request("GET", f"/api/v1{path}")
        reply = connection.getresponse()
        return reply.status, dict(reply.getheaders()), reply.read()


def test_the_owner_of_a_job_sees_its_curves(api):
    reply = api.client_of("nobody").get("/jobs/1/series?metrics=cpu_seconds_total&points=3")
    [curve] = reply.body["series"]
    assert (curve["kind"], curve["unit"], [point[1:] for point in curve["points"]]) == (
        "rate",
        "seconds/s",
        [[3.0] * 3] * 3,
    )


def test_a_job_that_runs_is_downloaded_as_hdf5_and_nothing_is_left(api):
    status, headers, content = _raw(api, "/jobs/1/samples")
    assert (status, headers["content-type"]) == (200, "application/x-hdf5")
    assert headers["content-disposition"] == 'attachment; filename="job_1.h5"'
    with h5py.File(io.BytesIO(content)) as file:
        assert (file["job_1"].attrs["owner"], file["job_1"].attrs["project"]) == ("nobody", "physics")
        assert file["job_1/cpu"]["cpu_seconds_total"].tolist() == [second * 3.0 for second in range(1000, 1020)]
    assert list((api.core.state_dir / "samples" / "temporary").iterdir()) == []


def test_csv_has_the_metrics_and_the_time_that_were_asked_for(api):
    status, headers, content = _raw(api, "/jobs/1/samples?format=csv&metrics=cpus&since=1018")
    assert (status, headers["content-type"]) == (200, "text/csv; charset=utf-8")
    assert content.decode().splitlines() == ["time,node,cpus", "1018.000,n1,4.0", "1019.000,n1,4.0"]


def test_a_server_without_h5py_sends_csv_which_no_command_calls_hdf5(api, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "h5py", None)
    monkeypatch.setenv("OARLOCK_SERVER", str(api.socket))
    status, headers, _ = _raw(api, "/jobs/1/samples")
    assert (status, headers["content-disposition"]) == (200, 'attachment; filename="job_1.csv"')
    assert main(["samples", "1", "-o", str(tmp_path / "job.h5")]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "oarlock: The server sends CSV alone: h5py, which makes HDF5 files, is not installed there.",
        "  Name a file that ends in .csv.",
    ]
    assert main(["samples", "1", "-o", str(tmp_path / "job.csv")]) == 0
    assert [path.name for path in tmp_path.glob("job.*")] == ["job.csv"]


@pytest.mark.parametrize(
    ("path", "status", "sentence"),
    [
        ("/jobs/2/series", 404,
         "There are no curves of job 2: it was not measured yet, ran too short, or they were deleted."),
        ("/jobs/9/series", 404, "There is no job 9."),
        ("/jobs/1/series?points=501", 400, "`points` must be a whole number of at most 500."),
        ("/jobs/1/series?metrics=nonsense", 400, "There is no metric `nonsense` of a job."),
        ("/jobs/1/samples?metrics=cpus", 400, "An HDF5 file has everything that was measured of a job."),
        ("/nodes/n9/series", 404, "There are no curves of node n9 from then."),
    ],
)  # fmt: skip
def test_what_cannot_be_shown_is_refused_in_a_sentence(api, path, status, sentence):
    reply = api.client_of("nobody").get(path)
    assert (reply.status, reply.body["error"]) == (status, sentence)


def test_somebody_elses_curves_and_files_are_refused(api):
    for what in ("series", "samples"):
        reply = api.client_of("daemon").get(f"/jobs/1/{what}")
        assert (reply.status, reply.body["kind"]) == (403, "Forbidden")


def test_what_was_not_measured_is_said_and_is_no_empty_table(api, monkeypatch, capsys):
    monkeypatch.setenv("OARLOCK_SERVER", str(api.socket))
    assert main(["samples", "1", "-m", "perf_instructions_total"]) == 0
    assert capsys.readouterr().out == "Job 1, so far: nothing was measured of what is asked for.\n"


def test_an_event_that_no_processor_has_is_refused_with_the_nearest_one(api):
    change = {"nodes": ["n1"], "perf_events": ["instuctions"]}
    reply = api.client_of("root").post("/nodes/measure", change)
    assert (reply.status, reply.body["error"], reply.body["hint"]) == (
        400, "There is no event `instuctions` of a processor.", "Did you mean `instructions`?",
    )  # fmt: skip
