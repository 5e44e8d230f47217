"""What a backup has beside the database: settings, secrets and keys, put back where they are missing."""

import os
import resource
import select
import socket
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import make_url

from oarlock.config import Config, load
from oarlock.model.errors import DatabaseRefused
from oarlock.server import backups
from oarlock.settings.kinds import DbType
from oarlock.store.engine.backup import written_whole
from oarlock.store.engine.opening import open_database
from tests.databases import Postgres


@pytest.fixture
def site(tmp_path):
    """A settings folder, a state directory, and a backup of both."""
    etc, state = tmp_path / "etc", tmp_path / "state"
    (etc / "rules").mkdir(parents=True)
    (state / "keys").mkdir(parents=True)
    (state / "samples").mkdir()
    (state / "past").mkdir()
    for path, text in (
        (etc / "password", "secret\n"), (etc / "id_ed25519", "key"), (etc / "rules" / "20-a.toml", "# rule"),
        (state / "keys" / "7", "of job 7"), (state / "samples" / "log", "1 2 3"), (state / "past" / "old.db", "jobs"),
    ):  # fmt: skip
        path.write_text(text)
        path.chmod(0o600)
    conf = etc / "oar.conf"
    conf.write_text(f'DB_BASE_PASSWD="file:{etc}/password"\nADMISSION_RULES_DIR="{etc}/rules"\n')
    return tmp_path


def saved(site: Path, *, samples: bool = False) -> list[str]:
    backup = site / "backup"
    backups.save_site_files(backup, load(site / "etc" / "oar.conf"), site / "state", samples=samples)
    with tarfile.open(backups.site_archive_of(backup)) as archive:
        return sorted(name.replace(str(site), "") for name in archive.getnames())


def test_settings_secrets_rules_and_keys_are_saved_and_samples_if_wanted(site):
    own = ["root/etc/id_ed25519", "root/etc/oar.conf", "root/etc/password", "root/etc/rules/20-a.toml", "state/keys/7"]
    assert saved(site) == own
    assert saved(site, samples=True) == [*own, "state/past/old.db", "state/samples/log"]
    assert backups.site_archive_of(site / "backup").stat().st_mode & 0o777 == 0o600


def test_what_is_missing_comes_back_and_what_differs_stays(site):
    saved(site, samples=True)
    conf, key = site / "etc" / "oar.conf", site / "etc" / "id_ed25519"
    whole = conf.read_text()
    conf.write_text("# changed since\n")
    key.unlink()
    other = site / "elsewhere"
    done = backups.restore_site_files(site / "backup", other)
    assert (key.read_text(), key.stat().st_mode & 0o777) == ("key", 0o600)
    assert (conf.read_text(), conf.with_name("oar.conf.from-backup").read_text()) == ("# changed since\n", whole)
    assert (other / "keys" / "7").read_text() == "of job 7"
    assert done.aside == [str(conf) + ".from-backup"]
    assert len(done.restored) == 4
    assert backups.restore_site_files(site / "backup", other).restored == [], "a second time there is nothing to do"


def test_a_backup_without_them_is_restored_as_before(site):
    assert backups.restore_site_files(site / "none", site / "state") == ([], [])


@pytest.mark.parametrize("name", ["root/../etc/shadow", "state/../../x", "elsewhere/x", "state"])
def test_names_that_lead_elsewhere_are_refused(site, name):
    with tarfile.open(backups.site_archive_of(site / "backup"), "w") as archive:
        archive.add(site / "etc" / "password", name)
    with pytest.raises(DatabaseRefused, match="is not whole"):
        backups.restore_site_files(site / "backup", site / "state")


def test_an_archive_that_was_cut_off_is_refused(site):
    saved(site)
    file = backups.site_archive_of(site / "backup")
    file.write_bytes(file.read_bytes()[:700])
    with pytest.raises(DatabaseRefused, match="is not whole"):
        backups.restore_site_files(site / "backup", site / "state" / "new")


def test_programs_of_postgresql_end_with_a_killed_command():
    """`sleep` stands for a `pg_restore` that takes long: what is started, and how, is the same."""
    code = (
        "import subprocess, oarlock.server.backups as b; begun = subprocess.Popen(['sleep', '60'],"
        " preexec_fn=b.end_with_parent); print(begun.pid, flush=True); begun.wait()"
    )
    command = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert command.stdout is not None
    begun = int(command.stdout.readline())
    handle = os.pidfd_open(begun)
    command.kill()
    command.wait()
    ended, _, _ = select.select([handle], [], [], 10)
    os.close(handle)
    command.stdout.close()
    assert ended == [handle]


@pytest.fixture
def on_postgresql(postgres: Postgres, monkeypatch) -> Iterator[Config]:
    """The settings of an instance on PostgreSQL."""
    monkeypatch.setenv("PATH", f"{postgres.programs}:{os.environ['PATH']}")
    address = postgres.make(template="oarlock_template")
    url = make_url(address)
    yield Config(
        db_type=DbType.POSTGRESQL, db_hostname=str(url.query["host"]), db_base_name=str(url.database),
        db_base_login=str(url.username),
    )  # fmt: skip
    postgres.drop(address)


@contextmanager
def longest_file(size: int) -> Iterator[None]:
    """Let the kernel end a program that writes more than so many bytes into one file."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_dump_that_breaks_off_leaves_the_backup_before_it(on_postgresql, tmp_path):
    file = tmp_path / "backup"
    backups.backup(tmp_path, on_postgresql, file, lambda _line: None)
    before = file.read_bytes()
    for size in (1000, len(before) * 2 // 3):
        with longest_file(size), pytest.raises(DatabaseRefused, match="cannot be copied"):
            backups.backup(tmp_path, on_postgresql, file, lambda _line: None)
        assert (file.read_bytes(), list(tmp_path.glob(".backup*"))) == (before, [])
    assert backups.backup(tmp_path, on_postgresql, file, lambda _line: None).jobs == 0


def test_restores_within_one_second_each_keep_what_they_replaced(on_postgresql, tmp_path, monkeypatch):
    monkeypatch.setattr("oarlock.server.backups.time.time", lambda: 1_000_000.5)
    open_database(tmp_path / "oarlock.db", create=True).close()
    for config, state in ((on_postgresql, tmp_path / "other"), (Config(), tmp_path)):
        state.mkdir(exist_ok=True)
        backups.backup(state, config, state / "backup", lambda _line: None)
        kept = {backups.restore(state, config, state / "backup", lambda _line: None).kept for _ in range(3)}
        assert len(kept) == 3


@pytest.mark.soak
def test_a_dump_of_which_only_the_beginning_is_left_is_refused(on_postgresql, tmp_path):
    file, address = tmp_path / "backup", str(backups.database_address(tmp_path, on_postgresql))
    backups.backup(tmp_path, on_postgresql, file, lambda _line: None)
    whole = file.read_bytes()
    for size in [*range(0, len(whole), len(whole) // 40), len(whole) - 1]:
        file.write_bytes(whole[:size])
        with pytest.raises(DatabaseRefused):
            backups.restore(tmp_path, on_postgresql, file, lambda _line: None)
        open_database(address).close()  # what was there is there


def test_two_backups_to_one_file_do_not_write_into_each_other(tmp_path, monkeypatch):
    target = tmp_path / "backup"
    with written_whole(target) as ours:
        ours.write_text("half")
        with monkeypatch.context() as other_process:
            other_process.setattr(os, "getpid", lambda: 1)
            with written_whole(target) as other:
                other.write_text("whole")
        assert (target.read_text(), ours.read_text()) == ("whole", "half")
    assert [path.name for path in tmp_path.iterdir()] == ["backup"]


def test_a_device_is_not_replaced_by_a_backup(tmp_path):
    pipe = tmp_path / "backup"
    os.mkfifo(pipe)
    with pytest.raises(FileExistsError, match="not a regular file"), written_whole(pipe):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["backup"]
    assert pipe.is_fifo()


def test_what_a_killed_backup_left_is_removed_by_the_next_one(tmp_path):
    left, written = (tmp_path / f".backup.{socket.gethostname()}-{pid}.partial" for pid in (1 << 30, 1))
    for path in (left, left.with_name(f"{left.name}-journal"), written):
        path.touch()
    with written_whole(tmp_path / "backup") as partial:
        partial.write_text("whole")
    assert sorted(tmp_path.iterdir()) == [written, tmp_path / "backup"]
