"""Verbs about pins: files of measurements that their owners want to keep whole."""

from collections.abc import Collection

import msgspec
from msgspec import Struct

from oarlock.measure.collect.questions import FileSizes
from oarlock.measure.collect.series import no_curves
from oarlock.model.errors import Conflict, NotFound
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.usage import pins
from oarlock.store.queries.usage.pins import ArchivePin
from oarlock.web.context import EmptyResponse, RequestContext
from oarlock.web.decode import EmptyRequest, Id, VerbRequest, Word
from oarlock.web.policy import RequiredRole
from oarlock.web.registry import verb
from oarlock.web.verbs.measurements.agents import find_measured

_MIB = 1 << 20


class NotPinned(NotFound):
    """A pin that is not there."""


class PinQuotaExceeded(Conflict):
    """A user has pinned as much as the site allows."""


class PinRequest(VerbRequest):
    """A job; one of another resource manager with its cluster, by the number that it has there."""

    id: Id
    cluster: Word | None = None


class PinView(Struct, frozen=True):
    """A pinned file: our number of its job, who pinned it and when (epoch seconds), and its size now."""

    job_id: int
    user: str
    date: int
    bytes: int


class PinsResponse(Struct, frozen=True):
    """Pinned files, and how many bytes a user may pin."""

    pins: list[PinView]
    quota_bytes: int


@verb(
    "jobs.pin", "POST /jobs/pin",
    role=RequiredRole.OWNERS, request=PinRequest, response=PinView,
    summary="Pin the file of a job's measurements: it is neither thinned nor deleted, while the quota allows it.",
)  # fmt: skip
async def pin(context: RequestContext, request: PinRequest) -> PinView:
    """Check the owner, the file and the quota, then pin it."""

    def read(tx: Tx) -> tuple[int, list[int]]:
        job = find_measured(context, tx, request.id, request.cluster, "jobs.pin").number
        return job, [pinned.job_id for pinned in pins.listed(tx, user=context.user.name)]

    job, pinned = await context.read(read)
    sizes = await _sizes(context, {job, *pinned})
    if job not in sizes:
        raise no_curves(request.id)
    if not context.user.admin:
        _check_quota(context, sizes)
    added = ArchivePin(job, context.user.name, context.now)

    def store(tx: Tx) -> PinView:
        pins.add(tx, added)
        return PinView(*added, sizes[job])

    return await context.change(store, PinView)


@verb(
    "jobs.unpin", "DELETE /jobs/{id}/pin",
    role=RequiredRole.OWNERS, request=PinRequest, response=EmptyResponse,
    summary="Remove the pin of a job's file: it is thinned and deleted in its time.",
)  # fmt: skip
async def unpin(context: RequestContext, request: PinRequest) -> EmptyResponse:
    """Remove a pin, whoever of owner and administrators set it."""

    def remove(tx: Tx) -> None:
        job = find_measured(context, tx, request.id, request.cluster, "jobs.unpin").number
        if not pins.remove(tx, job):
            raise NotPinned(f"Job {request.id} is not pinned.", hint="`oarlock archive pins` lists those that are.")

    return await context.do(remove)


@verb(
    "pins.list", "GET /pins",
    role=RequiredRole.USERS, request=EmptyRequest, response=PinsResponse,
    summary="List the files that the caller has pinned; for administrators, all.",
)  # fmt: skip
async def listed(context: RequestContext, _request: EmptyRequest) -> PinsResponse:
    """Return the pins, each with the size of its file now."""
    user = None if context.user.admin else context.user.name
    rows = await context.read(lambda tx: pins.listed(tx, user=user))
    sizes = await _sizes(context, {row.job_id for row in rows})
    views = [PinView(*row, sizes.get(row.job_id, 0)) for row in rows]
    return PinsResponse(views, context.core.config.archive_pin_quota * _MIB)


async def _sizes(context: RequestContext, jobs: Collection[int]) -> dict[int, int]:
    """Return the sizes of those of these jobs that have measurements."""
    if not jobs:
        return {}
    answer = await context.core.collector.ask(FileSizes(sorted(jobs)))
    return msgspec.json.decode(answer, type=dict[int, int])


def _check_quota(context: RequestContext, sizes: dict[int, int]) -> None:
    quota = context.core.config.archive_pin_quota
    if sum(sizes.values()) > quota * _MIB:
        needed = -(-sum(sizes.values()) // _MIB)
        raise PinQuotaExceeded(
            f"With this file your pinned files would have {needed} MiB; {quota} MiB are allowed (ARCHIVE_PIN_QUOTA).",
            hint="`oarlock archive pins` lists them, `oarlock archive unpin JOB` makes room.",
        )
