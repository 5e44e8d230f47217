"""The report of a job, as text and as PDF."""

from oarlock.insight.facts import JobContext, facts_of
from oarlock.insight.findings import find
from oarlock.insight.gather import JudgedFacts
from oarlock.insight.pdf import job_pdf
from oarlock.insight.report import JobReport, make_report, text_lines
from oarlock.insight.rules import own_rules
from oarlock.model.job import JobState
from oarlock.model.summary import NodeMeasured, SummaryDetail
from oarlock.store.queries.usage.judged_jobs import JudgedJob

HOUR = 3600


def _report(
    *, name: str | None = "daily", exit_code: int | None = 0, over: bool = True, memory: float | None = 3e9
) -> JobReport:  # fmt: skip
    """Return the report of a job that ran an hour on 4 cores of each of two nodes, half of them busy."""
    measured = NodeMeasured(
        samples=360, seconds=HOUR, cores=4.0, node_cores=4, cpu_seconds=2.0 * HOUR, until=HOUR,
        memory_own_most_bytes=memory, memory_asked_bytes=memory and 8e9, read_bytes=1e9, written_bytes=2e6,
    )  # fmt: skip
    row = {"seconds": float(HOUR), "cpus": 4.0}
    detail = SummaryDetail(attempts={"1": {"n1": row, "n2": row}}, measured={"1": {"n1": measured, "n2": measured}})
    state = JobState.TERMINATED if over else JobState.RUNNING
    job = JudgedJob(7, "ada", "physics", "default", name, state, 1_000_000, 1_000_000 + HOUR if over else 0,
                    exit_code, HOUR + 600, 8, ("n1", "n2"), 0, False)  # fmt: skip
    context = JobContext(
        walltime=HOUR + 600, run_seconds=HOUR, nodes=2, cores=8, is_over=over, succeeded=exit_code == 0
    )
    facts = facts_of(context, detail)
    return make_report(JudgedFacts(job, facts), detail, find(own_rules(), facts))


def test_the_text_has_bars_nodes_amounts_and_findings(monkeypatch):
    monkeypatch.setenv("TZ", "UTC")
    assert text_lines(_report()) == [
        "Job 7 (daily) of ada, project physics, queue default",
        "Terminated, exit 0: 1970-01-12 13:46:40 to 1970-01-12 14:46:40, 1:00:00",
        "",
        "  Cores   ████████████░░░░░░░░░░░░   50 %  4 of 8 busy on average",
        "  Memory  █████████░░░░░░░░░░░░░░░   38 %  5.6 GiB of 14.9 GiB",
        "  Time    █████████████████████░░░   86 %  1:00:00 of 1:10:00",
        "",
        "  NODE  CORES  BUSY  OWN MEMORY     READ  WRITTEN",
        "  n1        4  50 %     2.8 GiB  954 MiB  1.9 MiB",
        "  n2        4  50 %     2.8 GiB  954 MiB  1.9 MiB",
        "",
        "  Read 1.9 GiB, written 3.8 MiB.",
        "  Measured by 720 samples, 100 % of the time.",
        "",
        "  !! 4 of 8 cores were busy on average (50 %).  [cpu.low]",
        "     With 5 of 8 cores it would have run as fast, and might have begun sooner.",
        "     oarsub -l /core=5,walltime=1:10:00 …",
    ]


def test_what_nobody_knows_has_no_bar():
    assert [bar.label for bar in _report(memory=None).bars] == ["Cores", "Time"]


def test_a_job_that_runs_has_no_end_and_no_exit():
    lines = text_lines(_report(exit_code=None, over=False))
    assert lines[1].startswith("Running: since ")


def test_a_pdf_is_the_same_twice_and_has_what_was_found():
    first, second = job_pdf(_report()), job_pdf(_report())
    assert first.startswith(b"%PDF-")
    assert b"/StructTreeRoot" in first, "tagged, for readers of screens"
    assert first == second


def test_what_a_user_wrote_is_not_markup():
    assert job_pdf(_report(name='#panic("x") $ ] *')).startswith(b"%PDF-")
