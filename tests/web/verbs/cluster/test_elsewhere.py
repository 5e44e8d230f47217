"""Curves and files that are not here any more: read from Prometheus, or fetched by a program of the site."""

import os
import pwd
import shutil
import socket
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import h5py
import pytest
from sqlalchemy import update

from oarlock.measure.batch import JobFacts
from oarlock.measure.collect.files.hdf5 import ArchivedJob
from oarlock.measure.collect.jobs import describe_jobs
from oarlock.measure.collect.retention import Retention, RetentionPolicy
from oarlock.measure.remote.range_query import ANSWER_SECONDS
from oarlock.measure.remote.remote_write import RemoteWriter
from oarlock.measure.remote.target import RemoteTarget
from oarlock.model.job import JobState
from oarlock.node.measure.wire import encode_sample
from oarlock.server.collecting import elsewhere
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.job import agent_jobs
from oarlock.store.queries.job.agent_jobs import DescribedJob
from oarlock.store.tables import jobs
from tests.measure.real_prometheus import Prometheus
from tests.measure.remote.receivers import sample
from tests.store.cluster import add_job
from tests.waiting import wait_until
from tests.web.nodeless_server import Reply, Running, alone

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be several users")

SECONDS = 300


def _job(tx: Tx, begin: int) -> None:
    """Add a job of five minutes that is over."""
    job = add_job(tx, user="nobody", state=JobState.TERMINATED)
    tx.execute(update(jobs).where(jobs.c.job_id == job.id).values(start_time=begin, stop_time=begin + SECONDS))


def _job_of_agent(tx: Tx, begin: int) -> None:
    described = DescribedJob("4242", "slurm", "nobody", pwd.getpwnam("nobody").pw_uid)
    numbers = agent_jobs.register(tx, "beta", [described], node="b1", now=begin)
    agent_jobs.note_seen(tx, {}, {numbers["4242"]: begin + SECONDS})


def looked_up(ids: Collection[int]) -> dict[int, JobFacts]:
    return {job: JobFacts("nobody", job="4242" if job > 10**12 else "") for job in ids}


@contextmanager
def served(path: Path, begin: int, **settings: object) -> Iterator[Running]:
    with alone(path, job_min_uid=1, **settings) as api:
        api.core.database.write(lambda tx: _job(tx, begin))
        yield api


@pytest.mark.component("prometheus")
def test_curves_that_are_gone_here_are_read_from_a_real_prometheus(tmp_path, sqlite_path):
    prometheus = Prometheus(tmp_path, "  []", "--web.enable-remote-write-receiver")
    try:
        wait_until(prometheus.ready, "Prometheus", 30)
        begin = int(time.time()) - SECONDS - 60
        target = RemoteTarget(f"{prometheus.url}/write", cluster="cluster")
        writer = RemoteWriter(target, looked_up, gather_seconds=0)
        for second in [*range(0, 100, 10), *range(200, SECONDS + 10, 10)]:
            core = {f'core_cpu_seconds_total{{core="{n}"}}': n * float(second) for n in (0, 1)}
            values = {"cpu_seconds_total": 3.0 * second, "memory_anonymous_bytes": float(second % 20), **core}
            for node in ("n1", "n2"):
                writer.put(sample(begin + second, {"load_1min": 2.0}, {1: values}, node))
        foreign = sample(begin + 10, {}, {10**12 + 1: {"memory_anonymous_bytes": 7.0}}, "b1")
        writer.put(foreign._replace(cluster="beta"))
        writer.close(10)
        with served(sqlite_path, begin, prometheus_url=prometheus.url.removesuffix("/api/v1")) as api:
            owner = api.client_of("nobody")
            view = owner.get("/jobs/1/series?metrics=memory_anonymous_bytes,cpu_seconds_total").body
            named = owner.get('/jobs/1/series?metrics=core_cpu_seconds_total{core="1"}').body
            node = owner.get(f"/nodes/n1/series?since={begin}&until={begin + SECONDS}").body
            api.core.database.write(lambda tx: _job_of_agent(tx, begin))
            other = owner.get("/jobs/4242/series?cluster=beta&metrics=memory_anonymous_bytes").body
            nothing = owner.get("/jobs/1/series?metrics=gpu_utilization_ratio")
    finally:
        prometheus.end()
    curves = {(curve["metric"], curve["node"]): curve for curve in view["series"]}
    assert [(curve["kind"], curve["unit"]) for curve in view["series"]] == [
        ("gauge", "bytes"), ("gauge", "bytes"), ("rate", "seconds/s"), ("rate", "seconds/s")]  # fmt: skip
    points = curves["memory_anonymous_bytes", "n2"]["points"]
    assert [None, None, None] in [point[1:] for point in points]  # where nothing came
    assert {tuple(point[1:]) for point in points[3:8]} == {(0.0, 5.0, 10.0)}
    assert curves["cpu_seconds_total", "n1"]["points"][5][2] == pytest.approx(3.0)
    assert (view["job_id"], view["live"], view["thinned"]) == (1, False, 10)
    assert [curve["series"] for curve in named["series"]] == ['core_cpu_seconds_total{core="1"}'] * 2
    assert node["involved_jobs"] == [1]
    assert {point[2] for curve in node["series"] for point in curve["points"]} == {2.0, None}
    assert [(curve["node"], curve["points"][0][2]) for curve in other["series"]] == [("b1", 7.0)]
    assert (nothing.status, nothing.body["kind"]) == (404, "NoSamples")


def test_a_prometheus_that_is_away_is_named_in_a_sentence(sqlite_path):
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with served(sqlite_path, 1000, prometheus_url=f"http://127.0.0.1:{port}") as api:
        reply = api.client_of("nobody").get("/jobs/1/series")
    assert (reply.status, reply.body["error"]) == (
        503, "Prometheus has no answer: [Errno 111] Connection refused.")  # fmt: skip


def test_a_prometheus_that_is_slow_is_left_after_two_seconds(sqlite_path):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with served(sqlite_path, 1000, prometheus_url=address) as api:
            begin = time.monotonic()
            reply = api.client_of("nobody").get("/jobs/1/series")
            seconds = time.monotonic() - begin
    assert (reply.status, reply.body["error"]) == (503, "Prometheus has no answer: none within 2 s.")
    assert ANSWER_SECONDS <= seconds < ANSWER_SECONDS + 3


@pytest.mark.parametrize(
    ("status", "text", "why"),
    [(400, b'{"status":"error","error":"bad step"}', "status 400, bad step"), (200, b"<html>", "Expecting value"),
     (302, b"{}", "status 302")],
)  # fmt: skip
def test_an_answer_that_is_none_of_prometheus_is_not_believed(sqlite_path, status, text, why):
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(status)
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        with served(sqlite_path, 1000, prometheus_url=f"http://127.0.0.1:{server.server_address[1]}") as api:
            reply = api.client_of("nobody").get("/jobs/1/series")
        server.shutdown()
        thread.join()
    assert reply.status == 503
    assert why in reply.body["error"]


FETCH = """#!/bin/sh
echo "$@" >> {folder}/calls
cp "{folder}/$2" "$3"
"""


def _moved(api: Running, folder: Path, **about: object) -> Path:
    """Let job 1 be measured and over, and move its file to a folder elsewhere."""
    collector = api.core.collector.collector
    for second in range(1000, 1000 + SECONDS, 10):
        collector.take("n1", encode_sample(float(second), {}, {1: {"cpus": 4.0}}), {1}, at=float(second))
    for _ in range(2):
        collector.archive_ended(lambda ids: {job: ArchivedJob(job, "nobody", start=1000, **about) for job in ids})
    file = collector.places.archived(1)
    moved = folder / file.relative_to(collector.places.root)
    moved.parent.mkdir(parents=True)
    shutil.move(file, moved)
    return moved


def _program(site: Path) -> Path:
    program = site / "fetch"
    program.write_text(FETCH.format(folder=site))
    program.chmod(0o755)
    return program


def test_a_file_that_was_moved_is_fetched_once_for_all_who_ask(sqlite_path, site):
    with served(sqlite_path, 1000, archive_fetch_cmd=(str(_program(site)),)) as api:
        _moved(api, site)
        owner = api.client_of("nobody")
        replies = []
        asking = [threading.Thread(target=lambda: replies.append(owner.get("/jobs/1/series?metrics=cpus")))
                  for _ in range(3)]  # fmt: skip
        for thread in asking:
            thread.start()
        for thread in asking:
            thread.join()
        assert [reply.status for reply in replies] == [200] * 3
        assert owner.get("/jobs/1/samples?format=csv").body.count("n1,4.0") == SECONDS / 10
        assert (site / "calls").read_text().split()[:2] == ["1", "000/001/1.h5"]
        assert len((site / "calls").read_text().splitlines()) == 1
        assert api.core.collector.collector.places.archived(1).stat().st_mode & 0o777 == 0o600


def test_what_cannot_be_fetched_is_refused_and_not_tried_again_soon(sqlite_path, site):
    with served(sqlite_path, 1000, archive_fetch_cmd=(str(_program(site)),)) as api:
        for _ in range(2):
            assert api.client_of("nobody").get("/jobs/1/series").status == 404
        assert len((site / "calls").read_text().splitlines()) == 1
        assert list(api.core.collector.collector.places.temporary.iterdir()) == []


def test_a_fetched_file_of_another_job_or_a_damaged_one_is_not_kept(sqlite_path, site):
    with served(sqlite_path, 1000, archive_fetch_cmd=(str(_program(site)),)) as api:
        moved = _moved(api, site)
        moved.write_bytes(moved.read_bytes()[:3000])
        assert api.client_of("nobody").get("/jobs/1/series").status == 404
        assert api.core.collector.collector.places.kept(1) is None
    assert (site / "calls").exists()


def test_a_program_that_others_can_write_is_not_run(sqlite_path, site):
    program = _program(site)
    program.chmod(0o777)
    with served(sqlite_path, 1000, archive_fetch_cmd=(str(program),)) as api:
        assert api.client_of("nobody").get("/jobs/1/series").status == 404
    assert not (site / "calls").exists()


DAY = 86_400


def _moved_days(api: Running, folder: Path) -> list[Path]:
    """Let a node be measured on two days that are long over, and move their files to a folder elsewhere."""
    collector = api.core.collector.collector
    for day in (1, 2):
        for second in range(day * DAY, day * DAY + SECONDS, 10):
            collector.take("n1", encode_sample(float(second), {"load_1min": float(day)}, {}), set(), at=float(second))
    collector.close()
    for _ in Retention(collector.places, RetentionPolicy(full_days=0, thin_days=0)).run(now=100.0 * DAY):
        pass
    moved = []
    for file in collector.places.node_files("n1"):
        moved.append(folder / file.relative_to(collector.places.root))
        moved[-1].parent.mkdir(parents=True, exist_ok=True)
        shutil.move(file, moved[-1])
    return moved


def _node_curve(api: Running, since: int, until: int, node: str = "n1") -> Reply:
    return api.client_of("nobody").get(f"/nodes/{node}/series?metrics=load_1min&since={since}&until={until}")


def test_days_of_a_node_that_were_moved_are_fetched(sqlite_path, site):
    with served(sqlite_path, 1000, archive_fetch_cmd=(str(_program(site)),)) as api:
        assert [path.name for path in _moved_days(api, site)] == ["1970-01-02.h5", "1970-01-03.h5"]
        reply = _node_curve(api, DAY, 3 * DAY - 1)
        [series] = reply.body["series"]
        assert (series["unit"], {point[2] for point in series["points"] if point[2]}) == ("1", {1.0, 2.0})
        calls = sorted(line.split()[:2] for line in (site / "calls").read_text().splitlines())
        assert calls == [["n1", "nodes/n1/1970-01-02.h5"], ["n1", "nodes/n1/1970-01-03.h5"]]
        assert _node_curve(api, DAY, 3 * DAY - 1).body == reply.body  # from what is here now
        assert len((site / "calls").read_text().splitlines()) == 2


def test_no_program_is_started_for_made_up_nodes_nor_for_very_many_days(sqlite_path, site, monkeypatch):
    monkeypatch.setattr(elsewhere, "_MOST_DAYS", 5)
    with served(sqlite_path, 1000, archive_fetch_cmd=(str(_program(site)),)) as api:
        _moved_days(api, site)
        for node in ("n2", "..", "-x", "n1%2F..%2F.."):
            assert _node_curve(api, DAY, DAY + 10, node).status in {400, 404}, node
        assert _node_curve(api, DAY, 7 * DAY).status == 404
    assert not (site / "calls").exists()


@pytest.mark.parametrize("swap", ["another day", "another node", "damaged", "nothing"])
def test_a_fetched_day_that_is_not_the_one_asked_for_is_not_kept(sqlite_path, site, swap):
    with served(sqlite_path, 1000, archive_fetch_cmd=(str(_program(site)),)) as api:
        first, second = _moved_days(api, site)
        if swap == "another day":
            shutil.copy(second, first)
        elif swap == "another node":
            with h5py.File(first, "r+") as file:
                file["node"].attrs["name"] = "n2"
        elif swap == "damaged":
            first.write_bytes(first.read_bytes()[:3000])
        else:
            first.unlink()
        assert _node_curve(api, DAY, DAY + 1000).status == 404
        assert api.core.collector.collector.places.node_files("n1") == []
        assert list(api.core.collector.collector.places.temporary.iterdir()) == []


def test_the_file_of_a_job_of_another_cluster_is_fetched(sqlite_path, site):
    """In the file stands the number that the job has there."""
    with served(sqlite_path, 1000, archive_fetch_cmd=(str(_program(site)),)) as api:
        api.core.database.write(lambda tx: _job_of_agent(tx, 1000))
        collector, number = api.core.collector.collector, agent_jobs.FIRST_NUMBER + 1
        for at in range(1000, 1000 + SECONDS, 10):
            sample = encode_sample(float(at), {}, {number: {"cpus": 4.0}})
            collector.take("b1", sample, {number}, at=float(at), posted=True, cluster="beta")
        with api.core.database.read() as tx:
            about = describe_jobs(tx, [number])
        for _ in range(2):
            collector.archive_ended(lambda ids: about)
        file = collector.places.archived(number)
        moved = site / file.relative_to(collector.places.root)
        moved.parent.mkdir(parents=True)
        shutil.move(file, moved)
        reply = api.client_of("nobody").get("/jobs/4242/series?cluster=beta&metrics=cpus")
        assert (reply.status, reply.body["series"][0]["points"][0][2]) == (200, 4.0)
