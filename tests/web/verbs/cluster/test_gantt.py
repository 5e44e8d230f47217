"""The chart of past and future: pauses, maintenance, and what a page leaves out."""

from msgspec.structs import replace

from oarlock.model.job import JobState
from oarlock.model.limits import Maintenance
from oarlock.store.engine.database import Database
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.site import administration
from tests.clusters import add_nodes
from tests.store.cluster import add_job, choice, run, step
from tests.web.nodeless_server import NOW, running


def _fill(tx: Tx) -> None:
    cores = add_nodes(tx, ["n1", "n2"])
    job = run(tx, add_job(tx, user="root", submitted=NOW - 600), cores[:1], at=NOW - 500)
    job = step(tx, replace(job, suspended=True), JobState.SUSPENDED, at=NOW - 400)
    job = step(tx, job, JobState.RESUMING, at=NOW - 300)
    step(tx, job, JobState.RUNNING, at=NOW - 290)
    second = run(tx, add_job(tx, user="root", submitted=NOW - 600), cores[1:2], at=NOW - 200)
    step(tx, replace(second, suspended=True), JobState.SUSPENDED, at=NOW - 100)
    for name, start, where in (("disks", NOW - 50, "network_address = 'n2'"), ("later", NOW + 5000, "")):
        administration.add_maintenance(tx, Maintenance(0, name, start, start + 100, where, "root"))


def test_a_chart_has_the_pauses_of_jobs_and_the_maintenance(database: Database):
    database.write(_fill)
    with running(database) as api:
        chart = api.client.get(f"/gantt?since={NOW - 1000}&until={NOW + 1000}").body
        before = api.client.get(f"/gantt?since={NOW - 1000}&until={NOW - 450}").body
    assert [(bar["Job_Id"], bar["startTime"], bar["stopTime"]) for bar in chart["pauses"]] == [
        (1, NOW - 400, NOW - 300), (1, NOW - 300, NOW - 290), (2, NOW - 100, chart["pauses"][2]["stopTime"]),
    ]  # fmt: skip
    assert chart["pauses"][2]["stopTime"] >= NOW, "it lasts until now"
    assert [(bar["name"], bar["startTime"], bar["stopTime"], bar["resources"]) for bar in chart["windows"]] == [
        ("disks", NOW - 50, NOW + 50, [3, 4])
    ]
    assert before["windows"] == []


def test_a_page_that_has_the_resources_asks_for_a_chart_without_them(database: Database):
    database.write(_fill)
    with running(database) as api:
        whole = api.client.get(f"/gantt?since={NOW - 1000}&until={NOW}").body
        without = api.client.get(f"/gantt?since={NOW - 1000}&until={NOW}&resources=false").body
    assert len(whole["resources"]) == 4
    assert without == whole | {"resources": []}


def test_a_chart_has_jobs_that_wait_where_the_plan_starts_them_in_its_time(database: Database):
    def fill(tx: Tx) -> None:
        cores = add_nodes(tx, ["n1", "n2"])
        soon, later, _unplanned = (add_job(tx, user="root", submitted=NOW - 60) for _ in range(3))
        over = run(tx, add_job(tx, user="root", submitted=NOW - 60), cores[:1], at=NOW - 50)
        for state in (JobState.FINISHING, JobState.TERMINATED):
            over = step(tx, over, state, at=NOW - 40)
        for job, start in ((soon, NOW + 100), (later, NOW + 5000)):
            tx.exec_driver_sql(f"INSERT INTO gantt_jobs_predictions_visu VALUES ({choice(tx, job)}, {start})")
            tx.exec_driver_sql(f"INSERT INTO gantt_jobs_resources_visu VALUES ({choice(tx, job)}, {cores[0]})")

    database.write(fill)
    with running(database) as api:
        bars = {
            since: [(bar["Job_Id"], bar["startTime"], bar["resources"]) for bar in chart.body["jobs"]]
            for since in (NOW - 45, NOW - 30, NOW + 4000)
            for chart in [api.client.get(f"/gantt?since={since}&until={since + 2000}&texts=false")]
        }
    assert bars == {
        NOW - 45: [(1, NOW + 100, [1]), (4, NOW - 50, [1])],
        NOW - 30: [(1, NOW + 100, [1])],
        NOW + 4000: [(2, NOW + 5000, [1])],
    }
