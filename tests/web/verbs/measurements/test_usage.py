"""Metrics and usage as they are asked for."""

import http.client

from oarlock.model.job import JobState
from oarlock.model.resource import ResourceState
from oarlock.model.summary import DayUsage
from oarlock.node.measure.wire import encode_sample
from oarlock.store.engine.database import Database
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.cluster import resources
from oarlock.store.queries.job import jobs
from oarlock.store.queries.usage import accounting, summaries
from oarlock.store.queries.usage.summaries import DayGroup, Summary
from tests.bed import needs_root
from tests.clusters import add_nodes
from tests.store.cluster import add_job, run, step
from tests.web.nodeless_server import NOW, Running, running

NOTHING = dict.fromkeys(
    ["seconds", "cpus", "cpu_seconds", "cpu_seconds_offered", "memory_bytes", "memory_own_bytes", "memory_cache_bytes",
     "memory_own_peak_bytes", "memory_peak_bytes", "memory_limit_bytes", "read_bytes", "written_bytes", "energy_joules",
     "memory_own_mean_bytes", "memory_cache_mean_bytes", "gpus", "gpu_seconds", "gpu_busy_seconds", "energy_coverage",
     "coverage", "walltime"]
) | {"samples": 0, "energy_methods": []}  # fmt: skip


def _fill(tx: Tx) -> None:
    cores = add_nodes(tx, ["n1.site", "n2.site", "n3.site"])
    run(tx, add_job(tx, user="root", project="physics", name="run"), cores[:1])
    add_job(tx, user="root")
    resources.set_state(tx, cores[4:], ResourceState.SUSPECTED, at=NOW)


def _end(tx: Tx) -> None:
    for state in (JobState.FINISHING, JobState.TERMINATED):
        step(tx, jobs.get(tx, 1), state)


def _page(api: Running) -> list[str]:
    return api.client_at_port().get("/metrics").body.splitlines()


def _named(page: list[str], name: str) -> list[str]:
    return [line for line in page if line.startswith((f"{name}{{", f"{name} "))]


def test_the_page_tells_of_the_site_in_our_words_and_in_those_of_slurm(database: Database):
    database.write(_fill)
    with running(database) as api:
        page = _page(api)
    assert _named(page, "oarlock_jobs")[:1] == ['oarlock_jobs{state="Waiting",cluster="cluster"} 1']
    assert 'oarlock_jobs{state="Running",cluster="cluster"} 1' in page
    numbers = {part: _named(page, f"slurm_cpus_{part}") for part in ("alloc", "idle", "other", "total")}
    assert numbers == {
        part: [f'slurm_cpus_{part}{{cluster="cluster"}} {value}']
        for part, value in {"alloc": 1, "idle": 3, "other": 2, "total": 6}.items()
    }
    assert _named(page, "slurm_node_state_info") == [
        f'slurm_node_state_info{{node="{node}",state="{state}",cluster="cluster"}} 1'
        for node, state in (("n1", "mixed"), ("n2", "idle"), ("n3", "drained"))
    ]


def test_projects_that_used_more_than_their_share_are_below_one(database: Database):
    def fill(tx: Tx) -> None:
        cores = add_nodes(tx, ["n1"])
        for project, seconds in (("physics", 300), ("maths", 100)):
            job = run(tx, add_job(tx, user="root", project=project, submitted=0), cores[:1], at=NOW - 1000)
            job = step(tx, job, JobState.FINISHING, at=NOW - 1000 + seconds)
            step(tx, job, JobState.TERMINATED, at=NOW - 1000 + seconds)
        accounting.update_accounts(tx, window=100)

    database.write(fill)
    with running(database) as api:
        page = _page(api)
    assert sorted(_named(page, "slurm_account_levelfs")) == [
        'slurm_account_levelfs{account="maths",cluster="cluster"} 2.0',
        f'slurm_account_levelfs{{account="physics",cluster="cluster"}} {0.5 / 0.75}',
    ]
    assert _named(page, "oarlock_user_used_ratio") == ['oarlock_user_used_ratio{user="root",cluster="cluster"} 1.0']


def test_metrics_are_served_at_their_usual_address(database: Database):
    with running(database) as api:
        connection = http.client.HTTPConnection("127.0.0.1", api.port, timeout=20)
        connection.request("GET", "/metrics")
        reply = connection.getresponse()
        told = reply.status, reply.getheader("content-type"), reply.read().startswith(b"# HELP oarlock_jobs ")
        connection.close()
    assert told == (200, "text/plain; version=0.0.4; charset=utf-8", True)


def test_a_site_may_want_a_token_for_metrics(database: Database):
    with running(database, metrics_need_token=True) as api:
        refused = api.client_at_port().get("/metrics")
        assert (refused.status, refused.body["kind"]) == (401, "NotSignedIn")
        assert api.client.get("/metrics").status == 200


def test_prometheus_is_told_what_to_scrape(database: Database):
    with running(database) as api:
        told = api.client_at_port().get("/prometheus/targets").body
    assert told == [{"targets": ["127.0.0.1:0"], "labels": {"cluster": "cluster"}}]


def test_usage_is_that_of_the_last_sample_then_that_of_the_report(database: Database):
    database.write(_fill)
    counters = '{"attempts":{"1":{"n1.site":{"cpu_seconds_total":9.5,"memory_peak_bytes":7,"cpus":2,"seconds":10.0}}}}'
    with running(database) as api:
        values = {"cpu_seconds_total": 1.5, "memory_usage_bytes": 300.0, "memory_anonymous_bytes": 5.0, "cpus": 2.0}
        api.core.live.take("n1.site", encode_sample(1.0, {}, {1: values}), {1}, at=NOW + 4)
        so_far = api.client.get("/jobs/1/usage").body
        api.core.live.ended("n1.site", 1)
        database.write(lambda tx: summaries.save(tx, [Summary(job_id=1, date=NOW, detail=counters)]))
        between = api.client.get("/jobs/1/usage").body
        database.write(_end)
        final = api.client.get("/jobs/1/usage").body
        listed = api.client.get("/usage?ids=1,2,99").body
        missing = api.client.get("/jobs/99/usage").body
    one = {"job_id": 1, "nodes": ["n1.site"], "cpus": 2, "walltime": 3600}
    own = {"memory_bytes": 300, "memory_own_bytes": 5, "memory_own_peak_bytes": 5}
    ran = so_far["seconds"]
    assert so_far == NOTHING | one | own | {"at": NOW + 4, "final": False, "cpu_seconds": 1.5, "seconds": ran,
                                            "cpu_seconds_offered": 2 * ran}  # fmt: skip
    assert ran > 0
    assert final == NOTHING | one | {"at": NOW, "final": True, "cpu_seconds": 9.5, "memory_peak_bytes": 7,
                                     "seconds": 10.0, "cpu_seconds_offered": 20.0, "coverage": 0.0}  # fmt: skip
    assert between == final | {"final": False}, "an attempt is over, the job is not"
    waiting = NOTHING | {"job_id": 2, "at": 0, "nodes": [], "final": False}
    assert listed == {"jobs": [final, waiting]}
    assert missing["kind"] == "UnknownJob"


@needs_root
def test_the_sums_of_days_are_told_by_what_is_asked_and_to_each_its_own(database: Database):
    def fill(tx: Tx) -> None:
        groups = [DayGroup(day, user, "moon", "default") for day in (0, 86400) for user in ("nobody", "bob")]
        summaries.add_days(tx, {group: DayUsage(jobs=1, core_seconds=30.0, energy_joules=2.0) for group in groups})

    database.write(fill)
    with running(database) as api:
        by_user = api.client.get("/usage/days?since=0&until=100&by=user").body
        by_nothing = api.client.get("/usage/days?since=0&until=86401&by=").body
        own = api.client_of("nobody").get("/usage/days?since=0&until=100&by=user").body
        twice = api.client.get("/usage/days?by=user,user").body
        backwards = api.client.get("/usage/days?since=9&until=5").body
    nothing = dict.fromkeys(DayUsage.__struct_fields__, 0.0)
    assert by_user == {
        "since": 0, "until": 86400, "by": ["user"], "own": False,
        "rows": [{"group": {"user": name}, "usage": nothing | {"jobs": 1, "core_seconds": 30.0, "energy_joules": 2.0}}
                 for name in ("bob", "nobody")],
    }  # fmt: skip
    assert [row["usage"]["core_seconds"] for row in by_nothing["rows"]] == [120.0]
    assert own == by_user | {"own": True, "rows": by_user["rows"][1:]}
    assert twice["hint"] == "Name each once."
    assert backwards["hint"] == "Swap the two."


def test_what_a_node_says_of_jobs_that_are_not_there_is_counted(database: Database):
    database.write(_fill)
    with running(database) as api:
        api.core.live.take("n1.site", encode_sample(1.0, {}, {1: {"cpus": 1.0}, 8: {"cpus": 1.0}, 9: {}}), {1}, at=NOW)
        api.core.live.take("n2.site", encode_sample(1.0, {}, {}), set(), at=NOW)
        api.core.live.take("n2.site", b"nonsense", set(), at=NOW)
        page = _page(api)
    assert "# TYPE oarlock_refused_samples_total counter" in page
    assert _named(page, "oarlock_refused_samples_total") == [
        'oarlock_refused_samples_total{node="n1.site",cluster="cluster"} 2',
        'oarlock_refused_samples_total{node="n2.site",cluster="cluster"} 1',
    ]
    assert not [line for line in page if 'job_id="8"' in line]
