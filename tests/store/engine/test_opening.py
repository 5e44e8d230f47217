"""A database is opened as it was left, or refused with a word about what to do."""

import os
import shutil
import sqlite3
import stat
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import create_engine, text

from oarlock.model.errors import DatabaseRefused
from oarlock.store import migrations
from oarlock.store.engine import backup
from oarlock.store.engine.opening import open_database, open_for_check
from oarlock.store.engine.tx import Tx
from oarlock.store.migrations import REVISIONS
from tests.databases import Postgres


def _queues(where: str | Path) -> list[str]:
    with open_database(where) as database, database.read() as tx:
        return list(tx.execute(text("SELECT queue_name FROM queues ORDER BY priority")).scalars())


def test_what_was_written_is_there_when_opened_again(place: str):
    with open_database(place) as database:
        database.write(lambda tx: tx.execute(text("INSERT INTO queues (queue_name, priority) VALUES ('night', 1)")))
    assert _queues(place) == ["besteffort", "night", "default", "admin"]


def test_a_database_that_is_not_there_is_not_called_damaged(tmp_path: Path):
    refused = pytest.raises(DatabaseRefused, match="cannot be checked: there is no such file")
    with refused, open_for_check(tmp_path / "oarlock.db") as tx:
        tx.execute(text("SELECT 1"))


def test_a_first_start_makes_a_database_that_only_its_owner_can_read(tmp_path: Path):
    with open_database(tmp_path / "oarlock.db", create=True) as database:
        database.write(lambda tx: tx.execute(text("DELETE FROM queues")))
        modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()}
    assert modes == dict.fromkeys(["oarlock.db", "oarlock.db-wal", "oarlock.db-shm", "oarlock.db.created"], 0o600)


def test_a_first_start_that_died_before_it_left_its_mark_goes_on(sqlite_path: Path):
    marker = sqlite_path.with_name("oarlock.db.created")
    marker.write_text("")
    assert _queues(sqlite_path) == ["besteffort", "default", "admin"]
    assert len(marker.read_text().splitlines()) == 2


def test_a_database_that_others_could_read_is_closed_to_them(sqlite_path: Path):
    sqlite_path.chmod(0o644)
    open_database(sqlite_path).close()
    assert stat.S_IMODE(sqlite_path.stat().st_mode) == 0o600


def test_without_create_a_missing_database_is_refused_and_not_made(tmp_path: Path):
    with pytest.raises(DatabaseRefused, match=r"no database at .*oarlock.db"):
        open_database(tmp_path / "oarlock.db")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("harm", ["removed", "emptied"])
@pytest.mark.parametrize("create", [True, False])
def test_a_database_that_once_was_is_never_begun_anew(sqlite_path: Path, harm: str, create: bool):
    sqlite_path.unlink()
    if harm == "emptied":
        sqlite_path.touch()
    with pytest.raises(DatabaseRefused, match="is empty or gone, but there was one") as refused:
        open_database(sqlite_path, create=create)
    assert "backup" in refused.value.hint


def test_a_postgresql_database_that_once_was_is_never_begun_anew(postgres: Postgres, tmp_path: Path):
    first, second = (postgres.make(template="template0") for _ in range(2))
    marker = tmp_path / "created"
    open_database(first, create=True, marker=marker).close()
    with pytest.raises(DatabaseRefused, match="is empty or gone"):
        open_database(second, create=True, marker=marker)
    open_database(first, marker=marker).close()
    for url in (first, second):
        postgres.drop(url)


def test_where_a_restore_was_broken_off_no_server_begins_anew(postgres: Postgres, tmp_path: Path):
    url = postgres.make(template="oarlock_template")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("ALTER SCHEMA public RENAME TO before_restore_7")
        connection.execute("CREATE SCHEMA public")
    with pytest.raises(DatabaseRefused, match="what was there is in the schema before_restore_7"):
        open_database(url, create=True, marker=tmp_path / "of a standby server")
    postgres.drop(url)


def test_another_database_in_the_place_of_ours_is_refused(sqlite_path: Path, tmp_path: Path):
    other = tmp_path / "other.db"
    open_database(other, create=True).close()
    other.replace(sqlite_path)
    with pytest.raises(DatabaseRefused, match="is not the one that was here"):
        open_database(sqlite_path)


def test_a_restored_backup_without_its_marker_gets_it_back(sqlite_path: Path):
    marker = sqlite_path.with_name("oarlock.db.created")
    before = marker.read_text()
    marker.unlink()
    open_database(sqlite_path).close()
    assert marker.read_text() == before


def test_a_newer_database_is_refused_and_left_alone(place: str):
    with open_database(place) as database:
        database.write(lambda tx: tx.execute(text("UPDATE alembic_version SET version_num = '9999'")))
    with pytest.raises(DatabaseRefused, match=r"newer Oarlock .*9999") as refused:
        open_database(place)
    assert REVISIONS[-1] in refused.value.hint


@pytest.mark.parametrize("form", ["0001", "0007", "0010"])
def test_a_database_from_before_the_first_release_is_refused_and_kept(place: str, form: str, tmp_path: Path):
    marker = tmp_path / "made"
    with open_database(place, marker=marker) as database:
        database.write(lambda tx: tx.execute(text(f"UPDATE alembic_version SET version_num = '{form}'")))
    with pytest.raises(DatabaseRefused, match=rf"before the first release .*`{form}`") as refused:
        open_database(place, create=True, marker=marker)
    move = "name an empty one in DB_BASE_NAME" if "://" in place else "move it away"
    assert refused.value.hint == (
        "Let its jobs end with the version that made it; "
        f"then {move} and remove {marker}: `oarlock serve` begins a new one."
    )
    engine = create_engine(
        place.replace("postgresql:", "postgresql+psycopg:") if "://" in place else f"sqlite:///{place}"
    )
    with engine.begin() as tx:
        assert tx.execute(text("SELECT version_num FROM alembic_version")).scalar_one() == form
    engine.dispose()


def test_a_backup_from_before_the_first_release_is_refused(sqlite_path: Path):
    with sqlite3.connect(sqlite_path) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '0004'")
    connection.close()
    with pytest.raises(DatabaseRefused, match="was made before the first release") as refused:
        backup.check(sqlite_path)
    assert "Name a file that `oarlock backup` made" in refused.value.hint


@pytest.fixture
def next_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Install a version of the code that knows one step more: it adds a table."""
    scripts = tmp_path / "migrations"
    shutil.copytree(migrations.SCRIPTS, scripts, ignore=shutil.ignore_patterns("__pycache__"))
    (scripts / "versions" / "next_step.py").write_text(
        "from alembic import op\nfrom oarlock.store.tables.columns import key\n"
        f"revision, down_revision = 'next', {REVISIONS[-1]!r}\n"
        "def upgrade() -> None:\n    op.create_table('added', key('number'))\n"
    )
    monkeypatch.setattr(migrations, "SCRIPTS", scripts)
    monkeypatch.setattr(migrations, "REVISIONS", (*REVISIONS, "next"))
    return "next"


def test_an_older_database_is_brought_up_to_date_after_a_copy(sqlite_path: Path, next_version: str):
    with open_database(sqlite_path) as database, database.read() as tx:
        assert _form_and_rows(tx) == (next_version, 3, 0)
    copy = sqlite_path.with_name(f"oarlock.db.before-{next_version}")
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    with sqlite3.connect(copy) as connection:
        assert connection.execute("SELECT version_num FROM alembic_version").fetchall() == [(REVISIONS[-1],)]
    connection.close()


def test_an_older_postgresql_database_is_brought_up_to_date(postgres: Postgres, next_version: str):
    url = postgres.make(template="oarlock_template")
    with open_database(url) as database, database.read() as tx:
        assert _form_and_rows(tx) == (next_version, 3, 0)
    postgres.drop(url)


def _form_and_rows(tx: Tx) -> tuple[str, int, int]:
    asked = ("SELECT version_num FROM alembic_version", "SELECT count(*) FROM queues", "SELECT count(*) FROM added")
    form, queues, added = (tx.execute(text(query)).scalar_one() for query in asked)
    return form, queues, added


def test_a_file_that_is_no_database_is_refused(tmp_path: Path):
    path = tmp_path / "oarlock.db"
    path.write_bytes(b"#!/bin/sh\n" * 500)
    with pytest.raises(DatabaseRefused, match="is damaged: file is not a database") as refused:
        open_database(path, create=True)
    assert "backup" in refused.value.hint
    assert path.read_bytes() == b"#!/bin/sh\n" * 500


@pytest.mark.parametrize("page", [0, 1, 5, 20])
def test_a_database_with_an_overwritten_page_is_refused(sqlite_path: Path, page: int):
    with sqlite_path.open("r+b") as file:
        file.seek(4096 * page)
        file.write(os.urandom(4096))
    with pytest.raises(DatabaseRefused, match="is damaged"):
        open_database(sqlite_path)


@pytest.mark.parametrize("create", [True, False])
def test_a_database_of_something_else_is_refused_and_left_alone(tmp_path: Path, create: bool):
    path = tmp_path / "oar.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE jobs (job_id INTEGER)")
    connection.close()
    with pytest.raises(DatabaseRefused, match=r"tables of something else \(jobs"):
        open_database(path, create=create)
    assert not path.with_name("oar.db.created").exists()


def test_another_kind_of_database_is_refused():
    with pytest.raises(DatabaseRefused, match="kind `mysql` cannot be used"):
        open_database("mysql://oar@localhost/oar")


def test_a_server_that_does_not_answer_is_named_without_its_password():
    with pytest.raises(DatabaseRefused, match=r"postgresql://oar:\*\*\*@127.0.0.1:1/oar cannot be used") as refused:
        open_database("postgresql://oar:secret@127.0.0.1:1/oar")
    assert "secret" not in refused.value.full_text()


def test_sqlite_is_durable_and_keeps_its_references(sqlite_path: Path):
    with open_database(sqlite_path) as database:
        pragmas = ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        found = database.write(lambda tx: [tx.exec_driver_sql(f"PRAGMA {one}").scalar_one() for one in pragmas])
    assert found == ["wal", 2, 1, 5000]


def test_what_is_no_file_is_refused_and_left_alone(tmp_path: Path):
    tmp_path.chmod(0o755)
    with pytest.raises(DatabaseRefused, match="is no file"):
        open_database(tmp_path)
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755


def test_a_directory_that_is_missing_is_named(tmp_path: Path):
    with pytest.raises(DatabaseRefused, match=r"no directory .*/state"):
        open_database(tmp_path / "state" / "oarlock.db", create=True)


def test_what_the_system_says_is_passed_on(tmp_path: Path):
    with pytest.raises(DatabaseRefused, match=r"cannot be used: File name too long"):
        open_database(tmp_path / ("x" * 300), create=True)
