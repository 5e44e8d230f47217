"""Verbs for other clusters: samples that agents send, the jobs these report, and scripts that pushers send."""

import asyncio
from typing import Annotated, NamedTuple

from msgspec import Meta, Struct

from oarlock.measure.posting import envelope
from oarlock.measure.posting.receive import TakenSamples
from oarlock.model.errors import BadRequest, Forbidden, NotFound, Stopping, UnknownJob
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.job import agent_jobs, jobs, scripts
from oarlock.store.queries.job.agent_jobs import FIRST_NUMBER, AgentJob
from oarlock.web.context import EmptyResponse, RequestContext
from oarlock.web.decode import Id, VerbRequest, Word
from oarlock.web.identity import TokenScope
from oarlock.web.policy import RequiredRole
from oarlock.web.registry import VERBS, verb
from oarlock.web.verbs.job.job_actions import check_owner
from oarlock.web.views import masked

_INFLATE_HERE = 16 << 10  # bytes of a body that is inflated without another thread
_MOST_LISTED = 10_000


class SamplesRequest(VerbRequest):
    """The node that the samples are of: the one that the token is good for.

    `sent` is when they are sent by the clock of the agent, in epoch seconds: samples that waited there are not taken
    for ones of a clock that is wrong.
    """

    node: Word
    sent: float | None = None


@verb(
    "samples.add", "POST /samples",
    role=RequiredRole.NODES, request=SamplesRequest, response=TakenSamples, changes=False, raw=True,
    largest_body=envelope.LARGEST_BODY,
    summary="Take samples of an agent (binary, deflated; `oarlock agent --send` makes them); each counts once.",
)  # fmt: skip
async def add_samples(context: RequestContext, request: SamplesRequest) -> TakenSamples:
    """Check whose they are, take them apart, and hand them over."""
    scope = _scope(context)
    _refuse_when_stopping(context)
    if request.node != scope.node:
        raise Forbidden(
            f"This token is good for {scope.words}, not for {request.node[:80]}.",
            hint="Give the agent the token of its own node, or name the node with `--node`.",
        )
    body = context.content
    if len(body) <= _INFLATE_HERE:
        frames = envelope.unpack(body)
    else:
        frames = await asyncio.to_thread(envelope.unpack, body)
    return await context.core.agents.take(scope.node, _cluster(context, scope.cluster), frames, sent=request.sent)


def _refuse_when_stopping(context: RequestContext) -> None:
    """Raise a refusal while the server stops: what has no request id comes again by itself."""
    if context.core.stopping.is_set():
        raise Stopping("The server is stopping; nothing is taken any more.", hint="Send it again in a moment.")


def _scope(context: RequestContext) -> TokenScope:
    scope = context.user.scope
    if scope is None:
        raise Forbidden("Only a token that was made for this may be used here.")
    return scope


def _cluster(context: RequestContext, named: str | None) -> str:
    return named or context.core.config.cluster_name


class AgentJobsRequest(VerbRequest):
    """Jobs of a cluster, or of a user; only those that run."""

    cluster: Word | None = None
    user: Word | None = None
    running: bool = False
    most: Annotated[int, Meta(ge=1, le=_MOST_LISTED)] = 1000


class AgentJobView(Struct, frozen=True, omit_defaults=True):
    """A job of another resource manager. `id` is our number for it; `ended` is 0 while it runs."""

    id: int
    cluster: str
    job: str
    manager: str
    user: str
    account: str
    name: str
    nodes: list[str]
    first_seen: int
    last_seen: int
    ended: int = 0


class AgentJobsResponse(Struct, frozen=True):
    """Jobs, newest first."""

    jobs: list[AgentJobView]


@verb(
    "agents.jobs", "GET /agents/jobs",
    role=RequiredRole.USERS, request=AgentJobsRequest, response=AgentJobsResponse,
    summary="List the jobs of other resource managers that agents measure, newest first.",
)  # fmt: skip
async def list_agent_jobs(context: RequestContext, request: AgentJobsRequest) -> AgentJobsResponse:
    """Return what agents reported about them; where not everybody sees all jobs, one's own and led ones."""
    rows = await context.read(
        lambda tx: agent_jobs.listed(
            tx,
            cluster=request.cluster,
            user=request.user,
            sight=None if context.sight is None else context.advised,
            running=request.running,
            most=request.most,
        )
    )
    return AgentJobsResponse([_view(job) for job in rows])


def _view(job: AgentJob) -> AgentJobView:
    return AgentJobView(
        job.number, job.cluster, job.job, job.manager, job.user, job.account, job.name, list(job.nodes),
        job.first_seen, job.last_seen, job.ended,
    )  # fmt: skip


class SampledJob(NamedTuple):
    """The number under which a job's samples are kept, and when it began and ended (epoch seconds; 0: not yet)."""

    number: int
    began: float
    ended: float
    cluster: str = ""
    label: str = ""


def find_measured(context: RequestContext, tx: Tx, job_id: int, cluster: str | None, name: str) -> SampledJob:
    """Return a job whose samples are asked for; raise the refusal unless the caller may see them.

    A job of another resource manager is named by its cluster and the number it has there, or by our number for it.
    Without a cluster, a job of our own comes first.
    """
    if cluster is None and job_id < FIRST_NUMBER and jobs.existing(tx, [job_id]):
        own = check_owner(context, tx, job_id, name)
        return SampledJob(job_id, own.start, own.stop)
    job = _find(context, tx, job_id, cluster)
    if job is None:
        raise UnknownJob(job_id) if cluster is None else _unknown(job_id, cluster)
    check_agent_job(context, job, name)
    return SampledJob(job.number, job.first_seen, job.ended, job.cluster, job.job)


def _find(context: RequestContext, tx: Tx, job_id: int, cluster: str | None) -> AgentJob | None:
    if cluster is None and job_id >= FIRST_NUMBER:
        return agent_jobs.by_number(tx, [job_id]).get(job_id)
    return agent_jobs.find(tx, _cluster(context, cluster), str(job_id))


def number_of(tx: Tx, job_id: int, cluster: str) -> int:
    """Return our number for a job of another cluster; raise the refusal if no agent reported it."""
    job = agent_jobs.find(tx, cluster, str(job_id))
    if job is None:
        raise _unknown(job_id, cluster)
    return job.number


def _unknown(job_id: int, cluster: str) -> NotFound:
    return NotFound(
        f"No agent reported a job {job_id} of the cluster {cluster[:80]}.", hint="GET /agents/jobs lists them."
    )


def check_agent_job(context: RequestContext, job: AgentJob, name: str) -> None:
    """Raise the refusal unless the caller may do what a verb does to a job of another resource manager."""
    owner = context.user.owner_shown(job.user, job.uid)
    refusal = context.policy.can(context.caller, VERBS[name], owner, job.account, f"Job {job.job}")
    if refusal is not None:
        raise refusal


class NewScriptRequest(VerbRequest):
    """The script of a job, with the names that pushers for other portals use."""

    id_job: Id
    submit_script: str


class NewScriptResponse(Struct, frozen=True):
    """The job whose script is stored; `stored` is false if it had one before, which stays."""

    id_job: int
    stored: bool


@verb(
    "scripts.add", "POST /jobscripts",
    role=RequiredRole.SCRIPTS, request=NewScriptRequest, response=NewScriptResponse, changes=False, status=201,
    summary="Store the script of a job of another resource manager, once; also at `/api/jobscripts/`.",
)  # fmt: skip
async def add_script(context: RequestContext, request: NewScriptRequest) -> NewScriptResponse:
    """Store it. A script that is there already is answered as done: pushers send some again."""
    stored = await _store(context, request.id_job, request.submit_script, replace=False)
    return NewScriptResponse(request.id_job, stored)


class ScriptByJobRequest(VerbRequest):
    """A job by its number there."""

    job: Id


@verb(
    "scripts.put", "PUT /jobscripts/{job}",
    role=RequiredRole.SCRIPTS, request=ScriptByJobRequest, response=EmptyResponse, changes=False, raw=True,
    summary="Store the script of a job, which is the body, in place of the one it may have.",
)  # fmt: skip
async def put_script(context: RequestContext, request: ScriptByJobRequest) -> EmptyResponse:
    """Replace it."""
    try:
        script = context.content.decode()
    except UnicodeDecodeError as problem:
        raise BadRequest(f"Byte {problem.start} of the script is not valid UTF-8.", hint="Send it as text.") from None
    await _store(context, request.job, script, replace=True)
    return EmptyResponse()


async def _store(context: RequestContext, job: int, script: str, *, replace: bool) -> bool:
    if "\0" in script:
        raise BadRequest("The script holds a NUL character.", hint="Leave it out: nothing can store it.")
    _refuse_when_stopping(context)
    cluster, now = _cluster(context, _scope(context).cluster), context.now
    return await context.core.write(lambda tx: scripts.store(tx, cluster, job, script, now=now, replace=replace))


class ScriptRequest(VerbRequest):
    """A job, and of which cluster, if not of ours."""

    id: Id
    cluster: Word | None = None


class ScriptResponse(Struct, frozen=True):
    """What a job ran: its script, or its command."""

    id: int
    script: str


@verb(
    "jobs.script", "GET /jobs/{id}/script",
    role=RequiredRole.HELPERS, request=ScriptRequest, response=ScriptResponse,
    summary="Show the script that a job ran, as far as it was sent (`oarsub -S`); else, of a job of ours, its command.",
)  # fmt: skip
async def show_script(context: RequestContext, request: ScriptRequest) -> ScriptResponse:
    """Return it to its owner, support and administrators; one whose owner no agent has told, to staff alone."""
    return ScriptResponse(request.id, await context.read(lambda tx: _script(context, tx, request)))


def _of_own(context: RequestContext, tx: Tx, number: int) -> str:
    """Return the script of a job of ours; what looks like a secret in it is hidden from all but its owner."""
    job = jobs.get(tx, number)
    sent = scripts.of_jobs(tx, [number], cluster=context.core.config.cluster_name)
    text = sent.get(number) or job.command or ""
    return text if job.user == context.user.name else masked(text)


def _script(context: RequestContext, tx: Tx, request: ScriptRequest) -> str:
    name = "jobs.script"
    if request.cluster is None and request.id < FIRST_NUMBER and jobs.existing(tx, [request.id]):
        check_owner(context, tx, request.id, name)
        return _of_own(context, tx, request.id)
    job = _find(context, tx, request.id, request.cluster)
    if job is not None:
        check_agent_job(context, job, name)
    elif refusal := context.policy.can(context.caller, VERBS[name], "somebody whom no agent reported"):
        if context.sight is not None:  # another answer than that of a hidden job would tell which jobs there are
            raise UnknownJob(request.id) if request.cluster is None else _unknown(request.id, request.cluster)
        raise refusal
    number = job.job if job is not None else str(request.id)
    cluster = job.cluster if job is not None else _cluster(context, request.cluster)
    script = scripts.find(tx, cluster, int(number)) if number.isdecimal() else None
    if script is None:
        raise NotFound(
            f"There is no script of job {number} of the cluster {cluster}.",
            hint="`oarlock sources slurm-scripts` sends those of a Slurm server.",
        )
    return script if job is not None and job.user == context.user.name else masked(script)
