"""The verb behind the end of a job's output: read on its node, as its owner."""

from typing import Literal

from msgspec import Struct

from oarlock.model.errors import NotFound
from oarlock.model.job import JobKind, output_file
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.job import jobs, listing
from oarlock.web.context import RequestContext
from oarlock.web.decode import Id, VerbRequest
from oarlock.web.policy import RequiredRole
from oarlock.web.registry import verb
from oarlock.web.verbs.job.job_actions import check_owner


class OutputEndRequest(VerbRequest):
    """A job, and which of its two outputs."""

    id: Id
    stream: Literal["stdout", "stderr"] = "stdout"


class OutputEndResponse(Struct, frozen=True):
    """The end of an output: at most 64 KiB of a file of `size` bytes on a node; `says`: why there is nothing."""

    path: str
    node: str
    size: int
    text: str
    says: str = ""


class NoOutput(NotFound):
    """A job whose output cannot be looked at."""


@verb(
    "jobs.output", "GET /jobs/{id}/output",
    role=RequiredRole.OWNERS, request=OutputEndRequest, response=OutputEndResponse,
    summary="Show the end of what a job wrote (at most 64 KiB), read on its node as its owner.",
)  # fmt: skip
async def job_output(context: RequestContext, request: OutputEndRequest) -> OutputEndResponse:
    """Ask the first node of the job."""

    def find(tx: Tx) -> tuple[str, str, str, int | None]:
        job = check_owner(context, tx, request.id, "jobs.output")
        held = jobs.resources_of(tx, [job.id]).get(job.id, [])
        nodes = list(listing.addresses(tx, held).values())
        if job.kind is JobKind.INTERACTIVE or not nodes or not job.start or context.policy.read_only:
            raise NoOutput(f"Job {job.id} wrote no output that can be shown.", hint="It has not begun, or was a shell.")
        name = output_file(job.stdout if request.stream == "stdout" else job.stderr, job, request.stream)
        path = name if name.startswith("/") else f"{job.directory.rstrip('/')}/{name}"
        return nodes[0], path, job.user, job.uid

    node, path, user, uid = await context.read(find)
    text, size, says = await context.core.read_output(node, path, user=user, uid=uid)
    return OutputEndResponse(path, node, size, text, says)
