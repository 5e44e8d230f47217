"""Reports of a user or a project over some days, and who may read them."""

import os
from collections.abc import Iterator

import pytest

from oarlock.cli import oarlock as command
from oarlock.insight.days import ReportPeriod, month_period
from oarlock.insight.pdf import period_pdf
from oarlock.insight.period import PeriodReport, ReportScope, make_period_report, period_lines
from oarlock.insight.rules import own_rules
from oarlock.model.errors import BadRequest
from oarlock.store.engine.database import Database
from oarlock.store.engine.tx import Tx
from oarlock.web.verbs.measurements.period_reports import PeriodReportRequest, period_of
from tests.clusters import add_nodes
from tests.web.measured_jobs import DAY, HOUR, ran
from tests.web.nodeless_server import NOW, Running, running

WEEK = ReportPeriod(NOW // DAY * DAY - 6 * DAY, NOW // DAY * DAY + DAY, 0)


def _fill(tx: Tx) -> None:
    cores = add_nodes(tx, ["n1"])[:2]
    ran(tx, cores, "nobody", busy=0.9)
    ran(tx, cores, "daemon", busy=0.1, name="sleeps")
    ran(tx, cores, "daemon", busy=0.5, project="maths")
    ran(tx, cores, "daemon", busy=0.2, ago=9 * DAY)


@pytest.fixture
def api(database: Database) -> Iterator[Running]:
    database.write(_fill)
    with running(database) as api:
        yield api


def _report(database: Database, scope: ReportScope, period: ReportPeriod = WEEK) -> PeriodReport:
    with database.read() as tx:
        return make_period_report(tx, scope, period, own_rules(), now=NOW)


def test_the_text_has_bars_trend_worst_jobs_and_findings(database: Database):
    database.write(_fill)
    assert period_lines(_report(database, ReportScope(user="daemon"))) == [
        "Report of user daemon",
        "1970-01-06 to 1970-01-12 (UTC): 2 jobs began",
        "",
        "  Cores   ███████░░░░░░░░░░░░░░░░░   30 %  1.2 of 4.0 core-hours",
        "",
        "                        NOW  BEFORE      CHANGE",
        "  Jobs begun              2       1      +100 %",
        "  Core-hours held       4.0     2.0      +100 %",
        "  Core-hours not used   2.8     1.6       +75 %",
        "  Cores used           30 %    20 %  +10 points",
        "",
        "Projects, in core-hours:",
        "  PROJECT  HELD  USED  NOT USED",
        "  maths     2.0  50 %       1.0",
        "  physics   2.0  10 %       1.8",
        "",
        "Jobs with most core-hours not used:",
        "  JOB  USER    NAME    HELD  USED  NOT USED",
        "  2    daemon  sleeps   2.0  10 %       1.8",
        "  3    daemon  –        2.0  50 %       1.0",
        "",
        "Findings about 2 jobs:",
        "  !!     1 × cpu.low: job 2: 0.2 of 2 cores were busy on average (10 %).",
        "             With 1 of 2 cores it would have run as fast, and might have begun sooner.",
        "  !!     1 × cpu.serial: job 3: One of 2 cores was busy: the program seems to be serial.",
        "             Ask for one core, or start the program so that it uses several.",
    ]


def test_days_without_a_measured_job_say_so(database: Database):
    lines = period_lines(_report(database, ReportScope(user="ada")))
    assert lines[1:] == ["1970-01-06 to 1970-01-12 (UTC): 0 jobs began", "", "  Nothing was measured in these days."]


def test_the_pdf_of_a_period_is_the_same_twice(database: Database):
    database.write(lambda tx: ran(tx, add_nodes(tx, ["n1"])[:2], "ada", busy=0.1, name='#panic("x") $ ] *'))
    first, second = (period_pdf(_report(database, ReportScope(project="physics"))) for _ in range(2))
    assert first.startswith(b"%PDF-")
    assert b"/StructTreeRoot" in first, "tagged, for readers of screens"
    assert first == second
    assert period_pdf(_report(database, ReportScope(user="stranger"))).startswith(b"%PDF-"), "an empty one, too"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be several users")
def test_users_see_their_own_report_and_administrators_all(api: Running):
    def judged(client, query: str) -> object:
        body = client.get(f"/reports/period?{query}").body
        return body.get("kind") or (body["report"]["scope"], body["report"]["usage"]["jobs"])

    user, admin = api.client_of("daemon"), api.client
    assert [judged(user, query) for query in ("", "user=nobody", "project=physics", "user=daemon&project=physics")] == [
        ({"user": "daemon", "project": None}, 2),
        "Forbidden",
        "Forbidden",
        ({"user": "daemon", "project": "physics"}, 1),
    ]
    assert [judged(admin, query) for query in ("user=nobody", "project=physics", "project=physics&month=1970-01")] == [
        ({"user": "nobody", "project": None}, 1),
        ({"user": None, "project": "physics"}, 2),
        ({"user": None, "project": "physics"}, 3),
    ]
    assert user.get("/reports/period.pdf?project=physics").body["kind"] == "Forbidden"
    assert user.get("/reports/period.pdf").body.startswith(b"%PDF-")


def test_the_command_prints_and_saves_a_report(api: Running, tmp_path, capsys):
    server, file = str(api.socket), tmp_path / "r.pdf"
    began = ["report", "--server", server, "--project", "physics", "--month", "1970-01"]
    assert command.main([*began]) == 0
    assert capsys.readouterr().out.startswith("Report of project physics\n1970-01-01 to 1970-01-31 (UTC): 3 jobs began")
    assert command.main([*began, "--pdf", str(file)]) == 0
    assert file.read_bytes().startswith(b"%PDF-")
    assert command.main(["report", "--server", server, "1", "--month", "1970-01"]) != 0
    assert command.main(["report", "--server", server, "--watch"]) != 0
    assert command.main(["report", "--server", server, "--month", "1970-13"]) != 0
    assert "`1970-13` is not a month" in capsys.readouterr().err


def test_a_month_is_compared_with_the_month_before():
    february = month_period("2024-02")
    assert [(february.until - february.since) // DAY, (february.since - february.before) // DAY] == [29, 31]
    january = month_period("2024-01")
    assert (january.since - january.before) // DAY == 31
    assert month_period("1970-01").before == 0


@pytest.mark.parametrize("text", ["", "2024", "2024-1", "2024-13", "1969-12", "2024-02-01", "x" * 200, "٢٠٢٤-٠١"])
def test_what_is_not_a_month_is_refused(text):
    with pytest.raises(BadRequest, match="is not a month"):
        month_period(text)


def test_days_are_whole_and_never_in_the_future():
    today = NOW // DAY * DAY
    period = period_of(PeriodReportRequest(since=NOW - DAY, until=2**53), now=NOW)
    assert period == ReportPeriod(today - DAY, today + DAY, today - 3 * DAY)
    assert period_of(PeriodReportRequest(since=0), now=NOW).before == 0
    with pytest.raises(BadRequest, match="before its beginning"):
        period_of(PeriodReportRequest(since=NOW + HOUR), now=NOW)
    with pytest.raises(BadRequest, match="cannot be given together"):
        period_of(PeriodReportRequest(month="2024-02", since=3), now=NOW)
