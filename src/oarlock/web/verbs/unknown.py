"""Verbs about jobs that nodes run and that the database does not know."""

from msgspec import Struct

from oarlock.model.unknown import UnknownAttempt
from oarlock.store.queries import unknown
from oarlock.web.context import EmptyResponse, RequestContext
from oarlock.web.decode import Id, VerbRequest
from oarlock.web.policy import RequiredRole
from oarlock.web.registry import verb
from oarlock.web.verbs.site import EmptyRequest


class UnknownJobsResponse(Struct, frozen=True):
    """Jobs that nodes run and that the database does not know, in the order in which they were found."""

    unknown: list[UnknownAttempt]


@verb(
    "unknown.list", "GET /unknown",
    role=RequiredRole.ADMINS, request=EmptyRequest, response=UnknownJobsResponse,
    summary="List the jobs that nodes run and that the database, restored or new, does not know.",
)  # fmt: skip
async def listed(context: RequestContext, _request: EmptyRequest) -> UnknownJobsResponse:
    """Return them in the order in which they were found."""
    return UnknownJobsResponse(await context.read(unknown.listed))


class UnknownJobByIdRequest(VerbRequest):
    """An unknown job by its number in the list."""

    id: Id


@verb(
    "unknown.end", "DELETE /unknown/{id}",
    role=RequiredRole.ADMINS, request=UnknownJobByIdRequest, response=EmptyResponse,
    summary="End a job that the database does not know; its resources are free once its node says that it ended.",
)  # fmt: skip
async def end(context: RequestContext, request: UnknownJobByIdRequest) -> EmptyResponse:
    """Send the node of the job the request to end it."""
    await context.core.end_unknown(request.id)
    return EmptyResponse()
