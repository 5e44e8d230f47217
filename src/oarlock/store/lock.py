"""One active server: whoever holds the database, and how a second one learns who that is."""

import fcntl
import os
import socket
import time
from pathlib import Path

import msgspec
from sqlalchemy import delete, func, insert, select

from oarlock.model.errors import DatabaseHeld
from oarlock.store.tables import instance
from oarlock.store.tx import Tx

_ADVISORY_KEY = 0x6F61726C6F636B  # "oarlock"


class Holder(msgspec.Struct, frozen=True):
    """Who holds a database: a process, its machine, and since when."""

    pid: int
    host: str
    since: int


def this_process(since: int) -> Holder:
    """Say who we are."""
    return Holder(os.getpid(), socket.gethostname(), since)


class FileLock:
    """A lock on a file beside the database; the kernel ends it with the process that has it."""

    def __init__(self, path: Path, holder: Holder) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            said = os.pread(self._file, 4096, 0)
            os.close(self._file)
            raise _held(said) from None
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, msgspec.json.encode(holder), 0)

    def release(self) -> None:
        """Let the next server in."""
        os.close(self._file)


def take_advisory(tx: Tx, holder: Holder) -> None:
    """Hold a PostgreSQL database for as long as this connection lives, whatever becomes of the transaction."""
    if not tx.execute(select(func.pg_try_advisory_lock(_ADVISORY_KEY))).scalar_one():
        said = tx.execute(select(instance.c.value).where(instance.c.name == "holder")).scalar()
        raise _held((said or "").encode())
    tx.execute(delete(instance).where(instance.c.name == "holder"))
    tx.execute(insert(instance), {"name": "holder", "value": msgspec.json.encode(holder).decode()})


def _held(said: bytes) -> DatabaseHeld:
    try:
        holder = msgspec.json.decode(said, type=Holder)
    except msgspec.DecodeError:  # the first is between taking the lock and saying so
        return DatabaseHeld("Another server already works on this database.", hint="Stop it before starting this one.")
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(holder.since))
    return DatabaseHeld(
        f"Another server already works on this database: process {holder.pid} on {holder.host}, since {since}.",
        hint=f"Stop it before starting this one (`kill {holder.pid}` on {holder.host}).",
    )
