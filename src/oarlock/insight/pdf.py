"""Reports as PDF: typst lays out a template with the report as data, so that nothing a user wrote becomes markup."""

from pathlib import Path

import msgspec

from oarlock.insight.period import (
    PeriodReport,
    group_cells,
    period_headline,
    trend_rows,
    use_bars,
    worst_cells,
)
from oarlock.insight.report import JobReport, headline, how_measured, node_cells
from oarlock.model.errors import OarlockError

_TEMPLATES = Path(__file__).parent


class PdfUnavailable(OarlockError):
    """A PDF is asked for where typst is not installed."""

    http_status = 501

    def __init__(self) -> None:
        super().__init__(
            "Reports cannot be written as PDF here: typst is not installed.",
            hint="`pip install 'oarlock[pdf]'` on the server's machine brings it; the text has the same content.",
        )


def job_pdf(report: JobReport) -> bytes:
    """Lay out the report of a job; the same report gives the same bytes."""
    return _compile("report.typ", _page(report))


def period_pdf(report: PeriodReport) -> bytes:
    """Lay out the report of a user or a project; the same report gives the same bytes."""
    return _compile("period.typ", _period_page(report))


def _compile(template: str, page: dict[str, object]) -> bytes:
    try:
        import typst
    except ImportError:
        raise PdfUnavailable from None
    data = msgspec.json.encode(page).decode()
    # Typst's own fonts and no date: the same bytes on every machine.
    return bytes(
        typst.compile(_TEMPLATES / template, sys_inputs={"report": data}, ignore_system_fonts=True, timestamp=0)
    )


def _page(report: JobReport) -> dict[str, object]:
    title, subtitle = headline(report)
    return {
        "title": title,
        "subtitle": subtitle,
        "bars": report.bars,
        "amounts": report.amounts,
        "findings": report.findings,
        "nodes": [node_cells(line) for line in report.nodes],
        "footer": how_measured(report),
    }


def _period_page(report: PeriodReport) -> dict[str, object]:
    title, subtitle = period_headline(report)
    more = ", the newest of them" if report.more else ""
    return {
        "title": title,
        "subtitle": subtitle,
        "bars": use_bars(report.usage),
        "trend": list(trend_rows(report)),
        "group": report.by.capitalize(),
        "groups": [group_cells(group) for group in report.groups] if len(report.groups) > 1 else [],
        "worst": [worst_cells(job) for job in report.worst],
        "findings": report.findings,
        "footer": f"Findings were looked for in {report.judged} jobs{more}. Days are those of UTC.",
    }
