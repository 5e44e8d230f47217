"""Verbs about jobs that nodes run and that the database does not know."""

from msgspec import Struct

from oarlock.model.unknown import UnknownAttempt
from oarlock.store.queries import unknown
from oarlock.web.context import Call, Nought
from oarlock.web.decode import Asked, Id
from oarlock.web.policy import May
from oarlock.web.registry import verb
from oarlock.web.verbs.site import Nothing


class UnknownJobs(Struct, frozen=True):
    """Jobs that nodes run and that the database does not know, in the order in which they were found."""

    unknown: list[UnknownAttempt]


@verb(
    "unknown.list", "GET /unknown", may=May.ADMINS, asks=Nothing, answers=UnknownJobs,
    says="List the jobs that nodes run and that the database, restored or new, does not know.",
)  # fmt: skip
async def listed(call: Call, _asked: Nothing) -> UnknownJobs:
    """Return them in the order in which they were found."""
    return UnknownJobs(await call.read(unknown.listed))


class OneUnknown(Asked):
    """An unknown job by its number in the list."""

    id: Id


@verb(
    "unknown.end", "DELETE /unknown/{id}", may=May.ADMINS, asks=OneUnknown, answers=Nought,
    says="End a job that the database does not know; its resources are free once its node says that it ended.",
)  # fmt: skip
async def end(call: Call, asked: OneUnknown) -> Nought:
    """Tell its node."""
    await call.core.end_unknown(asked.id)
    return Nought()
