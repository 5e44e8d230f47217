"""One writer, many askers: what is acknowledged is on disk, what fails is undone alone."""

import asyncio
import errno
import os
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError

import psycopg
import pytest
from sqlalchemy import event, text
from sqlalchemy.exc import OperationalError

from oarlock.failpoints import armed
from oarlock.model.errors import DatabaseAway, DatabaseRefused, IllegalMove, OarlockError
from oarlock.store.engine.database import Database
from oarlock.store.engine.tx import Tx


def _add(name: str) -> Callable[[Tx], str]:
    def change(tx: Tx) -> str:
        tx.execute(text("INSERT INTO queues (queue_name) VALUES (:name)"), {"name": name})
        return name

    return change


def _names(database: Database) -> set[str]:
    with database.read() as tx:
        return set(tx.execute(text("SELECT queue_name FROM queues")).scalars()) - {"admin", "default", "besteffort"}


class Busy:
    """Keeps the writer in its present transaction until released, so that what follows is one group."""

    def __init__(self, database: Database) -> None:
        self._go, started = threading.Event(), threading.Event()

        def change(tx: Tx) -> None:
            started.set()
            self._go.wait(30)

        self._future = database.submit(change)
        started.wait(30)

    def release(self) -> None:
        self._go.set()
        self._future.result(30)


def test_a_change_gives_its_value_when_readers_can_see_it(database: Database):
    assert database.write(_add("night")) == "night"
    assert _names(database) == {"night"}


def test_changes_that_arrive_meanwhile_share_one_commit(database: Database):
    commits = []
    event.listen(database._engine, "commit", lambda connection: commits.append(1))
    busy = Busy(database)
    asked = [database.submit(_add(f"q{n}")) for n in range(100)]
    busy.release()
    assert [future.result(30) for future in asked] == [f"q{n}" for n in range(100)]
    assert len(commits) == 2  # the busy one, then all hundred
    assert _names(database) == {f"q{n}" for n in range(100)}


def test_a_group_is_no_larger_than_a_hundred(database: Database):
    commits = []
    event.listen(database._engine, "commit", lambda connection: commits.append(1))
    busy = Busy(database)
    asked = [database.submit(_add(f"q{n}")) for n in range(101)]
    busy.release()
    assert [future.result(30) for future in asked] == [f"q{n}" for n in range(101)]
    assert len(commits) == 3


@pytest.mark.parametrize("company", [0, 3])
def test_a_change_that_raises_is_undone_alone(database: Database, company: int):
    def half(tx: Tx) -> None:
        _add("half")(tx)
        raise IllegalMove("It cannot be done.")

    busy = Busy(database)
    before = [database.submit(_add(f"before{n}")) for n in range(company)]
    failing = database.submit(half)
    after = [database.submit(_add(f"after{n}")) for n in range(company)]
    busy.release()
    with pytest.raises(IllegalMove, match="It cannot be done"):
        failing.result(30)
    done = {future.result(30) for future in before + after}
    assert _names(database) == done == {f"{when}{n}" for when in ("before", "after") for n in range(company)}


@pytest.mark.parametrize("company", [0, 1])
def test_a_change_that_the_database_refuses_is_told_so_and_undone_alone(database: Database, company: int):
    busy = Busy(database)
    fine = [database.submit(_add("fine")) for _ in range(company)]
    twice = database.submit(_add("default"))
    busy.release()
    with pytest.raises(DatabaseRefused, match="not accepted by the database"):
        twice.result(30)
    assert _names(database) == {future.result(30) for future in fine}


def test_a_change_that_was_cancelled_in_time_is_not_made(database: Database):
    busy = Busy(database)
    future = database.submit(_add("unwanted"))
    assert future.cancel()
    busy.release()
    with pytest.raises(CancelledError):
        future.result()
    database.write(_add("wanted"))
    assert _names(database) == {"wanted"}


def test_the_event_loop_can_wait_for_a_change(database: Database):
    async def ask() -> list[str]:
        return await asyncio.gather(*(asyncio.wrap_future(database.submit(_add(f"q{n}"))) for n in range(5)))

    assert asyncio.run(ask()) == ["q0", "q1", "q2", "q3", "q4"]


def test_closing_finishes_what_was_asked_and_refuses_what_comes_later(database: Database):
    busy = Busy(database)
    asked = database.submit(_add("last"))
    closing = threading.Thread(target=database.close)
    closing.start()
    busy.release()
    closing.join(30)
    assert asked.result(0) == "last"
    with pytest.raises(DatabaseRefused, match="closed"):
        database.write(_add("too late"))


def test_a_change_that_waits_for_another_is_a_mistake_and_not_a_deadlock(database: Database):
    with pytest.raises(RuntimeError, match="wait for ever"):
        database.write(lambda tx: database.write(_add("inner")))


def test_readers_cannot_write(database: Database):
    with pytest.raises(Exception, match=r"(?i)read.?only"), database.read() as tx:
        _add("sneaky")(tx)
    assert _names(database) == set()


def test_a_reader_sees_one_instant(database: Database):
    with database.read() as tx:
        count = "SELECT count(*) FROM queues"
        before = tx.execute(text(count)).scalar_one()
        database.write(_add("meanwhile"))
        assert tx.execute(text(count)).scalar_one() == before
    assert _names(database) == {"meanwhile"}


def test_a_locked_sqlite_database_is_a_refusal_and_heals(database: Database):
    if database.engine_name != "sqlite":
        pytest.skip("PostgreSQL has no lock on the whole database")
    database.write(lambda tx: tx.exec_driver_sql("PRAGMA busy_timeout = 100"))
    locked = pytest.raises(DatabaseRefused, match="kept the database locked")
    with database._engine.connect() as other, other.begin(), locked:
        database.write(_add("blocked"))
    assert database.write(_add("free")) == "free"
    assert _names(database) == {"free"}


@pytest.mark.parametrize("company", [0, 2])
def test_a_connection_that_breaks_before_the_commit_is_made_again(place: str, database: Database, company: int):
    if database.engine_name != "postgresql":
        pytest.skip("SQLite has no connection to lose")
    tries = []

    def cut_once(tx: Tx) -> str:
        _add("once")(tx)
        tries.append(1)
        if len(tries) == 1:
            _terminate(database, tx.exec_driver_sql("SELECT pg_backend_pid()").scalar_one())
            tx.exec_driver_sql("SELECT 1")
        return "once"

    busy = Busy(database)
    others = [database.submit(_add(f"other{n}")) for n in range(company)]
    cut = database.submit(cut_once)
    busy.release()
    assert {cut.result(30), *(future.result(30) for future in others)} == _names(database)
    assert len(tries) == 2


def test_a_connection_that_breaks_between_changes_is_made_again(database: Database):
    if database.engine_name != "postgresql":
        pytest.skip("SQLite has no connection to lose")
    _terminate(database, database.write(lambda tx: tx.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()))
    assert database.write(_add("again")) == "again"
    assert _names(database) == {"again"}


def _terminate(database: Database, pid: int) -> None:
    with database.read() as tx:
        tx.execute(text("SELECT pg_terminate_backend(:pid, 5000)"), {"pid": pid})


def test_every_error_of_the_writer_is_ours(database: Database):
    with pytest.raises(OarlockError):
        database.write(lambda tx: tx.exec_driver_sql("SELECT nonsense FROM nowhere"))


def test_a_reader_whose_connection_breaks_is_told_so(database: Database):
    if database.engine_name != "postgresql":
        pytest.skip("SQLite has no connection to lose")
    with pytest.raises(DatabaseRefused, match="cannot be read"), database.read() as tx:
        tx.exec_driver_sql("SELECT pg_terminate_backend(pg_backend_pid())")
    assert _names(database) == set()


@pytest.mark.parametrize("point", ["commit", "committed"])
@pytest.mark.parametrize("company", [0, 2])
def test_a_change_whose_commit_got_no_answer_is_neither_lost_nor_doubled(database: Database, point: str, company: int):
    if database.engine_name != "postgresql":
        pytest.skip("SQLite commits in this process")
    passed: list[str] = []

    def cut(name: str, _node: str) -> None:
        passed.append(name)
        if name == point and passed.count(name) == 2:  # the first commit is that of the busy change
            backend = database._writer._connection
            assert backend is not None
            _terminate(database, backend.connection.driver_connection.info.backend_pid)  # type: ignore[union-attr]
            raise _lost()

    busy = Busy(database)
    asked = [database.submit(_add(f"q{n}")) for n in range(company + 1)]
    with armed(cut):
        busy.release()
        assert [future.result(30) for future in asked] == [f"q{n}" for n in range(company + 1)]
    assert _names(database) == {f"q{n}" for n in range(company + 1)}


def _lost() -> OperationalError:
    error = OperationalError("COMMIT", None, psycopg.OperationalError("the connection is closed"))
    error.connection_invalidated = True
    return error


def test_an_error_that_nobody_foresaw_is_told_and_the_writer_goes_on(database: Database):
    def no_descriptors(_name: str, _node: str) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with armed(no_descriptors), pytest.raises(DatabaseAway, match="Too many open files"):
        database.write(_add("lost"))
    assert database.write(_add("kept")) == "kept"
    assert _names(database) == {"kept"}
