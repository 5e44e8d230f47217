"""The verb behind `oarlock purge`: a slice of the jobs that ended long ago, moved to an archive file."""

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

from oarlock.model.errors import BadRequest
from oarlock.store.engine import past_jobs
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.usage import purge
from oarlock.web.context import RequestContext
from oarlock.web.decode import Instant, VerbRequest
from oarlock.web.policy import RequiredRole
from oarlock.web.registry import verb

_AT_ONCE = 500
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,100}")


class PurgeRequest(VerbRequest):
    """Jobs that ended before an instant. `count_only`: move none, say how many there are.

    `name` is what the archive is called; without it, the day of the instant.
    """

    before: Instant
    count_only: bool = False
    name: Annotated[str, Meta(max_length=100)] | None = None


class PurgeResponse(Struct, frozen=True):
    """How many jobs were moved by this request, how many are left, and where they are now."""

    moved: int
    left: int
    archive: str


@verb(
    "jobs.purge", "POST /jobs/purge",
    role=RequiredRole.ADMINS, request=PurgeRequest, response=PurgeResponse,
    summary="Move jobs that ended before an instant to an archive file, some at once: ask again while some are left.",
)  # fmt: skip
async def purge_jobs(context: RequestContext, request: PurgeRequest) -> PurgeResponse:
    """Copy a slice, then delete it."""
    if request.before > context.now:
        raise BadRequest("That instant has not come yet.", hint="Name a date in the past.")
    name = request.name or f"before-{datetime.fromtimestamp(request.before, UTC):%Y-%m-%d}"
    if not _NAME.fullmatch(name):
        raise BadRequest(f"`{name}` cannot be the name of an archive.", hint="Use letters, digits, `-`, `_` and `.`.")
    file = past_jobs.archive_of(context.core.state_dir, name)
    before = request.before
    if request.count_only:
        return PurgeResponse(0, await context.read(lambda tx: purge.count(tx, before)), str(file))
    moved, site = await context.read(lambda tx: (purge.read_slice(tx, before, _AT_ONCE), purge.all_resources(tx)))
    if not moved.ids:
        return PurgeResponse(0, 0, str(file))
    await context.core.compute(lambda: _store(file, moved, site), user=context.reader)

    def remove(tx: Tx) -> PurgeResponse:
        return PurgeResponse(purge.remove(tx, moved.ids, before), purge.count(tx, before), str(file))

    return await context.change(remove, PurgeResponse)


def _store(file: Path, moved: purge.JobSlice, site: purge.SiteResources) -> None:
    past_jobs.write_archive(file, lambda tx: purge.store(tx, moved, site))
