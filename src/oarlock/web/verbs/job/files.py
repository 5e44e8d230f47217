"""Verbs about archives of stage-in, which are sent before the jobs that need them."""

from typing import Annotated

from msgspec import Meta, Struct

from oarlock.model.errors import BadRequest
from oarlock.store.queries.job import files
from oarlock.web.context import RequestContext
from oarlock.web.decode import VerbRequest
from oarlock.web.policy import RequiredRole
from oarlock.web.registry import verb

_MD5 = Annotated[str, Meta(pattern="^[0-9a-f]{32}$", description="32 hexadecimal digits")]
_SHA256 = Annotated[str, Meta(pattern="^[0-9a-f]{64}$", description="64 hexadecimal digits")]


class FileSearchRequest(VerbRequest):
    """One of the sums of an archive of one's own; `sha256` counts where both are given."""

    md5sum: _MD5 | None = None
    sha256: _SHA256 | None = None


class FileSearchResponse(Struct, frozen=True):
    """The number of the archive, for `file_id` of a submission; null if it has to be sent."""

    file_id: int | None


@verb(
    "files.find", "GET /files",
    role=RequiredRole.SUBMITTERS, request=FileSearchRequest, response=FileSearchResponse, behalf=True,
    summary="Say whether you have sent an archive before.",
)  # fmt: skip
async def find(context: RequestContext, request: FileSearchRequest) -> FileSearchResponse:
    """Look among the archives of the caller alone: what others have sent is not told."""
    if request.md5sum is None and request.sha256 is None:
        raise BadRequest("An archive is found by one of its sums.", hint="Give `md5sum` or `sha256`.")
    account = context.account
    file = await context.read(
        lambda tx: files.find(
            tx, user=account.name, uid=account.uid, sha256=request.sha256 or "", md5sum=request.md5sum or ""
        )
    )
    return FileSearchResponse(None if file is None else file.id)


class NewFileRequest(VerbRequest):
    """How many bytes follow, and the sum that they are to have."""

    size: Annotated[int, Meta(ge=1, le=2**50)]
    md5sum: _MD5 | None = None


class NewFileResponse(Struct, frozen=True):
    """The number of the archive, for `file_id` of a submission, and its sums."""

    file_id: int
    md5sum: str
    sha256: str


@verb(
    "files.add", "PUT /files",
    role=RequiredRole.SUBMITTERS, request=NewFileRequest, response=NewFileResponse, behalf=True, uploads=True,
    summary="Send an archive (tar, compressed with gzip), which is the body; jobs name it as `file_id`.",
)  # fmt: skip
async def add(context: RequestContext, request: NewFileRequest) -> NewFileResponse:
    """Store the archive; the same one again is stored once, so that a repeated request does no harm."""
    stored = await context.core.store_file(
        context.account, context.uploaded, size=request.size, md5sum=request.md5sum, note=context.note
    )
    return NewFileResponse(stored.id, stored.md5sum, stored.sha256)
