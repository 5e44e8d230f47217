"""One server a database; the second learns who the first is."""

import os
import signal
import socket
import subprocess
import sys
import time

import pytest
from sqlalchemy import insert, text
from sqlalchemy.exc import DBAPIError

from oarlock.model.errors import DatabaseHeld, DatabaseRefused
from oarlock.store.engine.database import Database
from oarlock.store.engine.opening import open_database
from oarlock.store.engine.tx import Tx
from oarlock.store.tables import instance
from tests.waiting import wait_until


def test_a_second_server_is_refused_and_told_who_is_the_first(place: str, database: Database):
    database.lock(now=1000)
    with open_database(place) as second, pytest.raises(DatabaseHeld) as refused:
        second.lock(now=2000)
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(1000))
    assert f"process {os.getpid()} on {socket.gethostname()}, since {since}." in str(refused.value)
    assert f"kill {os.getpid()}" in refused.value.hint


def test_the_next_server_gets_in_when_the_first_has_closed(place: str, database: Database):
    with open_database(place) as first:
        first.lock(now=1000)
    database.lock(now=2000)


def test_the_next_server_gets_in_when_the_first_was_killed(place: str, database: Database):
    with subprocess.Popen(
        [sys.executable, "-c", _SERVER, place], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "locked\n"
        with pytest.raises(DatabaseHeld, match=f"process {first.pid} "):
            database.lock(now=2000)
        first.kill()
    _until_free(database)


_SERVER = """
import sys
from oarlock.store.engine.opening import open_database
from oarlock.store.engine.tx import Tx
database = open_database(sys.argv[1])
database.lock(now=1000)
print("locked", flush=True)
sys.stdin.read()
"""


def _until_free(database: Database) -> None:
    """PostgreSQL notices a dead client in its own time; a file lock is free at once."""
    for _ in range(1000):
        try:
            return database.lock(now=2000)
        except DatabaseHeld:
            with database.read() as tx:
                if database.engine_name == "postgresql":
                    tx.execute(text("SELECT pg_sleep(0.01)"))
    raise AssertionError("the lock of a dead process is never free")


def test_a_server_that_lost_its_lock_to_another_cannot_write(place: str, database: Database):
    if database.engine_name != "postgresql":
        pytest.skip("a file lock cannot be lost")
    database.lock(now=1000)
    pid = database.write(lambda tx: tx.exec_driver_sql("SELECT pg_backend_pid()").scalar_one())
    with open_database(place) as standby:
        with standby.read() as tx:
            tx.execute(text("SELECT pg_terminate_backend(:pid, 5000)"), {"pid": pid})
        standby.lock(now=2000)
        with pytest.raises(DatabaseHeld, match=time.strftime("since %Y-%m-%d %H:%M:%S", time.localtime(2000))):
            database.write(lambda tx: tx.exec_driver_sql("DELETE FROM queues"))
        with standby.read() as tx:
            assert tx.exec_driver_sql("SELECT count(*) FROM queues").scalar_one() == 3


def _lose_session(database: Database, standby: Database) -> None:
    pid = database.write(lambda tx: tx.exec_driver_sql("SELECT pg_backend_pid()").scalar_one())
    with standby.read() as tx:
        tx.execute(text("SELECT pg_terminate_backend(:pid, 5000)"), {"pid": pid})


def _needs_postgresql(database: Database) -> None:
    if database.engine_name != "postgresql":
        pytest.skip("a file lock cannot be lost")


def test_every_write_after_the_loss_of_the_lock_is_refused(place: str, database: Database):
    _needs_postgresql(database)
    database.lock(now=1000)
    losses: list[DatabaseHeld] = []
    database.call_on_loss(losses.append)
    with open_database(place) as standby:
        _lose_session(database, standby)
        standby.lock(now=2000)
        for _ in range(3):
            with pytest.raises(DatabaseHeld):
                database.write(lambda tx: tx.exec_driver_sql("DELETE FROM queues"))
        with standby.read() as tx:
            assert tx.exec_driver_sql("SELECT count(*) FROM queues").scalar_one() == 3
    with pytest.raises(DatabaseHeld):  # the standby has ended: what this server remembers is out of date all the same
        database.write(lambda tx: tx.exec_driver_sql("DELETE FROM queues"))
    assert len(losses) == 1


def test_a_server_that_finds_a_later_holder_writes_nothing(place: str, database: Database):
    _needs_postgresql(database)
    database.lock(now=1000)
    with open_database(place) as standby:
        _lose_session(database, standby)
        standby.lock(now=2000)
    with pytest.raises(DatabaseHeld, match=time.strftime("since %Y-%m-%d %H:%M:%S", time.localtime(2000))):
        database.write(lambda tx: tx.exec_driver_sql("DELETE FROM queues"))


def test_a_server_takes_its_lock_back_from_its_own_session_that_hangs(database: Database, caplog):
    _needs_postgresql(database)
    database.lock(now=1000)
    backend, descriptor = database.write(_session)
    os.kill(backend, signal.SIGSTOP)  # it does not notice that its client is gone
    try:
        with socket.socket(fileno=os.dup(descriptor)) as connection:
            connection.shutdown(socket.SHUT_RDWR)
        written = database.submit(lambda tx: tx.exec_driver_sql("DELETE FROM queues"))
        wait_until(lambda: "still keeps the connection" in str([vars(record) for record in caplog.records]))
    finally:
        os.kill(backend, signal.SIGCONT)
    written.result(timeout=20)
    with database.read() as tx:
        assert tx.exec_driver_sql("SELECT count(*) FROM queues").scalar_one() == 0


def _session(tx: Tx) -> tuple[int, int]:
    backend = tx.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
    return backend, tx.connection.driver_connection.fileno()


def test_a_connection_ended_in_the_midst_of_many_rows_is_a_lost_one(place: str, database: Database):
    _needs_postgresql(database)
    database.lock(now=1000)
    tries: list[int] = []
    with open_database(place) as other:

        def change(tx: Tx) -> None:
            tries.append(backend := _session(tx)[0])
            if len(tries) == 1:
                with other.read() as killer:
                    killer.execute(text("SELECT pg_terminate_backend(:pid, 5000)"), {"pid": backend})
            tx.execute(insert(instance), [{"name": f"row {number}", "value": ""} for number in range(100)])

        database.write(change)
    assert len(set(tries)) == 2
    with database.read() as tx:
        assert tx.execute(text("SELECT count(*) FROM instance WHERE name LIKE 'row %'")).scalar_one() == 100


def test_a_rollback_that_fails_does_not_hide_that_the_connection_was_ended(database: Database):
    _needs_postgresql(database)
    from psycopg import OperationalError
    from psycopg.errors import AdminShutdown, DiskFull

    def failing(reason: Exception) -> None:
        def change(tx: Tx) -> None:
            tries.append(1)
            if len(tries) == 1:
                try:
                    raise DBAPIError("INSERT", {}, reason)
                finally:
                    raise DBAPIError("ROLLBACK", {}, OperationalError("cannot exit pipeline mode while busy"))

        tries: list[int] = []
        database.write(change)
        assert len(tries) == 2

    failing(AdminShutdown("terminating connection due to administrator command"))
    with pytest.raises(DatabaseRefused, match="pipeline"):
        failing(DiskFull("could not extend file"))
