"""A server that dies, or whose database or nodes fail, at each failpoint in turn: every life ends as the quiet one."""

import errno
import itertools
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest
from sqlalchemy.exc import OperationalError

from oarlock.failpoints import Died
from oarlock.simulate.cluster import SimulationDatabase
from oarlock.store.engine.opening import MemoryDatabase, open_database
from tests.crash.lives import SCENARIOS, Life, live
from tests.databases import Postgres

Act = Callable[[Life, str, str, int], None]

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
        engine = getattr(life.cluster.database, "engine_name", "sqlite")
        if point == "commit" or (point == "committed" and kind is lost_connection and engine == "postgresql"):
            raise kind()
        if point in TO_NODES:
            life.cluster.loses_connection(node, heard=point in AFTER)

    return act


@cache
def quiet(name: str) -> list[tuple[object, ...]]:
    """Live a life to which nothing happens; return how it ends."""
    with MemoryDatabase() as database:
        life = live(database, name, lambda *_: None)
        assert life.problems() == []
        return life.end()


def has_fired(name: str, fault: str, number: int, database: SimulationDatabase) -> bool:
    """Live a life with a fault at a failpoint; return whether it was reached. The life must end as the quiet one."""
    told = f"{name}, {fault} at failpoint {number}"
    try:
        life = live(database, name, FAULTS[fault](number))
    except AssertionError as error:
        raise AssertionError(f"{told}: {error}") from error
    assert life.problems() == [], told
    assert life.end() == quiet(name), told
    return len(life.passed) >= number


FAULTS: dict[str, Callable[[int], Act]] = {
    "death": die_at,
    "death, and death again": lambda number: die_again(number, 1 + number % 7),
    "full disk": lambda number: fail_at(number, full_disk),
    "full disk for long": lambda number: fail_at(number, full_disk, times=12),
    "lost connection": lambda number: fail_at(number, lost_connection),
    "no descriptors": lambda number: fail_at(number, no_descriptors, times=3),
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
        elif self._engine == "sqlite":
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
    for number in itertools.count(1, step):
        with databases(engine).fresh() as database:
            if not has_fired(name, fault, number, database):
                print(f"{number - 1} failpoints")
                return
