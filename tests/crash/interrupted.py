"""Backup, restore, upgrade, first start and repair, ended at every point: run as a program, which forks for each point.

A point is a file that is opened, renamed, linked or removed, a database that is opened, or a failpoint. At the first
one the process dies, then at the second, and so on until it gets to its end.
"""

import itertools
import os
import shutil
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from sqlalchemy import text

from oarlock.config import Config
from oarlock.failpoints import armed
from oarlock.server import check as checks
from oarlock.store.engine import backup, engines
from oarlock.store.engine.opening import migrate, open_database
from oarlock.store.engine.tx import Tx
from oarlock.store.migrations import REVISIONS

NOW = 1_000_000
DEAD = 137
_TOUCHES = {"open", "os.rename", "os.link", "os.remove", "os.truncate", "os.chmod", "sqlite3.connect"}


def _end_at(number: int, folder: Path) -> Callable[[str, str], None]:
    """End this process when it passes its `number`th point in a folder; return what failpoints call."""
    passed = itertools.count(1)

    def point(*_: object) -> None:
        if next(passed) == number:
            os._exit(DEAD)

    def heard(event: str, arguments: tuple[object, ...]) -> None:
        if event in _TOUCHES and arguments and str(folder) in str(arguments[0]):
            point()

    sys.addaudithook(heard)
    return point


def _note(tx: Tx, name: str) -> None:
    tx.execute(text("INSERT INTO queues (queue_name) VALUES (:name)"), {"name": name})


def _queues(path: Path) -> set[str]:
    with open_database(path) as database, database.read() as tx:
        return set(tx.execute(text("SELECT queue_name FROM queues")).scalars()) - {"admin", "default", "besteffort"}


class Interrupted:
    """A database with the queue `now`, and what is done to it."""

    def __init__(self, folder: Path) -> None:
        self.path, self.file = folder / "oarlock.db", folder / "backup"
        self.marker = folder / "oarlock.db.created"

    def prepare(self) -> None:
        with open_database(self.path, create=True) as database:
            database.write(lambda tx: _note(tx, "now"))

    def act(self) -> None:
        """Do what is interrupted."""
        raise NotImplementedError

    def verify(self, *, done: bool) -> None:
        """Look at what an interruption left, or at the result; then do it again, to its end."""
        raise NotImplementedError


class Backup(Interrupted):
    def act(self) -> None:
        backup.copy(self.path, self.file, lambda _line: None)

    def verify(self, *, done: bool) -> None:
        if self.file.exists():
            assert backup.check(self.file).jobs == 0
        else:
            assert not done
        assert _queues(self.path) == {"now"}
        self.act()
        assert backup.check(self.file).jobs == 0
        assert [one.name for one in self.path.parent.glob(".backup*")] == []


class Restore(Interrupted):
    def prepare(self) -> None:
        with open_database(self.path, create=True) as database:
            database.write(lambda tx: _note(tx, "then"))
            backup.copy(self.path, self.file, lambda _line: None)
            database.write(lambda tx: tx.execute(text("DELETE FROM queues WHERE queue_name = 'then'")))
            database.write(lambda tx: _note(tx, "now"))

    def act(self) -> None:
        backup.restore(self.file, self.path, self.marker, now=NOW, say=lambda _line: None)

    def verify(self, *, done: bool) -> None:
        found = _queues(self.path)
        assert found == {"then"} or (found == {"now"} and not done), found
        if found == {"then"}:
            kept = list(self.path.parent.glob("oarlock.db.before-restore-*[0-9]"))
            assert {frozenset(_queues(path)) for path in kept if not path.name.endswith(".lock")} == {
                frozenset({"now"})
            }
        backup.restore(self.file, self.path, self.marker, now=NOW + 60, say=lambda _line: None)
        assert _queues(self.path) == {"then"}


class Upgrade(Interrupted):
    """The database is of the form before the present one."""

    def prepare(self) -> None:
        self.path.touch(mode=0o600)
        engine = engines.writer(self.path)
        with engine.begin() as tx:
            migrate(tx, REVISIONS[-2])
            tx.execute(text("INSERT INTO instance (name, value) VALUES ('identity', 'older')"))
            _note(tx, "now")
        engine.dispose()

    def act(self) -> None:
        open_database(self.path).close()

    def verify(self, *, done: bool) -> None:
        copies = list(self.path.parent.glob("oarlock.db.before-*"))
        for copy in copies:
            if not copy.name.endswith("partial"):
                with closing(sqlite3.connect(copy)) as connection:
                    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
                    assert connection.execute("SELECT version_num FROM alembic_version").fetchone() == (REVISIONS[-2],)
        assert copies or not done
        assert _queues(self.path) == {"now"}  # opening it brings it up to date
        with closing(sqlite3.connect(self.path)) as connection:
            assert connection.execute("SELECT version_num FROM alembic_version").fetchone() == (REVISIONS[-1],)


class FirstStart(Interrupted):
    def prepare(self) -> None:
        pass

    def act(self) -> None:
        open_database(self.path, create=True).close()

    def verify(self, *, done: bool) -> None:
        self.act()
        assert _queues(self.path) == set()
        assert self.marker.exists()


class Repair(Interrupted):
    """The accounting says something of nobody's jobs."""

    def prepare(self) -> None:
        super().prepare()
        wrong = (
            "INSERT INTO accounting (window_start, window_stop, accounting_user, accounting_project, queue_name, "
            "consumption_type, consumption) VALUES (0, 86399, 'ada', 'default', 'default', 'USED', 7)"
        )
        with open_database(self.path) as database:
            database.write(lambda tx: tx.execute(text(wrong)))

    def act(self) -> None:
        checks.repair(self.path.parent, Config(), progress=lambda *_: None)

    def verify(self, *, done: bool) -> None:
        def wrong() -> list[int]:
            found = checks.check(self.path.parent, Config(), progress=lambda *_: None).findings
            return [finding.invariant for finding in found]

        assert wrong() in ([], [] if done else [10]), wrong()
        self.act()
        assert wrong() == []
        assert _queues(self.path) == {"now"}


ALL = {"backup": Backup, "restore": Restore, "upgrade": Upgrade, "first start": FirstStart, "repair": Repair}


def main(name: str, folder: Path) -> int:
    """Interrupt something at each point; return at how many."""
    good = folder / "good"
    good.mkdir()
    ALL[name](good).prepare()
    for number in itertools.count(1):
        work = folder / f"point{number}"
        shutil.copytree(good, work)
        one = ALL[name](work)
        if (child := os.fork()) == 0:
            with armed(_end_at(number, work)):
                one.act()
            os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert code in {0, DEAD}, f"{name} failed at point {number}: {code}"
        try:
            one.verify(done=code == 0)
        except Exception as error:
            raise AssertionError(f"{name}, ended at point {number}") from error
        shutil.rmtree(work)
        if code == 0:
            return number - 1
    raise AssertionError


if __name__ == "__main__":
    print(main(sys.argv[1], Path(sys.argv[2])))
