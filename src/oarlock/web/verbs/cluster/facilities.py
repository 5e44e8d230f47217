"""Verbs about what a site has besides nodes: file systems (Lustre, Robinhood) and virtual machines (libvirt)."""

from collections import defaultdict
from typing import Annotated, Literal

from msgspec import Meta, Struct

from oarlock.measure.remote.facilities import FileSystemView, JobIo, NamedCurve, VirtualMachine
from oarlock.store.sources.robinhood import SpaceUse
from oarlock.web.context import RequestContext
from oarlock.web.decode import EmptyRequest, VerbRequest, Word
from oarlock.web.policy import RequiredRole
from oarlock.web.registry import verb

_Limit = Annotated[int, Meta(ge=1, le=5000)]


class StorageRequest(VerbRequest):
    """Over how many seconds rates are told; `limit`: of so many jobs and users at most."""

    seconds: Literal[180, 3600, 86400] = 180
    limit: _Limit = 50


class StorageResponse(Struct, frozen=True):
    """File systems, and who reads and writes on them, most first: bytes and metadata operations a second.

    `users` are sums over jobs and what users do outside of them. Jobs and users that the caller does not see are left
    out, and `own` says so.
    """

    seconds: int
    file_systems: list[FileSystemView]
    users: list[JobIo]
    jobs: list[JobIo]
    own: bool


@verb(
    "storage.show", "GET /storage",
    role=RequiredRole.USERS, request=StorageRequest, response=StorageResponse,
    summary="Show what file systems do, and which jobs and users read and write on them (Lustre, by Prometheus).",
)  # fmt: skip
async def show_storage(context: RequestContext, request: StorageRequest) -> StorageResponse:
    """Return what the exporter says; whose traffic is seen is decided as for totals of jobs."""
    activity = await context.core.facilities.storage(request.seconds)
    sight = context.sight
    seen = [
        row for row in activity.jobs if sight is None or row.user == sight.user or row.project in sight.projects
    ]  # fmt: skip
    return StorageResponse(
        request.seconds, activity.file_systems, _by_user(seen)[: request.limit],
        [row for row in seen if row.job][: request.limit], sight is not None,
    )  # fmt: skip


def _by_user(rows: list[JobIo]) -> list[JobIo]:
    sums: defaultdict[tuple[str, str], list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
    for row in rows:
        amounts = sums[row.user, row.file_system]
        for place, amount in enumerate((row.read, row.written, row.operations)):
            amounts[place] += amount
    made = [
        JobIo(job=0, user=user, project="", file_system=name, read=read, written=written, operations=operations)
        for (user, name), (read, written, operations) in sums.items()
    ]
    return sorted(made, key=lambda row: (-row.read - row.written, -row.operations, row.user))


class CurvesResponse(Struct, frozen=True):
    """Curves of the last day: `metric`, of what is named, and points (epoch seconds, value)."""

    curves: list[NamedCurve]


@verb(
    "storage.series", "GET /storage/series",
    role=RequiredRole.USERS, request=EmptyRequest, response=CurvesResponse,
    summary="Show what each file system did in the last day: bytes and metadata operations a second.",
)  # fmt: skip
async def storage_series(context: RequestContext, _request: EmptyRequest) -> CurvesResponse:
    """Return the curves of whole file systems, which name nobody."""
    return CurvesResponse(await context.core.facilities.storage_curves())


class SpaceRequest(VerbRequest):
    """Whose space: of all groups, or of one; `limit`: so many rows at most."""

    group: Word | None = None
    limit: _Limit = 500


class SpaceResponse(Struct, frozen=True):
    """Who has how much, by file system and group, most first; a sentence about each database that does not answer.

    Users see their own, that of groups they belong to (not where JOB_VISIBILITY is `own`), and of projects they lead.
    """

    rows: list[SpaceUse]
    away: list[str]


@verb(
    "storage.space", "GET /storage/space",
    role=RequiredRole.USERS, request=SpaceRequest, response=SpaceResponse,
    summary="Show how much space users of a group have on file systems that Robinhood scans.",
)  # fmt: skip
async def show_space(context: RequestContext, request: SpaceRequest) -> SpaceResponse:
    """Return the rows that the caller may see."""
    answer = await context.core.facilities.space()
    name, groups = context.user.name, _groups_seen(context)
    rows = [
        row
        for row in answer.rows
        if request.group in (None, row.group) and (groups is None or row.user == name or row.group in groups)
    ]
    return SpaceResponse(rows[: request.limit], answer.away)


def _groups_seen(context: RequestContext) -> frozenset[str] | None:
    """Return the groups of which the caller sees all members; None: all groups."""
    user = context.user
    if user.staff:
        return None
    is_shared = context.policy.shows_groups
    return frozenset((*user.leads, *(user.account.groups if is_shared else ())))


class CloudRequest(VerbRequest):
    """Machines of all projects that the caller sees, or of one."""

    project: Word | None = None


class CloudResponse(Struct, frozen=True):
    """Virtual machines, by project and name."""

    machines: list[VirtualMachine]


@verb(
    "cloud.show", "GET /cloud",
    role=RequiredRole.USERS, request=CloudRequest, response=CloudResponse,
    summary="Show the virtual machines of projects: CPUs, memory, disks and network; those of one's own projects, of "
    "all for staff.",
)  # fmt: skip
async def show_cloud(context: RequestContext, request: CloudRequest) -> CloudResponse:
    """Return the machines of projects that the caller belongs to or leads."""
    return CloudResponse(await _machines(context, request.project))


async def _machines(context: RequestContext, project: str | None) -> list[VirtualMachine]:
    user = context.user
    own = {*user.leads, *user.account.groups}
    return [
        machine
        for machine in await context.core.facilities.machines()
        if project in (None, machine.project) and (user.staff or machine.project in own)
    ]


class CloudSeriesRequest(VerbRequest):
    """Of which project, or of which machine."""

    project: Word | None = None
    uuid: Annotated[str, Meta(pattern="^[0-9a-fA-F-]{1,64}$")] | None = None


@verb(
    "cloud.series", "GET /cloud/series",
    role=RequiredRole.USERS, request=CloudSeriesRequest, response=CurvesResponse,
    summary="Show what virtual machines did in the last day, by project; or one of them.",
)  # fmt: skip
async def cloud_series(context: RequestContext, request: CloudSeriesRequest) -> CurvesResponse:
    """Return the curves of machines that the caller sees."""
    machines = await _machines(context, request.project)
    chosen = [machine for machine in machines if request.uuid in (None, machine.uuid)]
    projects = sorted({machine.project for machine in chosen})
    if not projects:
        return CurvesResponse([])
    return CurvesResponse(await context.core.facilities.machine_curves(projects, request.uuid or ""))
