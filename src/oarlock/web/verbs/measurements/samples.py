"""Verbs about what is kept of measurements: curves of jobs and nodes, and files to take home."""

from difflib import get_close_matches
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from oarlock.measure.collect.questions import CSV, HDF5, FileView, JobCurves, JobFile, NodeCurves
from oarlock.measure.collect.series import MOST_POINTS, SeriesView
from oarlock.model.errors import BadRequest, UnknownNode
from oarlock.node.sources.job import perf
from oarlock.settings.kinds import SAMPLE_SOURCES
from oarlock.store.queries.job import agent_jobs, job_pages, listing
from oarlock.store.queries.job.agent_jobs import FIRST_NUMBER
from oarlock.web.context import EmptyResponse, FileDownload, RequestContext
from oarlock.web.decode import Id, Instant, VerbRequest, Word
from oarlock.web.policy import RequiredRole
from oarlock.web.registry import verb
from oarlock.web.verbs.measurements.agents import find_measured

Points = Annotated[int, Meta(ge=1, le=MOST_POINTS)]
_MEDIA = {HDF5: "application/x-hdf5", CSV: "text/csv; charset=utf-8"}
_MOST_METRICS = 50
_LONGEST_CHANGE = 31 * 86_400


class JobSeriesRequest(VerbRequest):
    """A job, and what of it: metrics (none: the usual ones), from when to when, and in how many points at most.

    `cluster`: it is a job of that cluster, whose agents send here, by the number it has there.
    """

    id: Id
    cluster: Word | None = None
    metrics: list[Word] = msgspec.field(default_factory=list)
    since: Instant | None = None
    until: Instant | None = None
    points: Points = MOST_POINTS


class NodeSeriesRequest(VerbRequest):
    """A node, and what of it, as of a job; without `since`, the last day."""

    name: Word
    metrics: list[Word] = msgspec.field(default_factory=list)
    since: Instant | None = None
    until: Instant | None = None
    points: Points = MOST_POINTS


class JobSamplesRequest(VerbRequest):
    """A job, and the form of the file; a CSV file may have some metrics, or some time, only.

    `cluster`: as for curves.
    """

    id: Id
    cluster: Word | None = None
    format: Literal["h5", "csv"] = "h5"
    metrics: list[Word] = msgspec.field(default_factory=list)
    since: Instant | None = None
    until: Instant | None = None


@verb(
    "jobs.series", "GET /jobs/{id}/series",
    role=RequiredRole.ADVISERS, request=JobSeriesRequest, response=SeriesView,
    summary="Show curves of a job: least, mean and most of each stretch; counters as rates, gaps as gaps.",
)  # fmt: skip
async def job_series(context: RequestContext, request: JobSeriesRequest) -> bytes:
    """Return the collector's answer as it is."""
    job = await context.read(lambda tx: find_measured(context, tx, request.id, request.cluster, "jobs.series"))
    _check_metrics(request.metrics)
    question = JobCurves(
        job.number, request.metrics, request.since, request.until, request.points,
        began=job.began, ended=job.ended, cluster=job.cluster, label=job.label,
    )  # fmt: skip
    return await context.core.collector.ask(question)


@verb(
    "jobs.samples", "GET /jobs/{id}/samples",
    role=RequiredRole.ADVISERS, request=JobSamplesRequest, response=str, media_type=_MEDIA[HDF5],
    summary="Download all samples of a job as one HDF5 file, or as CSV; of a job that runs, those so far.",
)  # fmt: skip
async def job_samples(context: RequestContext, request: JobSamplesRequest) -> FileDownload:
    """Return the file; where h5py is not installed it is always CSV."""
    job = await context.read(lambda tx: find_measured(context, tx, request.id, request.cluster, "jobs.samples"))
    _check_metrics(request.metrics)
    if request.format == HDF5 and (request.metrics or request.since or request.until):
        raise BadRequest(
            "An HDF5 file has everything that was measured of a job.",
            hint="Leave metrics and times out, or ask for CSV.",
        )
    question = JobFile(job.number, request.format, request.metrics, request.since, request.until, ended=job.ended)
    view = msgspec.json.decode(await context.core.collector.ask(question), type=FileView)
    return FileDownload(view.path, _MEDIA[view.form], f"job_{request.id}.{view.form}", temporary=view.temporary)


@verb(
    "nodes.series", "GET /nodes/{name}/series",
    role=RequiredRole.USERS, request=NodeSeriesRequest, response=SeriesView,
    summary="Show curves of a node, and the jobs that were on it meanwhile.",
)  # fmt: skip
async def node_series(context: RequestContext, request: NodeSeriesRequest) -> bytes:
    """Return the collector's answer, with the names of jobs that other resource managers run."""
    _check_metrics(request.metrics)
    question = NodeCurves(
        request.name, context.core.clock.now(), request.metrics, request.since, request.until, request.points
    )
    answer = await context.core.collector.ask(question)
    view = msgspec.json.decode(answer, type=SeriesView)
    foreign = any(job >= FIRST_NUMBER for job in view.involved_jobs)
    if context.sight is None and not foreign:
        return answer
    seen = await context.read(lambda tx: job_pages.seen(tx, context.sight, view.involved_jobs))
    view = msgspec.structs.replace(view, involved_jobs=[job for job in view.involved_jobs if job in seen])
    names = await context.read(lambda tx: agent_jobs.names(tx, view.involved_jobs)) if foreign else view.agent_jobs
    return msgspec.json.encode(msgspec.structs.replace(view, agent_jobs=names))


class MeasureRequest(VerbRequest):
    """How nodes shall measure: for `seconds` or, without, until the jobs that are there now are over.

    `sources` are measured besides those of the settings, or left out where a `-` stands before them. `reset`: as the
    settings say again, at once.
    """

    nodes: Annotated[list[Word], Meta(min_length=1, max_length=1000)]
    period: Annotated[int, Meta(ge=1, le=60)] | None = None
    sources: list[Word] = msgspec.field(default_factory=list)
    perf_events: list[Word] = msgspec.field(default_factory=list)
    seconds: Annotated[int, Meta(ge=1, le=_LONGEST_CHANGE)] | None = None
    reset: bool = False


@verb(
    "nodes.measure", "POST /nodes/measure",
    role=RequiredRole.ADMINS, request=MeasureRequest, response=EmptyResponse,
    summary="Have nodes measure more often, or more, for a while; if one cannot be reached, none is changed.",
)  # fmt: skip
async def measure(context: RequestContext, request: MeasureRequest) -> EmptyResponse:
    """Check what is wanted, then tell the nodes."""
    for word in request.sources:
        if word.removeprefix("-") not in SAMPLE_SOURCES:
            names = ", ".join(SAMPLE_SOURCES)
            raise BadRequest(f"There is no source `{word[:80]}`.", hint=f"There are {names}.")
    for event in request.perf_events:
        if event not in perf.EVENTS:
            alike = get_close_matches(event, perf.EVENTS, n=1)
            raise BadRequest(
                f"There is no event `{event[:80]}` of a processor.",
                hint=f"Did you mean `{alike[0]}`?" if alike else f"There are {', '.join(perf.EVENTS)}.",
            )
    present = await context.read(lambda tx: listing.at_nodes(tx, request.nodes))
    missing = [name for name in request.nodes if name not in present]
    if missing:
        raise UnknownNode(f"There is no node `{missing[0][:80]}`.", hint="`oarnodes` lists them.")
    change: dict[str, object] = {"sources": request.sources, "perf_events": request.perf_events}
    change |= {name: value for name in ("period", "seconds") if (value := getattr(request, name)) is not None}

    async def tell() -> EmptyResponse:
        await context.core.measure(request.nodes, {"reset": True} if request.reset else change)
        return EmptyResponse()

    return await context.act(tell, EmptyResponse)


def _check_metrics(metrics: list[str]) -> None:
    if len(metrics) > _MOST_METRICS:
        raise BadRequest(f"{len(metrics)} metrics at once are too many.", hint=f"Name at most {_MOST_METRICS}.")
