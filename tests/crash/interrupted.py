"""Backup, restore, upgrade, first start, repair and take-over, ended at every point: a program that forks for each.

A point is a file that is opened, renamed, linked or removed, a program that is started, a database that is opened, a
failpoint, or (take-over) a statement that changes something. At the first one the process dies, then at the second,
and so on until it gets to its end.
"""

import itertools
import os
import shutil
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from sqlalchemy import Engine, event, make_url, text

from oarlock.config import Config
from oarlock.failpoints import armed
from oarlock.model.event import EventType
from oarlock.server import backups
from oarlock.server import check as checks
from oarlock.server.instance import attempt_key, open_instance
from oarlock.settings.kinds import DbType
from oarlock.store.engine import backup, engines, facts
from oarlock.store.engine.database import Database
from oarlock.store.engine.opening import migrate, open_database, parse_address
from oarlock.store.engine.server_lock import StandbyWatch
from oarlock.store.engine.tx import Tx
from oarlock.store.migrations import REVISIONS
from oarlock.store.queries.cluster import events
from tests.waiting import wait_until

NOW = 1_000_000
DEAD = 137
_TOUCHES = {"open", "os.rename", "os.link", "os.remove", "os.truncate", "os.chmod", "sqlite3.connect"}
_READS = ("SELECT", "SHOW", "SAVEPOINT", "RELEASE")


def end_at(number: int, folder: Path) -> Callable[[str, str], None]:
    """End this process when it passes its `number`th point in a folder; return what failpoints call."""
    passed = itertools.count(1)

    def point(*what: object) -> None:
        if next(passed) == number:
            print(f"died at point {number}:", *what, file=sys.stderr, flush=True)
            os._exit(DEAD)

    def heard(name: str, arguments: tuple[object, ...]) -> None:
        if (name in _TOUCHES and arguments and str(folder) in str(arguments[0])) or name == "subprocess.Popen":
            point(name, arguments[0])

    sys.addaudithook(heard)
    return point


def also_at_statements(point: Callable[[str, str], None]) -> None:
    """Make a point of each statement that changes something, or that takes or gives a lock."""

    def before(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        if not statement.startswith(_READS) or "pg_advisory" in statement or "pg_try_advisory" in statement:
            point("statement", " ".join(statement.split())[:60])

    event.listen(Engine, "before_cursor_execute", before)


def _note(tx: Tx, name: str) -> None:
    tx.execute(text("INSERT INTO queues (queue_name) VALUES (:name)"), {"name": name})


def _queues(path: Path) -> set[str]:
    with open_database(path) as database, database.read() as tx:
        return set(tx.execute(text("SELECT queue_name FROM queues")).scalars()) - {"admin", "default", "besteffort"}


class Interrupted:
    """A database with the queue `now`, and what is done to it."""

    statements = False  # whether they are points as well

    def __init__(self, folder: Path, address: str) -> None:
        self.address = address  # of a PostgreSQL database, for what is about one
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


class OnPostgresql(Interrupted):
    """The database is on PostgreSQL, and one for all points; the folder is the state directory of the active server."""

    @property
    def config(self) -> Config:
        url = make_url(self.address)
        return Config(
            db_type=DbType.POSTGRESQL, db_hostname=str(url.query["host"]), db_base_name=str(url.database),
            db_base_login=str(url.username),
        )  # fmt: skip

    def prepare(self) -> None:
        with self.opened(self.path.parent) as database:
            database.write(lambda tx: _note(tx, "now"))
            attempt_key(database)
            self.file.with_name("known").write_text(self.known(database))

    @contextmanager
    def opened(self, state: Path) -> Iterator[Database]:
        """Open the database as its server, once the connection of a dead one is gone."""
        with closing(StandbyWatch.of(parse_address(self.address))) as watch:
            wait_until(watch.look, what="the lock of a dead server")
        with open_instance(state, self.config) as database:
            yield database

    def known(self, database: Database) -> str:
        """Return what no death may change."""
        with database.read() as tx:
            kept = [facts.get(tx, name) for name in ("identity", "generation", "attempt key")]
            began = len(events.after(tx, 0, [EventType.NEW_GENERATION], most=10))
            named = tx.execute(text("SELECT count(*) FROM instance WHERE name IN ('holder', 'heartbeat')")).scalar_one()
            return f"{kept} {began} {named} {sorted(tx.execute(text('SELECT queue_name FROM queues')).scalars())}"


class TakeOver(OnPostgresql):
    """The active server is dead, and a standby server with an empty state directory takes its place."""

    statements = True

    def act(self) -> None:
        with open_instance(self.path.with_name("standby"), self.config) as database:
            attempt_key(database)

    def verify(self, *, done: bool) -> None:
        with self.opened(self.path.with_name("standby")) as database:
            assert self.known(database) == self.file.with_name("known").read_text()


class Dump(OnPostgresql):
    """`oarlock backup` of a PostgreSQL database."""

    def prepare(self) -> None:
        super().prepare()
        self.act()  # so that there is an older backup of the same name

    def act(self) -> None:
        backups.backup(self.path.parent, self.config, self.file, lambda _line: None)

    def verify(self, *, done: bool) -> None:
        self._restore()  # the old backup or the new one, and never half of one
        self.act()
        assert [one.name for one in self.path.parent.glob(".backup*")] == []
        if done:
            self._restore()

    def _restore(self) -> None:
        """Put the backup back: what it holds is all that was there."""
        result = backups.restore(self.path.parent, self.config, self.file, lambda _line: None)
        with open_database(self.address) as database:
            assert database.write(lambda tx: tx.execute(text("SELECT count(*) FROM queues")).scalar_one()) == 4
            database.write(lambda tx: tx.execute(text(f"DROP {result.kept} CASCADE")))


ALL = {
    "backup": Backup, "restore": Restore, "upgrade": Upgrade, "first start": FirstStart, "repair": Repair,
    "take-over": TakeOver, "dump": Dump,
}  # fmt: skip


def main(name: str, folder: Path, step: int, address: str = "") -> int:
    """Interrupt something at each `step`th point; return the last one."""
    good = folder / "good"
    good.mkdir()
    ALL[name](good, address).prepare()
    for number in itertools.count(1, step):
        work = folder / f"point{number}"
        shutil.copytree(good, work)
        one = ALL[name](work, address)
        if (child := os.fork()) == 0:
            point = end_at(number, work)
            if one.statements:
                also_at_statements(point)
            with armed(point):
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
    print(main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:]))
