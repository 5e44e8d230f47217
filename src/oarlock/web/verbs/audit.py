"""The audit, for administrators: who changed what."""

from typing import Annotated

from msgspec import Meta, Struct

from oarlock.store.engine.tx import Tx
from oarlock.store.queries import audit
from oarlock.web.context import RequestContext
from oarlock.web.decode import Id, Instant, VerbRequest, Word
from oarlock.web.policy import RequiredRole
from oarlock.web.registry import verb

_MOST = 10_000


class AuditRequest(VerbRequest):
    """The last `limit` changes from an instant on, by one user, about one job; `check`: also whether all is whole."""

    by: Word | None = None
    job: Id | None = None
    since: Instant = 0
    limit: Annotated[int, Meta(ge=1, le=_MOST)] = 100
    check: bool = False


class AuditResponse(Struct, frozen=True):
    """Changes, oldest first; `broken` is the first entry that somebody edited, or before which one was taken out."""

    changes: list[audit.AuditEntry]
    broken: int | None = None


@verb(
    "audit.list", "GET /audit",
    role=RequiredRole.ADMINS, request=AuditRequest, response=AuditResponse,
    summary="List who changed what, and check that nobody changed the list.",
)  # fmt: skip
async def listed(context: RequestContext, request: AuditRequest) -> AuditResponse:
    """Return the changes."""

    def read(tx: Tx) -> AuditResponse:
        changes = audit.listed(tx, user=request.by, job=request.job, since=request.since, most=request.limit)
        return AuditResponse(changes, audit.broken(tx) if request.check else None)

    return await context.read(read)
