"""Reports as PDF: typst lays out a template with the report as data, so that nothing a user wrote becomes markup."""

from pathlib import Path

import msgspec

from oarlock.insight.report import JobReport, headline, node_cells
from oarlock.model.errors import OarlockError

_TEMPLATE = Path(__file__).with_name("report.typ")


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
    try:
        import typst
    except ImportError:
        raise PdfUnavailable from None
    data = msgspec.json.encode(_page(report)).decode()
    # Typst's own fonts and no date: the same bytes on every machine.
    return bytes(typst.compile(_TEMPLATE, sys_inputs={"report": data}, ignore_system_fonts=True, timestamp=0))


def _page(report: JobReport) -> dict[str, object]:
    title, subtitle = headline(report)
    measured = "" if report.coverage is None else f", {report.coverage * 100:.0f} % of the time"
    return {
        "title": title,
        "subtitle": subtitle,
        "bars": report.bars,
        "amounts": report.amounts,
        "findings": report.findings,
        "nodes": [node_cells(line) for line in report.nodes],
        "footer": f"Measured by {report.samples} samples{measured}.",
    }
