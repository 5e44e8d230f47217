"""A database is opened as it was left, or refused with a word about what to do."""

import os
import sqlite3
import stat
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from oarlock.model.errors import DatabaseRefused
from oarlock.store.engine.opening import migrate, open_database
from oarlock.store.migrations import REVISIONS
from tests.databases import Postgres


def _queues(where: str | Path) -> list[str]:
    with open_database(where) as database, database.read() as tx:
        return list(tx.execute(text("SELECT queue_name FROM queues ORDER BY priority")).scalars())


def test_what_was_written_is_there_when_opened_again(place: str):
    with open_database(place) as database:
        database.write(lambda tx: tx.execute(text("INSERT INTO queues (queue_name, priority) VALUES ('night', 1)")))
    assert _queues(place) == ["besteffort", "night", "default", "admin"]


def test_a_first_start_makes_a_database_that_only_its_owner_can_read(tmp_path: Path):
    with open_database(tmp_path / "oarlock.db", create=True) as database:
        database.write(lambda tx: tx.execute(text("DELETE FROM queues")))
        modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()}
    assert modes == dict.fromkeys(["oarlock.db", "oarlock.db-wal", "oarlock.db-shm", "oarlock.db.created"], 0o600)


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


def test_an_older_database_is_brought_up_to_date_after_a_copy(tmp_path: Path):
    path = _older_sqlite(tmp_path)
    with open_database(path) as database, database.read() as tx:
        assert tx.execute(text("SELECT queue_name, version_num FROM queues, alembic_version")).all() == [
            ("night", REVISIONS[-1])
        ]
        assert tx.execute(text("SELECT count(*) FROM attempts")).scalar_one() == 0
    copy = path.with_name(f"oarlock.db.before-{REVISIONS[-1]}")
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    with sqlite3.connect(copy) as connection:
        assert connection.execute("SELECT queue_name, version_num FROM queues, alembic_version").fetchall() == [
            ("night", REVISIONS[0])
        ]
    connection.close()


def test_an_older_postgresql_database_is_brought_up_to_date(postgres: Postgres):
    url = postgres.make(template="template0")
    engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    with engine.begin() as tx:
        migrate(tx, REVISIONS[0])
        tx.execute(text("INSERT INTO instance VALUES ('identity', 'me')"))
    engine.dispose()
    with open_database(url) as database, database.read() as tx:
        assert tx.execute(text("SELECT version_num FROM alembic_version")).scalar_one() == REVISIONS[-1]
    postgres.drop(url)


def _older_sqlite(directory: Path) -> Path:
    path = directory / "oarlock.db"
    engine = create_engine(f"sqlite:///{path}")
    with engine.begin() as tx:
        migrate(tx, REVISIONS[0])
        tx.execute(text("DELETE FROM queues"))
        tx.execute(text("INSERT INTO queues (queue_name) VALUES ('night')"))
        tx.execute(text("INSERT INTO instance VALUES ('identity', 'me')"))
    engine.dispose()
    return path


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
    assert "secret" not in refused.value.told()


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
