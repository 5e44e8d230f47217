"""Verbs about the site: version, queues, accounting."""

import asyncio
from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

import oarlock
from oarlock.job import accounting as accounts
from oarlock.job import queue_states
from oarlock.job.admission.submit import DEFAULT_QUEUE
from oarlock.lang.limits import short
from oarlock.model.errors import BadRequest, QueueInUse, UnknownPolicy
from oarlock.model.snapshot import PROGRAM, PROGRAM_NAME, Queue
from oarlock.node.attempt.site_script import why_unusable
from oarlock.plan import policies
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.site import administration
from oarlock.store.queries.usage import accounting
from oarlock.web.context import EmptyResponse, RequestContext
from oarlock.web.core import ServerStep
from oarlock.web.decode import EmptyRequest, Instant, VerbRequest, Word
from oarlock.web.policy import RequiredRole
from oarlock.web.registry import verb

_NAME = Meta(pattern=r"^[A-Za-z0-9_.-]{1,64}$", description="1 to 64 letters, digits, `_`, `.` and `-`")
_POLICY = Meta(pattern=r"^[A-Za-z0-9_.:+-]{1,64}$", description="1 to 64 letters, digits, `_`, `.`, `:`, `+` and `-`")


class VersionResponse(Struct, frozen=True):
    """Which server answers, and what time it thinks it is."""

    version: str
    cluster: str
    now: int


@verb(
    "version", "GET /version",
    role=RequiredRole.ANYBODY, request=EmptyRequest, response=VersionResponse,
    summary="Say which server this is and what its clock shows.",
)  # fmt: skip
async def version(context: RequestContext, _request: EmptyRequest) -> VersionResponse:
    """Answer without looking at the database, so that it answers when nothing else does."""
    return VersionResponse(oarlock.__version__, context.core.config.cluster_name, context.now)


class QueuesResponse(Struct, frozen=True):
    """Queues, those with the highest priority first."""

    queues: list[Queue]


@verb(
    "queues.list",
    "GET /queues",
    role=RequiredRole.USERS,
    request=EmptyRequest,
    response=QueuesResponse,
    summary="List the queues.",
)
async def list_queues(context: RequestContext, _request: EmptyRequest) -> QueuesResponse:
    """Return all queues."""
    return QueuesResponse(await context.read(administration.all_queues))


class NewQueueRequest(VerbRequest):
    """A queue to be added; a higher priority is planned first, and the policy is a scheduler's name."""

    name: Annotated[str, _NAME]
    priority: Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)] = 0
    policy: Annotated[str, _POLICY] = "oar_sched_gantt_with_timesharing"


@verb(
    "queues.add",
    "POST /queues",
    role=RequiredRole.ADMINS,
    request=NewQueueRequest,
    response=EmptyResponse,
    summary="Add a queue.",
)
async def add_queue(context: RequestContext, request: NewQueueRequest) -> EmptyResponse:
    """Add an open queue."""
    queue = Queue(request.name, request.priority, await _policy(context, request.policy))
    return await _then_schedule(context, await context.do(lambda tx: administration.add_queue(tx, queue)))


async def _policy(context: RequestContext, policy: str) -> str:
    """Return a policy as it is stored: a built-in one, or a program of the site, which must be usable."""
    if policies.find_policy(policy) is not None:
        return policy
    name, folder = policy.removeprefix(PROGRAM), context.core.config.scheduler_program_dir
    path = folder / name if folder is not None and PROGRAM_NAME.fullmatch(name) else None
    if path is None or not await asyncio.to_thread(path.exists):
        names = ", ".join(policies.POLICIES)
        raise UnknownPolicy(
            f"There is no policy `{short(policy)}`.",
            hint=f"Policies: {names}, depth-N, depth-N-sjbf; some take +multifactor or +predict. "
            f"Or a program in {folder or 'the folder of SCHEDULER_PROGRAM_DIR'}.",
        )
    if why := await asyncio.to_thread(why_unusable, str(path)):
        raise UnknownPolicy(f"The scheduler `{name}` cannot be used: {why}.", hint="Only root may write it.")
    return f"{PROGRAM}{name}"


@verb(
    "queues.change", "POST /queues/change",
    role=RequiredRole.ADMINS, request=NewQueueRequest, response=EmptyResponse,
    summary="Set the priority and the policy of a queue, also of one that has jobs.",
)  # fmt: skip
async def change_queue(context: RequestContext, request: NewQueueRequest) -> EmptyResponse:
    """Change a queue; the next pass plans its jobs by what was set."""
    queue = Queue(request.name, request.priority, await _policy(context, request.policy))
    return await _then_schedule(context, await context.do(lambda tx: administration.change_queue(tx, queue)))


class NotifyRequest(VerbRequest):
    """A tag of OAR's `oarnotify`."""

    tag: Word


_STEPS: Mapping[ServerStep, tuple[str, ...]] = {
    ServerStep.SCHEDULE: ("Term", "Qsub", "BipBip", "Scheduling", "Qresume", "Walltime"),
    ServerStep.WATCH: ("Qdel",),
    ServerStep.CHECK_NODES: ("Villains", "Finaud"),
    ServerStep.APPLY_STATES: ("ChState",),
}
_TAGS = {tag.lower(): step for step, tags in _STEPS.items() for tag in tags}


@verb(
    "server.notify", "POST /notify",
    role=RequiredRole.ADMINS, request=NotifyRequest, response=EmptyResponse,
    summary="Do at once what a tag of OAR's modules stands for: a scheduling pass, a check of nodes and the like.",
)  # fmt: skip
async def notify(context: RequestContext, request: NotifyRequest) -> EmptyResponse:
    """Run the step of a tag."""
    step = _TAGS.get(request.tag.lower())
    if step is None:
        tags = ", ".join(tag for group in _STEPS.values() for tag in group)
        raise BadRequest(f"There is no tag `{short(request.tag)}`.", hint=f"Tags: {tags}.")
    await context.core.run_step(step)
    return EmptyResponse()


class QueueSelection(VerbRequest):
    """Queues by name; without any, all of them."""

    names: Annotated[list[Word], Meta(max_length=1000)] | None = None


@verb(
    "queues.start", "POST /queues/start",
    role=RequiredRole.ADMINS, request=QueueSelection, response=EmptyResponse,
    summary="Let jobs of queues start again: of those named, or of all.",
)  # fmt: skip
async def start_queues(context: RequestContext, request: QueueSelection) -> EmptyResponse:
    """Open queues."""
    by, now = context.user.name, context.now
    started = await context.do(lambda tx: queue_states.start(tx, request.names, by=by, now=now))
    context.core.forget_failures()
    return await _then_schedule(context, started)


@verb(
    "queues.stop", "POST /queues/stop",
    role=RequiredRole.ADMINS, request=QueueSelection, response=EmptyResponse,
    summary="Start no more jobs of queues: of those named, or of all.",
)  # fmt: skip
async def stop_queues(context: RequestContext, request: QueueSelection) -> EmptyResponse:
    """Close queues."""
    by, now = context.user.name, context.now
    stopped = await context.do(lambda tx: queue_states.stop(tx, request.names, by=by, now=now))
    return await _then_schedule(context, stopped)


class RemoveQueueRequest(VerbRequest):
    """A queue by its name; `force` removes even the one of jobs that name none."""

    name: Word
    force: bool = False


@verb(
    "queues.remove", "DELETE /queues/{name}",
    role=RequiredRole.ADMINS, request=RemoveQueueRequest, response=EmptyResponse,
    summary="Remove a queue in which no job is left.",
)  # fmt: skip
async def remove_queue(context: RequestContext, request: RemoveQueueRequest) -> EmptyResponse:
    """Remove it."""
    if request.name == DEFAULT_QUEUE and not request.force:
        raise QueueInUse(
            f"Jobs that name no queue go to `{DEFAULT_QUEUE}`: without it they would be refused.",
            hint=f"`oarnotify --remove-queue {DEFAULT_QUEUE} --force` removes it all the same.",
        )
    return await context.do(lambda tx: administration.remove_queue(tx, request.name))


async def _then_schedule(context: RequestContext, done: EmptyResponse) -> EmptyResponse:
    context.core.wake_scheduler()
    return done


class UpdateAccountingRequest(VerbRequest):
    """What to do besides adding jobs that ended: begin anew, or forget what is older than so many seconds."""

    reinitialize: bool = False
    delete_before: Instant | None = None


_MOST_BOOKINGS = 10_000


class BookingView(Struct, frozen=True):
    """What one job added to a row of the accounts: the row with its new sum, and whether the row is new."""

    job_id: int
    created: bool
    window_start: int
    window_stop: int
    user: str
    project: str
    queue: str
    type: str
    consumption: int


class UpdateAccountingResponse(Struct, frozen=True):
    """How many jobs were added, and how many rows there are; when old ones were to be forgotten, how many were.

    `bookings` are the first changes of the rows.
    """

    jobs: int
    rows: int
    bookings: list[BookingView]


@verb(
    "accounting.update", "POST /accounting",
    role=RequiredRole.ADMINS, request=UpdateAccountingRequest,
    response=UpdateAccountingResponse,
    summary="Bring the accounts up to date; make them anew, or forget old ones.",
)  # fmt: skip
async def update_accounts(context: RequestContext, request: UpdateAccountingRequest) -> UpdateAccountingResponse:
    """Work in several transactions, so that a long history does not keep others waiting."""
    core, delete_before = context.core, request.delete_before

    async def act() -> UpdateAccountingResponse:
        done = await accounts.update(
            core.write,
            window=core.config.accounting_window,
            reinitialize=request.reinitialize,
            delete_before=None if delete_before is None else context.now - delete_before,
            most_bookings=_MOST_BOOKINGS,
        )
        rows = done.deleted if delete_before is not None else await context.read(accounting.count)
        return UpdateAccountingResponse(
            done.jobs, rows, [BookingView(row.job_id, row.created, *row.account) for row in done.bookings]
        )

    return await context.act(act, UpdateAccountingResponse)


class AccountingRequest(VerbRequest):
    """Whose accounts, and of which time."""

    user: Word | None = None
    project: Word | None = None
    since: Instant = 0
    until: Instant = 2**53


class AccountingRowView(Struct, frozen=True):
    """Resource-seconds of a user, for a project, in a queue, in one window of time."""

    window_start: int
    window_stop: int
    user: str
    project: str
    queue: str
    type: Literal["USED", "ASKED"]
    consumption: int


class AccountingResponse(Struct, frozen=True):
    """Rows of the accounts, oldest first; of one user also the karma of a job of each project, as of now."""

    rows: list[AccountingRowView]
    karma: dict[str, float]


@verb(
    "accounting.show", "GET /accounting",
    role=RequiredRole.USERS, request=AccountingRequest, response=AccountingResponse,
    summary="Show who used and asked for how much.",
)  # fmt: skip
async def show_accounts(context: RequestContext, request: AccountingRequest) -> bytes:
    """Return the rows as bytes, encoded in the thread that read them."""
    config, now, sight = context.core.config, context.now, context.sight

    def read(tx: Tx) -> bytes:
        rows_read = accounting.listed(tx, since=request.since, until=request.until, user=request.user)
        if sight is not None:
            rows_read = [row for row in rows_read if row.user == sight.user or row.project in sight.projects]
        rows = [row for row in rows_read if request.project is None or row.project == request.project]
        own = {} if request.user is None else accounts.karma_by_project(tx, config, request.user, rows, now=now)
        return msgspec.json.encode(AccountingResponse([AccountingRowView(*row) for row in rows], own))  # type: ignore[arg-type]

    return await context.read(read)
