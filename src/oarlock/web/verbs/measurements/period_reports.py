"""Verbs about reports of some days: of a user, or of a project; as data with its text, and as PDF."""

import asyncio

from msgspec import Struct

from oarlock.insight.days import DAY, ReportPeriod, month_period
from oarlock.insight.pdf import period_pdf
from oarlock.insight.period import PeriodReport, ReportScope, make_period_report, period_lines
from oarlock.insight.rules import rules_in_force
from oarlock.model.errors import BadRequest
from oarlock.web import decode
from oarlock.web.context import ContentDownload, RequestContext
from oarlock.web.decode import Instant, VerbRequest, Word
from oarlock.web.policy import Permission, RequiredRole
from oarlock.web.registry import VERBS, verb
from oarlock.web.verbs.measurements.findings import Language

_PDF = "application/pdf"
_WEEK = 7 * DAY
_WHOLE_PROJECT = Permission("reports.project", RequiredRole.ADMINS)


class PeriodReportRequest(VerbRequest):
    """Whose jobs, by default one's own, and which days (UTC): a month (`YYYY-MM`), or from one instant to another.

    Without days, the last seven. `project` without `user` is for those who may see the jobs of all its members.
    """

    user: Word | None = None
    project: Word | None = None
    month: Word | None = None
    since: Instant | None = None
    until: Instant | None = None
    language: Language = "en"


class PeriodReportView(Struct, frozen=True):
    """A report, and the same laid out as text."""

    report: PeriodReport
    text: list[str]


@verb(
    "reports.period", "GET /reports/period",
    role=RequiredRole.OWNERS, request=PeriodReportRequest, response=PeriodReportView,
    summary="Show what a user or a project held and used in some days, the worst jobs, findings, and the trend.",
)  # fmt: skip
async def period_report(context: RequestContext, request: PeriodReportRequest) -> PeriodReportView:
    """Add up the days of the period."""
    report = await _report(context, request)
    return PeriodReportView(report, period_lines(report))


@verb(
    "reports.period_pdf", "GET /reports/period.pdf",
    role=RequiredRole.OWNERS, request=PeriodReportRequest, response=str, media_type=_PDF,
    summary="Download the report of a user or a project as PDF.",
)  # fmt: skip
async def period_report_pdf(context: RequestContext, request: PeriodReportRequest) -> ContentDownload:
    """Lay out the report; typst works outside the interpreter's lock, in a thread."""
    report = await _report(context, request)
    return ContentDownload(await asyncio.to_thread(period_pdf, report), _PDF, "report.pdf")


async def _report(context: RequestContext, request: PeriodReportRequest) -> PeriodReport:
    scope = scope_of(context, request.user, request.project)
    period = period_of(request, now=context.now)
    config = context.core.config
    rules = rules_in_force(config.findings_file)
    return await context.read(
        lambda tx: make_period_report(
            tx,
            scope,
            period,
            rules,
            now=context.now,
            gpu_property=config.job_gpu_property,
            language=request.language,
        )
    )


def scope_of(context: RequestContext, user: str | None, project: str | None) -> ReportScope:
    """Return whose jobs a report is about; raise the refusal unless the caller may see it."""
    if user is None and project is not None:
        context.demand(_WHOLE_PROJECT)
        return ReportScope(None, project)
    owner = context.user.name if user is None else user
    context.demand(VERBS["reports.period"], owner)
    return ReportScope(owner, project)


def period_of(request: PeriodReportRequest, *, now: int) -> ReportPeriod:
    """Return the whole days that a request is about, and where those before begin."""
    if request.month is not None:
        if request.since is not None or request.until is not None:
            raise BadRequest("A month and other dates cannot be given together.", hint="Leave one of them out.")
        return month_period(request.month)
    wanted = now if request.until is None else min(request.until, now)
    since, until = decode.interval(request.since, wanted, now=now, length=_WEEK)
    since = max(since, 0)
    first, last = since // DAY * DAY, until // DAY * DAY + DAY
    return ReportPeriod(first, last, max(2 * first - last, 0))
