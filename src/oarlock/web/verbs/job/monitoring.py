"""Verbs about what is recorded of a job while it runs (`oarmonitor`, `oarmonitor_graph_gen`)."""

from typing import Annotated

from msgspec import Meta

from oarlock.job import monitoring
from oarlock.job.monitoring import MonitoringStatus, RecordedJob
from oarlock.store.engine.tx import Tx
from oarlock.web.context import RequestContext
from oarlock.web.decode import Id, VerbRequest
from oarlock.web.policy import RequiredRole
from oarlock.web.registry import verb
from oarlock.web.verbs.job.job_actions import check_owner
from oarlock.web.verbs.job.jobs import JobByIdRequest


class MonitorJobRequest(VerbRequest, kw_only=True):
    """A job, and every how many seconds it is recorded; 0 ends the recording."""

    id: Id
    period: Annotated[int, Meta(ge=0, le=86400)]


@verb(
    "jobs.monitor", "POST /jobs/monitor",
    role=RequiredRole.ADMINS, request=MonitorJobRequest, response=MonitoringStatus,
    summary="Record what a running job does into `monitoring_samples`, every so many seconds, or end that (period 0). "
    "It also ends with the job, and when nobody asks for its status for a minute.",
)  # fmt: skip
async def monitor(context: RequestContext, request: MonitorJobRequest) -> MonitoringStatus:
    """Begin or end a recording."""
    return await context.core.monitor(request.id, request.period)


@verb(
    "jobs.monitoring-status", "GET /jobs/{id}/monitoring/status",
    role=RequiredRole.ADMINS, request=JobByIdRequest, response=MonitoringStatus,
    summary="Show whether a job is being recorded and how much was; asking keeps the recording going.",
)  # fmt: skip
async def status(context: RequestContext, request: JobByIdRequest) -> MonitoringStatus:
    """Return how far a recording is."""
    return await context.core.monitoring_status(request.id)


@verb(
    "jobs.monitoring", "GET /jobs/{id}/monitoring",
    role=RequiredRole.OWNERS, request=JobByIdRequest, response=RecordedJob,
    summary="Show what was recorded of a job: values over time, by node and metric; long recordings are thinned.",
)  # fmt: skip
async def recorded(context: RequestContext, request: JobByIdRequest) -> RecordedJob:
    """Return the curves of a job."""

    def read(tx: Tx) -> RecordedJob:
        check_owner(context, tx, request.id, "jobs.monitoring")
        return monitoring.read_recorded(tx, request.id)

    return await context.read(read)
