"""The verb behind shells and commands in a job: its connection is upgraded, and carries their bytes."""

from typing import NoReturn

from oarlock.model.errors import UpgradeNeeded
from oarlock.web.context import EmptyResponse, RequestContext
from oarlock.web.policy import RequiredRole
from oarlock.web.registry import verb
from oarlock.web.verbs.site import EmptyRequest


@verb(
    "sessions.connect", "GET /sessions",
    role=RequiredRole.USERS, request=EmptyRequest, response=EmptyResponse, upgrades=True,
    summary="Open or join a shell or a command in a job of one's own; the connection is upgraded "
    "(`Upgrade: oarlock-session`).",
)  # fmt: skip
async def connect(_context: RequestContext, _request: EmptyRequest) -> NoReturn:
    """Refuse a plain request: a session needs the connection itself."""
    raise UpgradeNeeded
