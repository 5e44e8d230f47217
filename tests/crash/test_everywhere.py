"""A server that dies, or whose database or nodes fail, at each failpoint in turn: every life ends as the quiet one."""

import errno
import gc
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Table, delete, insert, select
from sqlalchemy.exc import OperationalError

from oarlock.failpoints import Died
from oarlock.simulate.cluster import SimulationDatabase
from oarlock.store.engine.database import Database
from oarlock.store.engine.opening import MemoryDatabase, open_database
from oarlock.store.engine.tx import Tx
from oarlock.store.tables import metadata
from tests.crash.lives import SCENARIOS, Life, live
from tests.databases import Postgres

Act = Callable[[Life, str, str, int], None]
Rows = dict[Table, list[dict[str, Any]]]

LIVES_OF_A_DATABASE = 50
QUICK = 60
"""`make test` tries one of so many failpoints, beginning elsewhere in each scenario; the long runs try them all."""


def die_at(number: int) -> Act:
    """Let the server die at the failpoint that is passed as the `number`th."""

    def act(_life: Life, _point: str, _node: str, passed: int) -> None:
        if passed == number:
            raise Died

    return act


def die_again(number: int, later: int) -> Act:
    """Let the server die at a failpoint, and the next one some failpoints after its start."""

    def act(_life: Life, _point: str, _node: str, passed: int) -> None:
        if passed in {number, number + later}:
            raise Died

    return act


def full_disk() -> Exception:
    return OperationalError("COMMIT", None, sqlite3.OperationalError("database or disk is full"))


def lost_connection() -> Exception:
    error = OperationalError("COMMIT", None, sqlite3.OperationalError("the connection is closed"))
    error.connection_invalidated = True
    return error


def no_descriptors() -> Exception:
    return OSError(errno.EMFILE, "Too many open files")


AFTER = {"committed", "launched", "killed", "requested"}
TO_NODES = {"hello", "launch", "kill", "request", *AFTER} - {"committed"}


def fail_at(number: int, kind: Callable[[], Exception], *, times: int = 1) -> Act:
    """Let the operation at a failpoint fail: what a node is told is lost with its connection, or its answer is."""

    def act(life: Life, point: str, node: str, passed: int) -> None:
        if not number <= passed < number + times:
            return
        if may_fail(point, kind, life.cluster.database):
            if point in TO_NODES:
                life.cluster.loses_connection(node, heard=point in AFTER)
            raise kind()

    return act


def may_fail(point: str, kind: Callable[[], Exception], database: SimulationDatabase) -> bool:
    """Whether the operation at a point can fail so: a commit, or what a node is told; nothing does at the others."""
    unanswered = kind is lost_connection and getattr(database, "engine_name", "sqlite") == "postgresql"
    return point == "commit" or point in TO_NODES or (point == "committed" and unanswered)


@dataclass(frozen=True)
class Quiet:
    """A life to which nothing happens: its failpoints, and how it ends."""

    passed: list[str]
    end: list[tuple[object, ...]]


@cache
def quiet(name: str) -> Quiet:
    """Live a life to which nothing happens."""
    with MemoryDatabase() as database:
        life = live(database, name, lambda *_: None)
        assert life.problems() == []
        return Quiet(life.passed, life.end())


def has_fired(name: str, fault: str, number: int, database: SimulationDatabase) -> bool:
    """Live a life with a fault at a failpoint; return whether it was reached. The life must end as the quiet one."""
    told = f"{name}, {fault} at failpoint {number}"
    try:
        life = live(database, name, FAULTS[fault].at(number))
    except AssertionError as error:
        raise AssertionError(f"{told}: {error}") from error
    assert life.passed[:number] == quiet(name).passed[:number], told
    assert life.problems() == [], told
    assert life.end() == quiet(name).end, told
    return len(life.passed) >= number


@dataclass(frozen=True)
class Fault:
    """A fault that begins at a failpoint, and the error that it is, if it is no death."""

    at: Callable[[int], Act]
    kind: Callable[[], Exception] | None = None

    def begins_at(self, name: str, database: SimulationDatabase) -> list[int]:
        """Return the failpoints of a life at which this fault changes something: a death does at each of them."""
        points = enumerate(quiet(name).passed, start=1)
        return [number for number, point in points if self.kind is None or may_fail(point, self.kind, database)]


FAULTS: dict[str, Fault] = {
    "death": Fault(die_at),
    "death, and death again": Fault(lambda number: die_again(number, 1 + number % 7)),
    "full disk": Fault(lambda number: fail_at(number, full_disk), full_disk),
    "full disk for long": Fault(lambda number: fail_at(number, full_disk, times=12), full_disk),
    "lost connection": Fault(lambda number: fail_at(number, lost_connection), lost_connection),
    "no descriptors": Fault(lambda number: fail_at(number, no_descriptors, times=3), no_descriptors),
}


class Databases:
    """Makes databases, each for one life."""

    def __init__(self, engine: str, folder: Path, postgres: Callable[[], Postgres], template: Path) -> None:
        self._engine, self._folder, self._postgres, self._template = engine, folder, postgres, template

    @contextmanager
    def fresh(self) -> Iterator[SimulationDatabase]:
        if self._engine == "memory":
            with MemoryDatabase() as database:
                yield database
        else:
            with self._on_disk() as opened:
                yield opened

    @contextmanager
    def _on_disk(self) -> Iterator[Database]:
        if self._engine == "sqlite":
            with tempfile.TemporaryDirectory(dir=self._folder) as folder:
                for ending in ("", ".created"):
                    shutil.copy(f"{self._template}{ending}", folder)
                with open_database(Path(folder) / self._template.name) as opened:
                    yield opened
        else:
            server = self._postgres()
            url = server.make(template="oarlock_template")
            with open_database(url) as opened:
                yield opened
            server.drop(url)

    def emptied(self) -> Generator[Database]:
        """Yield databases for ever; one serves many lives, emptied before each: what its statements are stays known.

        That takes a third of the CPU time of a new one for each life.
        """
        while True:
            with self._on_disk() as opened:
                first = opened.write(_rows)
                for _ in range(LIVES_OF_A_DATABASE):
                    yield opened
                    opened.write(lambda tx: _put_back(tx, first))  # noqa: B023


def _rows(tx: Tx) -> Rows:
    """Return the rows of all tables that have any."""
    read = {table: [dict(row._mapping) for row in tx.execute(select(table))] for table in metadata.sorted_tables}
    return {table: rows for table, rows in read.items() if rows}


def _put_back(tx: Tx, rows: Rows) -> None:
    """Leave these rows, and no others; numbers are given from the beginning again."""
    for table in reversed(metadata.sorted_tables):
        tx.execute(delete(table))
    for table, held in rows.items():
        tx.execute(insert(table), held)
    tx.info.pop("next ids", None)


@pytest.fixture
def databases(tmp_path: Path, sqlite_template: Path, request: pytest.FixtureRequest) -> Callable[[str], Databases]:
    return lambda engine: Databases(engine, tmp_path, lambda: request.getfixturevalue("postgres"), sqlite_template)


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_server_that_dies_anywhere_changes_no_jobs_end(name: str, databases: Callable[[str], Databases]):
    for number in range(1 + 5 * list(SCENARIOS).index(name), 200, QUICK):
        with databases("memory").fresh() as database:
            if not has_fired(name, "death", number, database):
                return


@pytest.mark.parametrize("engine", ["sqlite", "postgresql"])
@pytest.mark.parametrize(("fault", "name"), list(zip(FAULTS, SCENARIOS, strict=True)))
def test_a_fault_in_the_midst_of_a_life_changes_no_jobs_end(
    fault: str, name: str, engine: str, databases: Callable[[str], Databases]
):
    with databases(engine).fresh() as database:
        assert has_fired(name, fault, 36, database)


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("engine", ["sqlite", "postgresql"])
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_fault_anywhere_changes_no_jobs_end(
    name: str, fault: str, engine: str, databases: Callable[[str], Databases]
):
    step = int(os.environ.get("CRASH_STEP", "1"))
    emptied = databases(engine).emptied()
    gc.freeze()  # what is there for ever need not be looked at again in each life
    numbers = FAULTS[fault].begins_at(name, next(emptied))[::step]
    failed = []
    for number, database in zip(numbers, emptied, strict=False):
        try:
            assert has_fired(name, fault, number, database)
        except AssertionError as error:
            failed.append(str(error))
    emptied.close()
    print(f"{len(numbers)} lives")
    assert not failed, "\n\n".join(failed)
