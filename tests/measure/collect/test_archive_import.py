"""Files of jobs that come back: taken as they were, or refused for what is wrong with them."""

import json
import os
import shutil
import time
from pathlib import Path

import h5py
import numpy as np
import pytest

from oarlock.cli.oarlock import main
from oarlock.measure.collect.archive_import import ImportRefused, import_file
from oarlock.measure.collect.collector import Collector
from oarlock.measure.collect.files import hdf5, thinning
from oarlock.measure.collect.files.hdf5 import ArchivedJob, DamagedArchive
from oarlock.measure.collect.files.places import SamplePlaces
from oarlock.measure.collect.retention import check
from oarlock.measure.collect.series import SeriesRange, read_job
from oarlock.node.measure.wire import encode_sample
from oarlock.store.engine.opening import open_database
from tests.store.cluster import add_job

ADA = ArchivedJob(1, "ada", "physics", "run", start=1000, nodes=("n1",))
EVERYTHING = SeriesRange(["cpu_seconds_total", "cpus"])


@pytest.fixture
def places(tmp_path) -> SamplePlaces:
    collector = Collector(tmp_path / "samples")
    collector.start()
    for second in [*range(1000, 1600, 10), *range(1800, 2000, 10)]:
        for node in ("n1", "n2"):
            values = {"cpu_seconds_total": second * 2.0, "cpus": 4.0, 'process_cpu_seconds_total{exe="a b"}': 1.0}
            collector.take(node, encode_sample(float(second), {}, {1: values}), {1}, at=float(second))
    for _ in range(2):
        collector.archive_ended(lambda ids: dict.fromkeys(ids, ADA))
    collector.close()
    return collector.places


@pytest.fixture
def file(places, tmp_path) -> Path:
    """The file of job 1, taken out of the archive."""
    return Path(shutil.move(places.archived(1), tmp_path / "mine.h5"))


def describe(job: int) -> ArchivedJob | None:
    return ADA if job == 1 else None


def test_a_file_comes_back_with_every_value_and_is_kept_anew(places, file):
    shutil.copy(file, places.archived(1))
    before = read_job(places, 1, EVERYTHING)
    places.archived(1).unlink()
    imported = import_file(places, file, describe)
    assert (imported.job, imported.path, imported.rows, imported.thinned) == (1, str(places.archived(1)), 320, None)
    assert read_job(places, 1, EVERYTHING) == before
    assert hdf5.read_about(places.archived(1)) == hdf5.read_about(file)
    with h5py.File(file) as old, h5py.File(places.archived(1)) as new:
        assert {name: dict(old["job_1"][name].attrs) for name in old["job_1"]} == {
            name: dict(new["job_1"][name].attrs) for name in new["job_1"]}  # fmt: skip
    assert places.archived(1).stat().st_mode & 0o777 == 0o600
    assert time.time() - places.archived(1).stat().st_mtime < 60


def test_a_thinned_file_comes_back_as_a_thinned_one(places, file):
    thinning.thin(file, file, places.temporary)
    imported = import_file(places, file, describe)
    assert Path(imported.path).name == "1.thin.h5"
    view = read_job(places, 1, EVERYTHING)
    assert (view.thinned, [point[1:] for point in view.series[-1].points[:1]]) == (300, [(4.0, 4.0, 4.0)])
    assert check(places, pytest.fail) == 1


def test_what_is_said_about_the_job_is_the_databases_and_not_the_files(places, file):
    with h5py.File(file, "a") as changed:
        changed["job_1"].attrs["project"] = "secret"
        changed["job_1"].attrs["more"] = "?"
        changed["job_1"].attrs["gaps"] = json.dumps([["n1", 1, 2, "x"], ["../n1", 1, 2, "x"], ["n1", "a", 2, "x"], 3])
    import_file(places, file, describe)
    about = hdf5.read_about(places.archived(1))
    assert (about["project"], about["gaps"], "more" in about) == ("physics", [["n1", 1, 2, "x"]], False)


def _link(group, name="cpu"):
    group["more"] = h5py.ExternalLink("/etc/passwd", "/x")


def _soft_link(group):
    group["more"] = h5py.SoftLink("/job_1/cpu")


def _external(group):
    data = group["cpu"][...]
    attributes = dict(group["cpu"].attrs)
    del group["cpu"]
    made = group.create_dataset("cpu", data.shape, data.dtype, external=[("/etc/passwd", 0, h5py.h5f.UNLIMITED)])
    for name, value in attributes.items():
        made.attrs[name] = value


def _virtual(group):
    layout = h5py.VirtualLayout(group["cpu"].shape, group["cpu"].dtype)
    layout[:] = h5py.VirtualSource("/tmp/other.h5", "x", group["cpu"].shape)
    attributes = dict(group["cpu"].attrs)
    del group["cpu"]
    made = group.create_virtual_dataset("cpu", layout)
    for name, value in attributes.items():
        made.attrs[name] = value


def _change_rows(group, column, value):
    rows = group["cpu"][...]
    rows[column][3] = value
    group["cpu"][...] = rows


def _rename(group, attribute, value):
    group["cpu"].attrs[attribute] = value


DAMAGES = {
    "an external link": (_link, "'more' is not a table"),
    "a soft link": (_soft_link, "'more' is not a table"),
    "rows of another file": (_external, "the rows of cpu are in another file"),
    "virtual rows": (_virtual, "the rows of cpu are in another file"),
    "a row of no node": (lambda group: _change_rows(group, "host", 9), "rows of no instant or no node"),
    "a row before all time": (lambda group: _change_rows(group, "time", -5), "rows of no instant or no node"),
    "rows in disorder": (lambda group: _change_rows(group, "time", 999_999_999), "not in their order"),
    "nodes that are paths": (lambda group: _rename(group, "hosts", '["../../etc", "n2"]'), "have no proper names"),
    "series that are none": (lambda group: _rename(group, "series", '{"cpus": "x y"}'), "have no proper names"),
    "columns that are not there": (lambda group: _rename(group, "series", '{"cpus": "cpus"}'),
                                   "does not have the columns that it names"),
    "attributes that are no JSON": (lambda group: _rename(group, "hosts", "["), "does not name its nodes"),
    "another version": (lambda group: group.attrs.__setitem__("version", 7), "its version is 7"),
    "a picture": (lambda group: group.create_dataset("more", data=np.zeros((3, 3))), "does not name its nodes"),
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_file_with_a_strange_part_is_refused_and_nothing_is_kept(places, file, damage):
    change, sentence = DAMAGES[damage]
    with h5py.File(file, "a") as changed:
        change(changed["job_1"])
    with pytest.raises(DamagedArchive, match=sentence):
        import_file(places, file, describe)
    assert (places.kept(1), list(places.temporary.iterdir())) == (None, [])


@pytest.mark.parametrize("length", [0, 500, 3000])
def test_a_file_that_was_cut_is_refused(places, file, length):
    os.truncate(file, length)
    with pytest.raises(DamagedArchive):
        import_file(places, file, describe)
    assert places.kept(1) is None


def test_a_file_that_belongs_to_nothing_here_is_refused(places, file, tmp_path):
    with pytest.raises(ImportRefused, match="There is no job 1 in this database"):
        import_file(places, file, lambda _job: None)
    with pytest.raises(ImportRefused, match="of another job 1: of ada, begun at 1000; here job 1 is of bob"):
        import_file(places, file, lambda job: ArchivedJob(job, "bob", start=5))
    with pytest.raises(ImportRefused, match="of job 1, not of job 2"):
        import_file(places, file, describe, expected=2)
    with h5py.File(tmp_path / "other.h5", "w") as other:
        other["data"] = [1, 2]
    with pytest.raises(ImportRefused, match="not the file of one job"):
        import_file(places, tmp_path / "other.h5", describe)
    import_file(places, file, describe)
    with pytest.raises(ImportRefused, match="has its measurements here already"):
        import_file(places, file, describe)


def test_the_command_takes_a_file_back_or_says_why_not(places, file, sqlite_path, capsys):
    state = sqlite_path.parent
    shutil.copytree(places.root, state / "samples", dirs_exist_ok=True)
    with open_database(sqlite_path) as database:
        database.write(lambda tx: add_job(tx, user="ada"))
    with h5py.File(file, "a") as changed:
        changed["job_1"].attrs["start"] = 0
    arguments = ["archive", "import", str(file), "--state", str(state)]
    assert main([*arguments, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["job"] == 1
    assert main(arguments) == 2
    assert "has its measurements here already" in capsys.readouterr().err
