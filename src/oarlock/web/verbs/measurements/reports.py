"""Verbs about reports: a job's, as data with its text, and as PDF."""

import asyncio

from msgspec import Struct

from oarlock.insight.findings import find
from oarlock.insight.gather import gather
from oarlock.insight.pdf import job_pdf
from oarlock.insight.report import JobReport, make_report, text_lines
from oarlock.insight.rules import rules_in_force
from oarlock.model.errors import NotFound
from oarlock.model.summary import parse_detail
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.usage import summaries
from oarlock.web.context import ContentDownload, RequestContext
from oarlock.web.decode import Id, VerbRequest, Word
from oarlock.web.policy import RequiredRole
from oarlock.web.registry import verb
from oarlock.web.verbs.measurements.agents import find_measured
from oarlock.web.verbs.measurements.findings import Language

_PDF = "application/pdf"


class JobReportRequest(VerbRequest):
    """A job, of which cluster if not of ours, and the language of what was found (`en`, `fr`)."""

    id: Id
    cluster: Word | None = None
    language: Language = "en"


class JobReportView(Struct, frozen=True):
    """A report, and the same laid out as text."""

    report: JobReport
    text: list[str]


class NoReport(NotFound):
    """A report of a job of which nothing was measured."""

    def __init__(self, job: int) -> None:
        super().__init__(
            f"There is no report of job {job}: nothing was measured of it.",
            hint="A job that runs is summarised every few minutes, and at its end.",
        )


@verb(
    "jobs.report", "GET /jobs/{id}/report",
    role=RequiredRole.ADVISERS, request=JobReportRequest, response=JobReportView,
    summary="Show the report of a job: what it asked for, what it used, what was found; as data and as text.",
)  # fmt: skip
async def job_report(context: RequestContext, request: JobReportRequest) -> JobReportView:
    """Build the report from the summary."""
    report = await context.read(lambda tx: _report(context, tx, request, "jobs.report"))
    return JobReportView(report, text_lines(report))


@verb(
    "jobs.report_pdf", "GET /jobs/{id}/report.pdf",
    role=RequiredRole.ADVISERS, request=JobReportRequest, response=str, media_type=_PDF,
    summary="Download the report of a job as PDF.",
)  # fmt: skip
async def job_report_pdf(context: RequestContext, request: JobReportRequest) -> ContentDownload:
    """Lay out the report; typst works outside the interpreter's lock, in a thread."""
    report = await context.read(lambda tx: _report(context, tx, request, "jobs.report_pdf"))
    return ContentDownload(await asyncio.to_thread(job_pdf, report), _PDF, f"job_{request.id}.pdf")


def _report(context: RequestContext, tx: Tx, request: JobReportRequest, name: str) -> JobReport:
    number = find_measured(context, tx, request.id, request.cluster, name).number
    config = context.core.config
    judged = gather(tx, [number], now=context.now, gpu_property=config.job_gpu_property, cluster=config.cluster_name)
    if not judged:
        raise NoReport(request.id)
    detail = parse_detail(summaries.details_of(tx, [number])[number])
    rules, elsewhere = rules_in_force(config.findings_file), bool(judged[0].job.label)
    findings = find(rules, judged[0].facts, script=judged[0].script, language=request.language, elsewhere=elsewhere)
    return make_report(judged[0], detail, findings)
