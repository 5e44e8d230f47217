"""Scripts that `oarsub -S` sends: kept, searched, shown to whom they concern; and the software that jobs ran."""

import os

import pytest

from oarlock.job import summaries
from oarlock.model.job import JobState
from oarlock.model.summary import MeasuredJob, NodeMeasured
from oarlock.store.engine.database import Database
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.job import jobs, scripts
from tests.clusters import add_nodes
from tests.store.cluster import run, step
from tests.web.nodeless_server import NOW, Running, running

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be several users")

HOUR, DAY = 3600, 86_400
SCRIPT = "#!/bin/sh\n#OAR -n case\nmodule load gcc/12\nexport API_TOKEN=hunter2\n./solver\nsleep 3600\n"


def _submit(api: Running, user: str = "daemon", **more) -> int:
    body = {"command": "./case.sh", "script": SCRIPT, "resources": ["/core=1,walltime=2"], **more}
    return api.client_of(user).post("/jobs", body).body["job_ids"][0]


def _ran(tx: Tx, numbers: list[int], *, ago: int = HOUR) -> None:
    begin = NOW - ago - HOUR
    for number in numbers:
        job = run(tx, jobs.get(tx, number), [1, 2], at=begin)
        for state in (JobState.FINISHING, JobState.TERMINATED):
            job = step(tx, job, state, at=begin + HOUR)
        times = f"start_time = {begin}, stop_time = {begin + HOUR}"
        tx.exec_driver_sql(f"UPDATE jobs SET {times} WHERE job_id = {number}")
        node = NodeMeasured(
            since=begin, until=begin + HOUR, samples=360, seconds=HOUR, cores=2.0, cpu_seconds=HOUR,
            executable_cpu_seconds={"solver": 2700.0, "sh": 900.0},
        )  # fmt: skip
        summaries.keep_measured(tx, {number: MeasuredJob(nodes={"1": {"n1": node}})}, now=NOW)


def test_a_script_is_kept_for_its_array_searched_and_shown(database: Database):
    database.write(lambda tx: add_nodes(tx, ["n1"]))
    with running(database, job_min_uid=1, support=("bin",)) as api:
        first = _submit(api, array=["a", "b"])
        database.write(lambda tx: _ran(tx, [first, first + 1]))
        paths = [f"/jobs/{number}/script" for number in (first, first + 1)]
        assert [api.client_of("daemon").get(path).body["script"] for path in paths] == [SCRIPT, SCRIPT]
        assert api.client_of("bin").get(paths[1]).body["script"] == SCRIPT.replace("hunter2", "●●●")
        assert api.client_of("nobody").get(paths[0]).status == 403
        found = api.client_of("daemon").get(f"/jobs/{first + 1}/findings").body["findings"]
        assert "script.sleep" in {finding["id"] for finding in found}
        again = api.client_of("daemon").post("/jobs", {"resubmit": first}).body["job_ids"][0]
        assert api.client_of("daemon").get(f"/jobs/{again}/script").body["script"] == SCRIPT


def test_a_large_array_has_its_script_once(database: Database):
    database.write(lambda tx: add_nodes(tx, ["n1"]))
    with running(database, job_min_uid=1) as api:
        first = _submit(api, array=["x"] * 3000)
        with database.read() as tx:
            kept = scripts.of_jobs(tx, [first, first + 2999], cluster="")
            [(count,)] = tx.exec_driver_sql("SELECT count(*) FROM job_scripts").all()
    assert (kept, count) == ({first: SCRIPT, first + 2999: SCRIPT}, 1)


def test_a_long_script_is_kept_in_part(tx: Tx):
    scripts.keep_submitted(tx, [(1, "x" * 10**6)], now=NOW)
    assert len(scripts.submitted(tx, 1) or "") == scripts.KEPT_CHARACTERS


def test_software_is_shown_with_its_trend_to_whom_it_concerns(database: Database):
    database.write(lambda tx: add_nodes(tx, ["n1"]))
    with running(database, job_min_uid=1, support=("bin",), project_leaders={"physics": ("sys",)}) as api:
        own, led = _submit(api, project="physics"), _submit(api, "games", project="physics")
        others, before = _submit(api, "games", project="maths"), _submit(api, "games", project="maths")
        database.write(lambda tx: _ran(tx, [own, led, others]))
        database.write(lambda tx: _ran(tx, [before], ago=40 * DAY))
        seen = {user: api.client_of(user).get("/software").body for user in ("daemon", "sys", "bin", "nobody")}
        modules = api.client_of("bin").get("/software?kind=module&user=games").body["software"]
        refused = api.client_of("bin").get("/software?since=0&until=2000000000")
    counted = {
        user: {row["name"]: (row["jobs"], row["users"], row["core_seconds"]) for row in body["software"]}
        for user, body in seen.items()
    }
    whole = 2.0 * HOUR
    assert counted == {
        "daemon": {"solver": (1, 1, 0.75 * whole), "sh": (1, 1, 0.25 * whole)},
        "sys": {"solver": (2, 2, 1.5 * whole), "sh": (2, 2, 0.5 * whole)},
        "bin": {"solver": (3, 2, 2.25 * whole), "sh": (3, 2, 0.75 * whole)},
        "nobody": {},
    }
    assert [body["own"] for body in seen.values()] == [True, True, False, True]
    [solver, _] = seen["bin"]["software"]
    assert (solver["before"], [day["core_seconds"] for day in solver["days"]]) == (0.75 * whole, [2.25 * whole])
    assert [(row["name"], row["jobs"]) for row in modules] == [("gcc/12", 2)]
    assert (refused.status, refused.body["error"]) == (400, "Software is added up over at most ten years.")
