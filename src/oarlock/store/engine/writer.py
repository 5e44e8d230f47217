"""The one writer: changes that arrive while it is busy share its next transaction."""

import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, RootTransaction
from sqlalchemy.exc import DBAPIError, OperationalError, SQLAlchemyError

from oarlock.failpoints import failpoint
from oarlock.model.errors import DatabaseAway, DatabaseHeld, DatabaseRefused, OarlockError
from oarlock.store.engine import journal
from oarlock.store.engine.engines import BUSY_SECONDS
from oarlock.store.engine.tx import OutcomeUnknown, Tx, transaction_number, was_committed

log = logging.getLogger(__name__)

T = TypeVar("T")
Change = Callable[[Tx], T]

LARGEST_GROUP = 100
RECONNECT_SECONDS = 10
_RECONNECT_PAUSE_SECONDS = 0.1
_PASSING = ("readonly database", "disk I/O error", "unable to open database file")
"""Errors of SQLite that come from the disk, not from the change: a retry may succeed once it is repaired."""


@dataclass(slots=True)
class _PendingChange:
    """A queued change, the future of its caller, and its result."""

    change: Change[Any]
    future: Future[Any] = field(default_factory=Future)
    value: Any = None
    error: BaseException | None = None
    broken: DBAPIError | None = None  # the database's own error, when it is the reason
    raised: BaseException | None = None  # by the change itself
    lines: list[journal.Line] = field(default_factory=list)  # for the log, once it is on disk

    def run(self, tx: Tx) -> None:
        self.value = self.error = self.broken = self.raised = None
        self.lines = journal.begin(tx)
        try:
            self.value = self.change(tx)
        except DBAPIError as error:
            self.error, self.broken = refusal(error), error
        except BaseException as error:  # noqa: BLE001  (it belongs to the caller; the writer goes on)
            self.error = error
        self.raised = self.error

    def resolve(self) -> None:
        """Complete the future of whoever waits for this change."""
        if self.error is None:
            self.future.set_result(self.value)
        else:
            self.future.set_exception(self.error)


class Writer:
    """A thread that runs changes one after the other, and commits them together.

    A future is done only when the change is on disk. A change that raises is undone alone. When the transaction
    itself fails, all its futures fail. A change may be run a second time on a new connection when the first
    one broke before the commit: it must do nothing but use its transaction.
    """

    def __init__(self, engine: Engine, check: Callable[[], None] = lambda: None) -> None:
        self._engine = engine
        self._check = check  # raises if what would be written is not where it should be
        self._pending: queue.SimpleQueue[_PendingChange | None] = queue.SimpleQueue()
        self._connection: Connection | None = None
        self._on_connect: Change[None] | None = None
        self._on_loss: Callable[[DatabaseHeld], None] | None = None
        self._lost: DatabaseHeld | None = None
        self._unsure: dict[int, Sequence[_PendingChange]] = {}  # by transaction: commits whose answer was lost
        self._closed = False
        self._closing = threading.Lock()
        self._thread = threading.Thread(target=self._work, name="oarlock-writer", daemon=True)
        self._thread.start()

    def submit(self, change: Change[T]) -> Future[T]:
        """Queue a change; the future has its value once it is on disk. Callable from any thread."""
        pending = _PendingChange(change)
        with self._closing:
            if self._closed:
                raise DatabaseRefused("The database is closed.", hint="The server is stopping; ask again later.")
            self._pending.put(pending)
        return pending.future

    def write(self, change: Change[T]) -> T:
        """Queue a change and wait until it is on disk."""
        if threading.current_thread() is self._thread:
            raise RuntimeError("a change cannot wait for another change: both would wait for ever")
        return self.submit(change).result()

    def hold(self, take: Change[None], take_again: Change[None]) -> None:
        """Run `take` now, and `take_again` on every later connection before anything is written on it.

        Once `take_again` finds another holder (`DatabaseHeld`), nothing is written any more, on any connection.
        """
        self.write(take)
        self._on_connect = take_again

    def call_on_loss(self, callback: Callable[[DatabaseHeld], None]) -> None:
        """Call `callback` once, in the writer's thread, when another server is found to hold the database."""
        self._on_loss = callback

    def close(self) -> None:
        """Finish the queued changes, then end the thread."""
        with self._closing:
            if not self._closed:
                self._closed = True
                self._pending.put(None)
        self._thread.join()

    def _work(self) -> None:
        while group := self._next_group():
            if wanted := [pending for pending in group if pending.future.set_running_or_notify_cancel()]:
                self._commit_together(wanted)
        self._give_up_unsure()
        self._disconnect()

    def _next_group(self) -> list[_PendingChange]:
        """Wait for a first change, then take those that are queued already; return nothing at the end."""
        group = []
        pending = self._pending.get()
        while pending is not None:
            group.append(pending)
            if len(group) == LARGEST_GROUP or self._pending.empty():
                return group
            pending = self._pending.get()
        if group:
            self._pending.put(None)
        return group

    def _commit_together(self, group: Sequence[_PendingChange]) -> None:
        try:
            self._try_for_a_while(group)
        except OarlockError as error:
            _fail(group, error)
        except BaseException as error:  # noqa: BLE001  (it belongs to those who wait; without, they would wait for ever)
            self._disconnect()
            _fail(group, refusal(error, away=True) if isinstance(error, OSError) else error)
        if not any(group is unsure for unsure in self._unsure.values()):
            _resolve(group)
        if self._lost is not None:
            self._give_up_unsure()

    def _try_for_a_while(self, group: Sequence[_PendingChange]) -> None:
        give_up_at = time.monotonic() + RECONNECT_SECONDS
        while lost := self._tried(group):
            log.warning("connection to the database lost", extra={"error": str(lost)})
            if time.monotonic() > give_up_at:
                raise refusal(lost, away=True)
            time.sleep(_RECONNECT_PAUSE_SECONDS)

    def _tried(self, group: Sequence[_PendingChange]) -> Exception | None:
        """Run a group in one transaction; return the error if the connection broke before it was known to be done."""
        if self._connection is None:
            self._check()
        try:
            tx = self._connected()
            if self._unsure and self._ask_for_unsure(tx, group):
                return None
        except (OperationalError, DatabaseAway) as error:
            self._disconnect()
            return error
        except SQLAlchemyError as error:
            raise refusal(error) from error
        try:
            with tx.begin() as shared:
                _run_all(tx, group)
                if len(group) == 1 and group[0].error is not None:
                    shared.rollback()
                else:
                    self._check()
                    _commit(tx, shared)
        except OutcomeUnknown as unknown:
            self._disconnect()
            self._unsure[unknown.transaction] = group
            return unknown
        except SQLAlchemyError as error:
            self._disconnect()
            if _means_lost(error):
                return error
            raise refusal(error) from error
        except OarlockError:
            self._disconnect()
            raise
        return None

    def _ask_for_unsure(self, tx: Connection, group: Sequence[_PendingChange]) -> bool:
        """Find out what became of groups whose commit was under way when the connection broke.

        Return whether this group is one that was committed. Others that were not are refused: their callers ask again,
        since what they were about may have changed meanwhile.
        """
        with tx.begin():
            outcomes = {number: was_committed(tx, number) for number in self._unsure}
        done = False
        for number, committed in outcomes.items():
            unsure = self._unsure.pop(number)
            if unsure is group:
                done = committed
            elif committed:
                _succeed(unsure)
            else:
                _fail(unsure, _not_committed())
            if unsure is not group:
                _resolve(unsure)
        return done

    def _give_up_unsure(self) -> None:
        """Refuse the groups of which it will not be known what became of them."""
        for unsure in self._unsure.values():
            _fail(unsure, _unknown())
            _resolve(unsure)
        self._unsure.clear()

    def _connected(self) -> Connection:
        if self._lost is not None:
            raise self._lost
        if self._connection is None:
            self._connection = self._engine.connect()
            try:
                self._take_again(self._connection)
            except BaseException:
                # A connection that does not hold the database must never be written on.
                self._disconnect()
                raise
        return self._connection

    def _take_again(self, connection: Connection) -> None:
        if self._on_connect is None:
            return
        try:
            with connection.begin():
                self._on_connect(connection)
        except DatabaseHeld as held:
            self._lost = held
            log.critical(
                "another server holds the database; this one writes nothing any more", extra={"why": str(held)}
            )
            if self._on_loss is not None:
                self._on_loss(held)
            raise

    def _disconnect(self) -> None:
        if self._connection is not None:
            # Not back into the pool: what holds the database for us must end with this connection.
            self._connection.invalidate()
            self._connection.close()
            self._connection = None


def _run_all(tx: Tx, group: Sequence[_PendingChange]) -> None:
    if len(group) == 1:
        group[0].run(tx)
        if group[0].broken is not None and (tx.invalidated or _means_lost(group[0].broken)):
            raise group[0].broken
    else:
        for pending in group:
            _run_apart(tx, pending)


def _run_apart(tx: Tx, pending: _PendingChange) -> None:
    """Run a change so that it can be undone without the others of its group.

    SQLite ends the whole transaction by itself on a full disk, and a broken connection has none any more: then the
    savepoint is gone, and what the change met is what the whole group met.
    """
    tx.exec_driver_sql("SAVEPOINT change")
    pending.run(tx)
    try:
        if pending.error is not None:
            tx.exec_driver_sql("ROLLBACK TO SAVEPOINT change")
        tx.exec_driver_sql("RELEASE SAVEPOINT change")
    except SQLAlchemyError:
        if pending.broken is not None:
            raise pending.broken from None
        raise


def _commit(tx: Connection, shared: RootTransaction) -> None:
    number = transaction_number(tx)
    try:
        failpoint("commit")
        shared.commit()
        failpoint("committed")
    except DBAPIError as error:
        if _means_lost(error) and number is not None:
            raise OutcomeUnknown(number) from error
        raise


def _fail(group: Sequence[_PendingChange], error: BaseException) -> None:
    for pending in group:
        pending.error = error


def _succeed(group: Sequence[_PendingChange]) -> None:
    """Take back what `_fail` said of a group: it was committed, but for changes that raised and were undone alone."""
    for pending in group:
        pending.error = pending.raised


def _resolve(group: Sequence[_PendingChange]) -> None:
    """Answer those who wait for a group."""
    for pending in group:
        pending.resolve()
    for pending in group:
        if pending.error is None:
            journal.write(pending.lines)


def _unknown() -> DatabaseAway:
    return DatabaseAway(
        "It is not known whether the change was accepted: the connection to the database broke meanwhile.",
        hint="Ask again with the same request id: nothing is done twice.",
    )


def _not_committed() -> DatabaseAway:
    return DatabaseAway(
        "The change was not accepted: the connection to the database broke before.", hint="Ask again; nothing was done."
    )


def _means_lost(error: BaseException) -> bool:
    """Return whether an error, or the one that it hides, is the end of the connection.

    A connection that PostgreSQL ends in the midst of many rows is not known to be broken yet: the driver only complains
    that it cannot roll back. The reason is the error before that one, and its class (57P: ended by the database).
    """
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, DBAPIError):
            state = str(getattr(cause.orig, "sqlstate", None) or "")
            if cause.connection_invalidated or state.startswith(("57P", "08")):
                return True
        cause = cause.__cause__ or cause.__context__
    return False


def refusal(error: BaseException, *, away: bool = False) -> OarlockError:
    """Build the error for a change that failed: `DatabaseAway` where a retry may succeed.

    `away`: the connection was lost, and could not be made again in time.
    """
    if isinstance(error, OarlockError):
        return error
    text = str(error.orig) if isinstance(error, DBAPIError) else str(error)
    if "full" in text or "No space left" in text:
        refused: DatabaseRefused = DatabaseAway(
            "The change was not accepted: the disk that holds the database is full.",
            hint="Nothing was half done. Make room there, then ask again.",
        )
    elif "locked" in text:
        refused = DatabaseAway(
            f"The change was not accepted: another program kept the database locked for {BUSY_SECONDS} s.",
            hint="Nothing was half done. `fuser` on the database file names the program.",
        )
    else:
        kind = DatabaseAway if away or any(word in text for word in _PASSING) else DatabaseRefused
        refused = kind(
            f"The change was not accepted by the database: {' '.join(text.split())}",
            hint="Nothing was half done. The server's log has more.",
        )
    refused.__cause__ = error
    return refused
