"""The verb behind the health of sources: what else this server reads, and whether it answers."""

from msgspec import Struct

from oarlock.model.source import SourceHealth
from oarlock.web.context import RequestContext
from oarlock.web.decode import EmptyRequest
from oarlock.web.policy import RequiredRole
from oarlock.web.registry import verb


class SourcesResponse(Struct, frozen=True):
    """Sources that this server reads beside its own database; none where the settings name none."""

    sources: list[SourceHealth]


@verb(
    "sources.health", "GET /sources",
    role=RequiredRole.ADMINS, request=EmptyRequest, response=SourcesResponse,
    summary="Show which sources of other systems answer, how quickly, and since when one does not.",
)  # fmt: skip
async def sources_health(context: RequestContext, _request: EmptyRequest) -> SourcesResponse:
    """Return what was noted when each was last asked; nothing is asked now."""
    return SourcesResponse(list(context.core.source_health))
