"""The watch of a standby server: a holder that is silent for too long loses its connection, nobody else does."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy import URL, text

from oarlock.model.errors import DatabaseAway, DatabaseHeld, DatabaseRefused
from oarlock.store.engine import engines, server_lock
from oarlock.store.engine.database import Database
from oarlock.store.engine.opening import open_database, parse_address
from oarlock.store.engine.server_lock import SILENCE_SECONDS, StandbyWatch, take_for_restore
from tests.waiting import wait_until


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@contextmanager
def watching(place: str) -> Iterator[tuple[StandbyWatch, Clock]]:
    where = parse_address(place)
    if not isinstance(where, URL):
        pytest.skip("SQLite has no standby server")
    clock = Clock()
    watch = StandbyWatch(where, clock)
    try:
        yield watch, clock
    finally:
        watch.close()


def test_a_database_that_nobody_holds_is_free(place: str, database: Database):
    with watching(place) as (watch, _):
        assert watch.look()
        assert watch.look()  # looking does not hold it
        database.lock(now=1000)
        assert not watch.look()


def test_a_holder_that_shows_its_life_keeps_the_database(place: str, database: Database, monkeypatch):
    monkeypatch.setattr(server_lock, "HEARTBEAT_SECONDS", 0.01)
    with watching(place) as (watch, clock):
        database.lock(now=1000)
        for _ in range(5):
            before = _beat(database)
            wait_until(lambda before=before: _beat(database) != before, what="a heartbeat")
            clock.now += SILENCE_SECONDS + 1
            assert not watch.look()
        database.write(lambda tx: tx.execute(text("DELETE FROM queues")))


def _beat(database: Database) -> str:
    with database.read() as tx:
        return str(tx.execute(text("SELECT value FROM instance WHERE name = 'heartbeat'")).scalar_one())


def test_a_silent_holder_loses_its_connection_and_writes_nothing_more(place: str, database: Database, monkeypatch):
    monkeypatch.setattr(server_lock, "HEARTBEAT_SECONDS", 3600)
    with watching(place) as (watch, clock), open_database(place) as second:
        database.lock(now=1000)
        assert not watch.look()
        clock.now += SILENCE_SECONDS - 1
        assert not watch.look()
        database.write(lambda tx: tx.execute(text("SELECT 1")))
        clock.now += 2
        assert not watch.look()
        wait_until(watch.look, what="the end of the silent holder's connection")
        second.lock(now=2000)
        with pytest.raises(DatabaseHeld):
            database.write(lambda tx: tx.execute(text("DELETE FROM queues")))


def test_a_holder_finds_out_by_itself_that_another_took_over(place: str, database: Database, monkeypatch):
    monkeypatch.setattr(server_lock, "HEARTBEAT_SECONDS", 0.05)
    losses: list[DatabaseHeld] = []
    with watching(place), open_database(place) as second:
        database.call_on_loss(losses.append)
        database.lock(now=1000)
        pid = database.write(lambda tx: tx.exec_driver_sql("SELECT pg_backend_pid()").scalar_one())
        with second.read() as tx:
            tx.execute(text("SELECT pg_terminate_backend(:pid, 5000)"), {"pid": pid})
        second.lock(now=2000)  # the first writes nothing meanwhile
        wait_until(lambda: bool(losses), what="the first to notice")


def test_of_two_standby_servers_one_gets_in(place: str, database: Database):
    with watching(place) as (watch, _), watching(place) as (other, _):
        assert watch.look()
        assert other.look()
        database.lock(now=1000)
        with open_database(place) as second, pytest.raises(DatabaseHeld):
            second.lock(now=2000)
        assert not other.look()


def test_a_restore_has_no_heartbeat_and_is_left_alone(place: str, database: Database):
    database.lock(now=1000)
    database.close()
    with watching(place) as (watch, clock):
        where = parse_address(place)
        assert isinstance(where, URL)
        engine = engines.writer(where)
        with engine.connect() as tx:
            take_for_restore(tx)
            for _ in range(3):
                clock.now += SILENCE_SECONDS + 1
                assert not watch.look()
            tx.execute(text("SELECT 1"))  # its connection lives
        engine.dispose()


def test_a_database_that_is_away_is_said_to_be_away(place: str, database: Database):
    with watching(place):
        watch = StandbyWatch.of(
            parse_address(place + "-that-does-not-exist" if "?" not in place else place.replace("?", "-none?"))
        )
        with pytest.raises(DatabaseAway, match=r"cannot be asked: .*does not exist"):
            watch.look()
        watch.close()


def test_sqlite_has_no_standby_server(tmp_path):
    with pytest.raises(DatabaseRefused, match="this one is an SQLite file"):
        StandbyWatch.of(tmp_path / "oarlock.db")
