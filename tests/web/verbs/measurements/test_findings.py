"""Findings of stored jobs: one job, the jobs of some days, and who sees what."""

import sys
import tempfile
from pathlib import Path

from oarlock.cli.jobs import oarstat
from oarlock.model.event import Event, EventType
from oarlock.model.job import JobState
from oarlock.model.summary import NodeMeasured, SummaryDetail, write_detail
from oarlock.store.engine.database import Database
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.cluster import events
from oarlock.store.queries.usage import summaries
from oarlock.store.queries.usage.summaries import Summary
from tests.clusters import add_nodes
from tests.store.cluster import add_job, run, step
from tests.web.nodeless_server import NOW, running

HOUR = 3600


def _ran(tx: Tx, cores: list[int], *, busy: float, energy: float | None = None, **fields: object) -> int:
    """Add a job that ran for two hours on two cores, the given share of which was busy, and ended well."""
    begin = NOW - 3 * HOUR
    job = run(tx, add_job(tx, **{"user": "root", "submitted": begin} | fields), cores, at=begin)
    for state in (JobState.FINISHING, JobState.TERMINATED):
        job = step(tx, job, state, at=begin + 2 * HOUR)
    seconds = 2.0 * HOUR
    measured = NodeMeasured(
        samples=720, seconds=seconds, cores=2.0, node_cores=4, cpu_seconds=busy * 2 * seconds, until=seconds
    )
    row = {"seconds": seconds, "cpus": 2.0}
    detail = SummaryDetail(attempts={"1": {"n1": row}}, measured={"1": {"n1": measured}})
    summaries.save(tx, [Summary(job_id=job.id, date=NOW, energy_joules=energy, detail=write_detail(detail))])
    return job.id


def test_a_job_is_judged_with_its_facts_and_its_advice(database: Database):
    database.write(lambda tx: _ran(tx, add_nodes(tx, ["n1"])[:2], busy=0.4, name="run"))
    with running(database) as api:
        view = api.client.get("/jobs/1/findings").body
    assert [(finding["id"], finding["severity"]) for finding in view["findings"]] == [("cpu.low", "bad")]
    assert view["findings"][0]["text"] == "0.8 of 2 cores were busy on average (40 %)."
    assert view["findings"][0]["line"] == "oarsub -l /core=1,walltime=1:00:00 …"
    chosen = {name: view["facts"][name] for name in ("cores", "nodes", "run_seconds", "walltime_seconds", "samples")}
    assert chosen == {"cores": 2, "nodes": 1, "run_seconds": 2 * HOUR, "walltime_seconds": HOUR, "samples": 720}
    assert view["facts"]["gpu_share"] is None


def test_nobody_is_told_to_ask_for_as_many_cores_as_before(database: Database):
    database.write(lambda tx: _ran(tx, add_nodes(tx, ["n1"])[:2], busy=0.6))
    with running(database) as api:
        [finding] = api.client.get("/jobs/1/findings").body["findings"]
    assert (finding["id"], finding.get("advice", ""), finding.get("line", "")) == ("cpu.low", "", "")


def test_a_job_that_was_not_measured_has_no_findings_and_no_facts(database: Database):
    database.write(lambda tx: run(tx, add_job(tx, user="root"), add_nodes(tx, ["n1"])[:1]))
    with running(database) as api:
        view = api.client.get("/jobs/1/findings").body
        missing = api.client.get("/jobs/9/findings").body
    assert (view["findings"], view["facts"]) == ([], {})
    assert missing["kind"] == "UnknownJob"


def test_events_of_its_nodes_and_usual_energy_are_known(database: Database):
    def fill(tx: Tx) -> None:
        cores = add_nodes(tx, ["n1", "n2"])
        for _ in range(5):
            _ran(tx, cores[:2], busy=1.0, energy=1000.0, name="daily")
        _ran(tx, cores[:2], busy=1.0, energy=4000.0, name="daily")
        _ran(tx, cores[:2], busy=1.0, energy=4000.0, name="other")
        happened = [("n1", NOW - 3 * HOUR), ("n1", NOW - 9 * HOUR), ("n2", NOW - 3 * HOUR)]
        kind = EventType.PING_CHECKER_NODE_SUSPECTED
        events.add(tx, [Event(kind, at=at, description="", hosts=(node,)) for node, at in happened])

    database.write(fill)
    with running(database) as api:
        usual, outlier, other = (api.client.get(f"/jobs/{job}/findings").body for job in (1, 6, 7))
    assert [finding["id"] for finding in outlier["findings"]] == ["node.event", "energy.outlier"]
    assert outlier["facts"]["node_events"] == 1
    assert outlier["facts"]["energy_of_usual"] == 4.0
    assert usual["facts"]["energy_of_usual"] == 1.0
    assert other["facts"]["energy_of_usual"] is None


def test_the_jobs_of_some_days_are_listed_newest_first(database: Database):
    def fill(tx: Tx) -> None:
        cores = add_nodes(tx, ["n1"])[:2]
        _ran(tx, cores, busy=0.5, user="root")
        _ran(tx, cores, busy=1.0, user="root")
        _ran(tx, cores, busy=0.6, user="ada", project="physics")

    database.write(fill)
    with running(database) as api:
        everything = api.client.get("/findings").body
        physics = api.client.get("/findings?project=physics").body
        earlier = api.client.get(f"/findings?since=0&until={NOW - 2 * HOUR}").body
        wrong = api.client.get("/findings?since=10&until=5").body
    assert [view["job_id"] for view in everything["jobs"]] == [3, 1]
    assert (everything["judged"], everything["own"], everything["more"]) == (3, False, False)
    assert [view["job_id"] for view in physics["jobs"]] == [3]
    assert earlier["judged"] == 0
    assert wrong["kind"] == "BadRequest"


def test_a_changed_file_of_rules_is_read_again(database: Database, tmp_path: Path):
    database.write(lambda tx: _ran(tx, add_nodes(tx, ["n1"])[:2], busy=0.6))
    file = tmp_path / "findings.toml"
    file.write_text('[[finding]]\nid = "cpu.low"\noff = true\n')
    with running(database, findings_file=file) as api:
        off = api.client.get("/jobs/1/findings").body
        file.write_text('[[finding]]\nid = "cpu.low"\nbad = "cpu_share < 0.1"\n')
        warn = api.client.get("/jobs/1/findings").body
        file.write_text('[[finding]]\nid = "cpu.low"\nbad = "cpu_sharp < 0.1"\n')
        broken = api.client.get("/jobs/1/findings").body
        rules = api.client.get("/findings/rules").body
    assert off["findings"] == []
    assert [(finding["id"], finding["severity"]) for finding in warn["findings"]] == [("cpu.low", "warn")]
    assert broken["kind"] == rules["kind"] == "BadRule"
    assert "cpu_sharp" in broken["error"]


def test_a_report_is_text_and_data_and_pdf(database: Database):
    database.write(lambda tx: _ran(tx, add_nodes(tx, ["n1"])[:2], busy=0.6, name="run"))
    database.write(lambda tx: run(tx, add_job(tx, user="root"), [3]))
    with running(database) as api:
        view = api.client.get("/jobs/1/report").body
        missing = api.client.get("/jobs/2/report").body
        pdf = api.client.get("/jobs/1/report.pdf").body
    assert view["text"][0] == "Job 1 (run) of root, project default, queue default"
    assert view["report"]["bars"][0] == {"label": "Cores", "share": 0.6, "text": "1.2 of 2 busy on average"}
    assert missing["error"] == "There is no report of job 2: nothing was measured of it."
    assert pdf.startswith(b"%PDF-")


def test_the_usage_of_a_job_names_what_was_found(database: Database, monkeypatch, capfd):
    number = database.write(lambda tx: _ran(tx, add_nodes(tx, ["n1"])[:2], busy=0.4, initial_request="oarsub x"))
    with running(database) as api:
        monkeypatch.setattr(sys, "argv", ["oarstat", "--server", str(api.socket), "--usage", "-j", str(number)])
        assert oarstat.main() == 0
    lines = capfd.readouterr().out.splitlines()
    assert lines[-3:-1] == [
        "  !! 0.8 of 2 cores were busy on average (40 %).  [cpu.low]",
        "     With 1 of 2 cores it would have run as fast, and might have begun sooner.",
    ]


def test_a_default_walltime_is_nobodys_fault(database: Database):
    def fill(tx: Tx) -> None:
        cores = add_nodes(tx, ["n1"])[:2]
        for request in ("oarsub x", "oarsub -l /core=2,walltime=1 x", ""):
            _ran(tx, cores, busy=1.0, initial_request=request)

    database.write(fill)
    with running(database) as api:
        chosen = [api.client.get(f"/jobs/{job}/findings").body["facts"]["walltime_chosen"] for job in (1, 2, 3)]
    assert chosen == [0, 1, 1], "a request that nobody told may have named one"


def test_the_command_of_a_job_is_searched_too(database: Database):
    database.write(lambda tx: _ran(tx, add_nodes(tx, ["n1"])[:2], busy=1.0, command="sleep 600"))
    with running(database) as api:
        view = api.client.get("/jobs/1/findings").body
    assert [finding["id"] for finding in view["findings"]] == ["script.sleep"]


def test_a_pdf_leaves_no_file_behind(database: Database, monkeypatch, tmp_path):
    """It is never written down: a reader who goes away before it is sent costs nothing."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    database.write(lambda tx: _ran(tx, add_nodes(tx, ["n1"])[:2], busy=0.6, name="run"))
    with running(database) as api:
        with api.connect() as gone:
            gone.sendall(b"GET /api/v1/jobs/1/report.pdf HTTP/1.1\r\nHost: x\r\n\r\n")
        assert api.client.get("/jobs/1/report.pdf").body.startswith(b"%PDF-")
    assert list(tmp_path.glob("**/*.pdf")) == []
