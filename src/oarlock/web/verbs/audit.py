"""The audit, for administrators: who changed what."""

from typing import Annotated

from msgspec import Meta, Struct

from oarlock.store.engine.tx import Tx
from oarlock.store.queries import audit
from oarlock.web.context import Call
from oarlock.web.decode import Asked, Id, Instant, Word
from oarlock.web.policy import May
from oarlock.web.registry import verb

_MOST = 10_000


class SomeChanges(Asked):
    """The last `limit` changes from an instant on, by one user, about one job; `check`: also whether all is whole."""

    by: Word | None = None
    job: Id | None = None
    since: Instant = 0
    limit: Annotated[int, Meta(ge=1, le=_MOST)] = 100
    check: bool = False


class Changes(Struct, frozen=True):
    """Changes, oldest first; `broken` is the first entry that somebody edited, or before which one was taken out."""

    changes: list[audit.AuditEntry]
    broken: int | None = None


@verb(
    "audit.list", "GET /audit", may=May.ADMINS, asks=SomeChanges, answers=Changes,
    says="List who changed what, and check that nobody changed the list.",
)  # fmt: skip
async def listed(call: Call, asked: SomeChanges) -> Changes:
    """Give the changes."""

    def read(tx: Tx) -> Changes:
        found = audit.listed(tx, user=asked.by, job=asked.job, since=asked.since, most=asked.limit)
        return Changes(found, audit.broken(tx) if asked.check else None)

    return await call.read(read)
