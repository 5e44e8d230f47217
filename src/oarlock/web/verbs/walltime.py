"""Verbs about the walltime of running jobs: how long, what was granted, and requests for more or less."""

from oarlock.job.run import walltime
from oarlock.job.run.walltime import WalltimeAsker, WalltimeStatus
from oarlock.model.errors import OarlockError, UnknownJob
from oarlock.store.engine.tx import Tx
from oarlock.store.queries import jobs
from oarlock.web.context import RequestContext
from oarlock.web.decode import Id, Text, VerbRequest
from oarlock.web.policy import RequiredRole
from oarlock.web.registry import VERBS, verb


class WalltimeRequest(VerbRequest):
    """A job by its number."""

    id: Id


class ChangeWalltimeRequest(VerbRequest, kw_only=True):
    """The walltime that a job shall have (`h:m:s`), or by how much it shall change (`+h:m:s`, `-h:m:s`).

    `force` applies it at once and whole, `delay_next_jobs` lets it delay planned jobs of others.
    """

    id: Id
    walltime: Text
    force: bool = False
    delay_next_jobs: bool = False


@verb(
    "jobs.walltime", "GET /jobs/{id}/walltime",
    role=RequiredRole.OWNERS, request=WalltimeRequest, response=WalltimeStatus,
    summary="Show the walltime of a running job, what was granted, and how much more may be requested.",
)  # fmt: skip
async def show(context: RequestContext, request: WalltimeRequest) -> WalltimeStatus:
    """Return the walltime of a job."""

    def read(tx: Tx) -> WalltimeStatus:
        _check_owner(context, tx, request.id, "jobs.walltime")
        return walltime.status(tx, context.core.config, request.id)

    return await context.read(read)


@verb(
    "jobs.change-walltime", "POST /jobs/walltime",
    role=RequiredRole.OWNERS, request=ChangeWalltimeRequest, response=WalltimeStatus,
    summary="Request another walltime for a running job; it is granted as far as it moves no planned job.",
)  # fmt: skip
async def change(context: RequestContext, request: ChangeWalltimeRequest) -> WalltimeStatus:
    """Store the request; the scheduler looks at it at once."""
    user, config, now = context.user, context.core.config, context.now
    asker = WalltimeAsker(user.name, user.account.groups, user.admin)

    def store(tx: Tx) -> WalltimeStatus:
        _check_owner(context, tx, request.id, "jobs.change-walltime")
        return walltime.request(
            tx, config, request.id, request.walltime, asker,
            now=now, force=request.force, delay_next_jobs=request.delay_next_jobs,
        )  # fmt: skip

    stored = await context.change(store, WalltimeStatus)
    context.core.wake_scheduler()
    return stored


def _check_owner(context: RequestContext, tx: Tx, job_id: int, name: str) -> None:
    """Raise the refusal unless the caller administers or owns the job: by name and uid, since names are reused."""
    jobs_of_number = jobs.existing(tx, [job_id])
    if not jobs_of_number:
        raise UnknownJob(job_id)
    [job] = jobs_of_number
    owner = job.user if context.user.admin or context.user.account.is_number(job.uid) else f"another {job.user}"
    refusal: OarlockError | None = context.policy.can(context.caller, VERBS[name], owner)
    if refusal is not None:
        raise refusal
