"""Purge: jobs that ended long ago move to an archive, where the commands find them; what is needed stays."""

import json
import os
import time

import pytest
from msgspec.structs import replace
from sqlalchemy import text

from oarlock.cli.oarlock import main
from oarlock.model.event import Event, EventType
from oarlock.model.job import JobState
from oarlock.simulate.trace import read_trace
from oarlock.store.engine.database import Database
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.cluster import events
from oarlock.store.queries.job import new_jobs
from tests.clusters import add_nodes
from tests.store.cluster import add_job, new, rows, run, step
from tests.web.nodeless_server import NOW, running

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be several users")
OLD = NOW - 90_000
TABLES = (
    "jobs", "job_state_logs", "job_types", "job_dependencies", "moldable_job_descriptions", "job_resource_groups",
    "job_resource_descriptions", "assigned_resources", "event_logs", "event_log_hostnames", "array_texts",
)  # fmt: skip


def _over(tx: Tx, job, on, *, at: int):
    job = run(tx, job, on, at=at)
    job = step(tx, job, JobState.FINISHING, at=at + 5)
    return step(tx, replace(job, exit_code=256), JobState.TERMINATED, at=at + 10)


def _fill(tx: Tx) -> None:
    cores = add_nodes(tx, ["n1", "n2"])
    _over(tx, add_job(tx, user="nobody", submitted=OLD, types=("besteffort",), command="./old"), cores[:2], at=OLD)
    for job in new_jobs.add(tx, [new(user="nobody", submitted=OLD, array_id=2, array_index=i) for i in (1, 2)]):
        _over(tx, job, cores[:1], at=OLD + 100 * job.id)
    needed = _over(tx, add_job(tx, user="nobody", submitted=OLD), cores[2:3], at=OLD)
    add_job(tx, user="nobody", submitted=OLD, after=(needed.id,))
    _over(tx, add_job(tx, user="nobody", submitted=NOW - 600), cores[:1], at=NOW - 500)
    events.add(tx, [Event(EventType.WALLTIME, OLD, "too long", 1, ("n1",))])
    tx.execute(text("UPDATE jobs SET accounted = 'YES' WHERE state = 'Terminated'"))


@pytest.fixture
def api(database: Database):
    database.write(_fill)
    with running(database) as server:
        yield server


def test_old_jobs_move_and_are_found_as_before(api, database):
    def seen(who):
        client = api.client_of(who)
        ways = [f"/jobs/1{part}" for part in ("", "/events", "/story", "/resources")]
        ways += ["/jobs?ids=1,2,3,6&full=true", "/jobs?ids=1,6"]
        return [(reply.status, reply.body) for reply in map(client.get, ways)]

    before = {who: seen(who) for who in ("nobody", "daemon", "root")}
    answer = api.client_of("root").post("/jobs/purge", {"before": NOW - 80_000}).body
    assert (answer["moved"], answer["left"]) == (3, 0)
    with database.read() as tx:
        assert [row[0] for row in rows(tx, "SELECT job_id FROM jobs ORDER BY job_id")] == [4, 5, 6]
        assert {name: rows(tx, f"SELECT count(*) FROM {name}")[0][0] for name in TABLES} == {
            "jobs": 3, "job_state_logs": 13, "job_types": 0, "job_dependencies": 1, "moldable_job_descriptions": 3,
            "job_resource_groups": 3, "job_resource_descriptions": 6, "assigned_resources": 2, "event_logs": 0,
            "event_log_hostnames": 0, "array_texts": 0,
        }  # fmt: skip
    assert {who: seen(who) for who in ("nobody", "daemon", "root")} == before
    assert api.client_of("root").get("/jobs/99").status == 404


def test_a_purge_that_was_cut_short_is_done_again(api, database):
    request = {"before": NOW - 80_000}
    root = api.client_of("root")
    with database.read() as tx:
        kept = [tuple(row) for row in rows(tx, "SELECT * FROM jobs WHERE job_id < 4 ORDER BY job_id")]
    archive = root.post("/jobs/purge", request).body["archive"]
    database.write(lambda tx: tx.execute(text("INSERT INTO jobs (job_id, state, job_user, stop_time, accounted) "
                                              f"VALUES (1, 'Error', 'nobody', {OLD}, 'YES')")))  # fmt: skip
    assert root.post("/jobs/purge", request).body["moved"] == 1
    past = read_trace(archive)
    assert [job.number for job in past.jobs] == [2, 3]
    assert len(kept) == 3


def test_numbers_of_purged_jobs_are_never_given_again(api, database):
    database.write(lambda tx: tx.execute(text("UPDATE job_dependencies SET job_id_required = 99")))
    database.write(lambda tx: tx.execute(text("UPDATE jobs SET state = 'Error', stop_time = submission_time + 1, "
                                              "accounted = 'YES'")))  # fmt: skip
    assert api.client_of("root").post("/jobs/purge", {"before": NOW}).body == {
        "moved": 6, "left": 0, "archive": str(api.core.state_dir / "past" / "before-1970-01-12.db"),
    }  # fmt: skip
    assert database.write(lambda tx: add_job(tx, user="nobody").id) == 7


def test_bad_purges_are_refused(api):
    root = api.client_of("root")
    for request, sentence in (
        ({"before": NOW + 10**6}, "That instant has not come yet."),
        ({"before": NOW, "name": "../../etc/passwd"}, "`../../etc/passwd` cannot be the name of an archive."),
    ):
        reply = root.post("/jobs/purge", request)
        assert (reply.status, reply.body["error"]) == (400, sentence)


def test_the_command_counts_and_moves(api, capsys):
    date = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(NOW - 80_000))
    words = ["purge", "--before", date, "--server", str(api.socket), "--name", "old", "--json"]
    archive = str(api.core.state_dir / "past" / "old.db")
    for more, answer in (
        (["--dry-run"], {"moved": 0, "left": 3}), ([], {"moved": 3, "left": 0}), ([], {"moved": 0, "left": 0}),
    ):  # fmt: skip
        assert main([*words, *more]) == 0
        assert json.loads(capsys.readouterr().out) == answer | {"archive": archive}
    assert main(["purge", "--before", "2100-01-01", "--server", str(api.socket)]) == 2
