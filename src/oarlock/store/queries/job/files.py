"""Archives of stage-in: whose they are, what they hold, and which of them nobody needs any more.

A user has an archive that the same user has sent. To know the sum of somebody else's gives nobody a right to it, so a
row belongs to one user; rows of several users with the same content share one file, which is named by its SHA-256.
"""

from collections.abc import Collection
from typing import NamedTuple

from sqlalchemy import ColumnElement, delete, func, insert, select, update

from oarlock.model.job import FINAL
from oarlock.model.submission_errors import StageInRefused
from oarlock.store.engine.tx import Tx, allocate_ids
from oarlock.store.tables import files, jobs

_METHOD, _COMPRESSION = "FILE", "gzip"


class StoredFile(NamedTuple):
    """An archive that a user has sent."""

    id: int
    md5sum: str
    sha256: str
    size: int  # bytes
    user: str
    uid: int | None = None


_COLUMNS = (files.c.idFile, files.c.md5sum, files.c.sha256, files.c.size, files.c.user_name, files.c.uid)


def add(tx: Tx, file: StoredFile, *, location: str, now: int) -> int:
    """Store an archive of a user, and return its number; one that the user has sent before keeps its own."""
    same = find(tx, user=file.user, uid=file.uid, sha256=file.sha256)
    if same is not None:
        touch(tx, [same.id], now=now)
        return same.id
    [number] = allocate_ids(tx, files.c.idFile, 1)
    row = {
        "idFile": number, "md5sum": file.md5sum, "sha256": file.sha256, "size": file.size, "user_name": file.user,
        "uid": file.uid, "location": location, "method": _METHOD, "compression": _COMPRESSION, "used": now,
    }  # fmt: skip
    tx.execute(insert(files), row)
    return number


def find(tx: Tx, *, user: str, uid: int | None, sha256: str = "", md5sum: str = "") -> StoredFile | None:
    """Return a user's own archive by one of its sums, the newest; None if there is none."""
    by_sum = files.c.sha256 == sha256 if sha256 else files.c.md5sum == md5sum
    query = select(*_COLUMNS).where(by_sum, *_of(user, uid)).order_by(files.c.idFile.desc()).limit(1)
    row = tx.execute(query).first()
    return None if row is None else StoredFile(*row)


def claim(tx: Tx, number: int, *, user: str, uid: int | None) -> StoredFile:
    """Return a user's own archive by its number; `StageInRefused` if there is none."""
    row = tx.execute(select(*_COLUMNS).where(files.c.idFile == number, *_of(user, uid))).first()
    if row is None:
        raise StageInRefused(
            f"You have no archive {number} on the server, or no longer.",
            hint="Submit a new job with `-s`: an archive is kept for STAGEIN_CACHE_EXPIRY hours after its last use.",
        )
    return StoredFile(*row)


def _of(user: str, uid: int | None) -> list[ColumnElement[bool]]:
    """Return the conditions that a row belongs to a user, not to an earlier account of that name."""
    return [files.c.user_name == user, files.c.uid.is_(None) if uid is None else files.c.uid == uid]


def by_number(tx: Tx, numbers: Collection[int]) -> dict[int, StoredFile]:
    """Return archives by their numbers."""
    rows = tx.execute(select(*_COLUMNS).where(files.c.idFile.in_(numbers)))
    return {row.idFile: StoredFile(*row) for row in rows}


def touch(tx: Tx, numbers: Collection[int], *, now: int) -> None:
    """Note that archives are used."""
    tx.execute(update(files).where(files.c.idFile.in_(numbers)).values(used=now))


def bytes_of(tx: Tx, user: str) -> int:
    """Return how many bytes the archives of a user have together."""
    return int(tx.execute(select(func.sum(files.c.size)).where(files.c.user_name == user)).scalar() or 0)


def remove_unused(tx: Tx, *, before: int) -> int:
    """Remove archives that were last used before a date and that no job waits for; return how many."""
    states = [state.value for state in FINAL]
    wanted = select(jobs.c.file_id).where(jobs.c.state.not_in(states), jobs.c.file_id.is_not(None))
    unused = delete(files).where(files.c.used < before, files.c.idFile.not_in(wanted))
    return tx.execute(unused).rowcount


def sums(tx: Tx) -> set[str]:
    """Return the SHA-256 of all archives."""
    return set(tx.execute(select(files.c.sha256)).scalars())
