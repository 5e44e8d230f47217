"""The report of one job: what it asked for, what it used, and what was found; as data and as text."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from oarlock.insight.facts import FactValue
from oarlock.insight.findings import Finding
from oarlock.insight.gather import JudgedFacts
from oarlock.insight.rules import Severity
from oarlock.insight.tables import table_lines
from oarlock.insight.wording import write_bytes, write_energy, write_fact
from oarlock.lang import duration
from oarlock.model.job import FINAL, describe_exit
from oarlock.model.summary import NodeMeasured, SummaryDetail, UsageTotals, totals

_BAR = 24
_MARKS = {Severity.BAD: "!!", Severity.WARN: " !"}


class UseBar(Struct, frozen=True):
    """How much of something was used. `share` is None where nobody knows; `text` has both amounts."""

    label: str
    share: float | None
    text: str


class NodeLine(Struct, frozen=True):
    """What a job used on one node, in the last attempt that was measured."""

    node: str
    cores: float | None
    cpu_share: float | None
    memory_own_bytes: float | None
    read_bytes: float | None
    written_bytes: float | None
    gpus: int


class JobReport(Struct, frozen=True, kw_only=True):
    """Everything that a report of a job shows."""

    job_id: int
    label: str = ""
    user: str
    project: str
    name: str | None
    queue: str
    state: str
    ending: str
    start: int
    stop: int
    bars: list[UseBar]
    nodes: list[NodeLine]
    amounts: list[tuple[str, str]]
    findings: list[Finding]
    samples: int
    coverage: float | None


def make_report(judged: JudgedFacts, detail: SummaryDetail, findings: Sequence[Finding]) -> JobReport:
    """Build the report of a job from its facts and its summary."""
    job, facts = judged.job, judged.facts
    used = totals(detail, ran=_number(facts["run_seconds"]))
    is_over = job.state in FINAL
    return JobReport(
        job_id=job.id,
        label=job.label,
        user=job.user,
        project=job.project,
        name=job.name,
        queue=job.queue,
        state=job.state.value,
        ending=describe_exit(job.exit_code) if is_over and job.exit_code is not None else "",
        start=job.start,
        stop=job.stop if is_over else 0,
        bars=list(_bars(facts)),
        nodes=[_node_line(name, node) for name, node in sorted(_last_attempt(detail).items())],
        amounts=list(_amounts(used, facts)),
        findings=list(findings),
        samples=used.samples,
        coverage=used.coverage,
    )


def _number(value: FactValue) -> float | None:
    return value if isinstance(value, int | float) else None


def _bars(facts: Mapping[str, FactValue]) -> Iterator[UseBar]:
    def write(name: str) -> str:
        return write_fact(name, facts[name])

    yield UseBar(
        "Cores", _number(facts["cpu_share"]), f"{write('cores_busy')} of {write('cores')} busy on average"
    )  # fmt: skip
    if facts["memory_own_bytes"] is not None or facts["memory_asked_bytes"] is not None:
        yield UseBar(
            "Memory", _number(facts["memory_share"]), f"{write('memory_own_bytes')} of {write('memory_asked_bytes')}"
        )
    if facts["gpus"]:
        yield UseBar("GPUs", _number(facts["gpu_share"]), f"{write('gpus')} held")
    yield UseBar(
        "Time", _number(facts["walltime_share"]), f"{write('run_seconds')} of {write('walltime_seconds')}"
    )  # fmt: skip


def _last_attempt(detail: SummaryDetail) -> Mapping[str, NodeMeasured]:
    return detail.measured[max(detail.measured, key=int)] if detail.measured else {}


def _node_line(name: str, node: NodeMeasured) -> NodeLine:
    offered = (node.cores or 0) * node.seconds
    share = None if node.cpu_seconds is None or not offered else min(node.cpu_seconds / offered, 1.0)
    return NodeLine(
        name, node.cores, share, node.memory_own_most_bytes, node.read_bytes, node.written_bytes, len(node.gpus)
    )


def _amounts(used: UsageTotals, facts: Mapping[str, FactValue]) -> Iterator[tuple[str, str]]:
    """Yield what was counted, as a name and a text; what nobody counted is left out."""
    for label, count in (
        ("Read", used.read_bytes),
        ("Written", used.written_bytes),
        ("Received", used.network_received_bytes),
        ("Sent", used.network_sent_bytes),
    ):
        if count is not None:
            yield label, write_bytes(count)
    joules = _number(facts["energy_joules"])
    if joules is not None:
        yield "Energy", write_energy(joules)


def text_lines(report: JobReport) -> list[str]:
    """Lay out a report for a terminal or a mail."""
    lines = [
        *headline(report),
        "",
        *(bar_line(bar) for bar in report.bars),
    ]
    if len(report.nodes) > 1:
        lines += ["", *_node_table(report.nodes)]
    lines += ["", *_amount_lines(report)]
    if report.findings:
        lines += ["", *finding_lines(report.findings)]
    return lines


def headline(report: JobReport) -> tuple[str, str]:
    """Return whose job it is, and what became of it."""
    name = f" ({report.name})" if report.name else ""
    ending = f", {report.ending}" if report.ending else ""
    return (
        f"Job {report.label or report.job_id}{name} of {report.user}, project {report.project}, queue {report.queue}",
        f"{report.state}{ending}: {_span(report)}",
    )


def _span(report: JobReport) -> str:
    begin = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(report.start))
    if not report.stop:
        return f"since {begin}"
    ran = duration.show(report.stop - report.start)
    return f"{begin} to {time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(report.stop))}, {ran}"


def bar_line(bar: UseBar, *, width: int = 7) -> str:
    """Lay out a bar; its label takes `width` columns."""
    label = bar.label.ljust(width)
    if bar.share is None:
        return f"  {label} {'·' * _BAR}    –    {bar.text}"
    filled = min(round(bar.share * _BAR), _BAR)
    return f"  {label} {'█' * filled}{'░' * (_BAR - filled)} {bar.share * 100:4.0f} %  {bar.text}"


def node_cells(line: NodeLine) -> list[str]:
    """Return the cells of a node: name, cores, how busy they were, own memory, read, written."""
    counts = (line.memory_own_bytes, line.read_bytes, line.written_bytes)
    return [
        line.node,
        "–" if line.cores is None else f"{line.cores:g}",
        write_fact("cpu_share", line.cpu_share),
        *("–" if count is None else write_bytes(count) for count in counts),
    ]


def _node_table(nodes: Iterable[NodeLine]) -> list[str]:
    head = ["NODE", "CORES", "BUSY", "OWN MEMORY", "READ", "WRITTEN"]
    return table_lines(head, [node_cells(line) for line in nodes])


def _amount_lines(report: JobReport) -> list[str]:
    counted = ", ".join(f"{label.lower()} {text}" for label, text in report.amounts)
    lines = [f"  {counted[:1].upper()}{counted[1:]}."] if counted else []
    return [*lines, f"  {how_measured(report)}"]


def how_measured(report: JobReport) -> str:
    """Return the sentence about what the numbers stand for."""
    if not report.samples:
        return "Not sampled: counted once, when the job ended."
    covered = "" if report.coverage is None else f", {report.coverage * 100:.0f} % of the time"
    return f"Measured by {report.samples} samples{covered}."


def finding_lines(findings: Iterable[Finding]) -> list[str]:
    """Lay out findings, each with its advice."""
    lines = []
    for finding in findings:
        lines.append(f"  {_MARKS[finding.severity]} {finding.text}  [{finding.id}]")
        lines += [f"     {text}" for text in (finding.advice, finding.line) if text]
    return lines
