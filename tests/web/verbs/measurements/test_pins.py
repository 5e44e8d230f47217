"""Pins: a job's owner keeps its file whole, up to a quota."""

import os
import pwd
from collections.abc import Iterator
from pathlib import Path

import pytest

from oarlock.measure.collect.files.hdf5 import ArchivedJob
from oarlock.node.measure.wire import encode_sample
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.job import agent_jobs
from oarlock.store.queries.job.agent_jobs import DescribedJob
from tests.store.cluster import add_job
from tests.web.nodeless_server import NOW, Running, alone

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be several users")
QUOTA = 1 << 20
JOB_WITHOUT_SAMPLES = 4


def _fill(tx: Tx) -> None:
    for _ in range(JOB_WITHOUT_SAMPLES):
        add_job(tx, user="nobody")


@pytest.fixture
def api(sqlite_path: Path) -> Iterator[Running]:
    """A server with files of jobs 1 and 2 of 600 KiB each, and a log of job 3."""
    with alone(sqlite_path, job_min_uid=1, archive_pin_quota=1) as running:
        running.core.database.write(_fill)
        collector = running.core.collector.collector
        for job in (1, 2, 3):
            for second in range(1000, 1020):
                collector.take("n1", encode_sample(float(second), {}, {job: {"cpus": 4.0}}), {job}, at=float(second))
        for _ in range(2):
            collector.archive_ended(lambda ids: {job: ArchivedJob(job, "nobody") for job in ids if job != 3})
        for job in (1, 2):
            os.truncate(collector.places.archived(job), 600 << 10)
        yield running


def _listed(api: Running, user: str) -> dict[int, str]:
    return {pin["job_id"]: pin["user"] for pin in api.client_of(user).get("/pins").body["pins"]}


def test_an_owner_pins_a_file_sees_it_and_unpins_it(api):
    owner = api.client_of("nobody")
    pin = {"job_id": 1, "user": "nobody", "date": NOW, "bytes": 600 << 10}
    assert owner.post("/jobs/pin", {"id": 1}).body == pin
    assert owner.get("/pins").body == {"pins": [pin], "quota_bytes": QUOTA}
    assert (_listed(api, "daemon"), _listed(api, "root")) == ({}, {1: "nobody"})
    assert owner.delete("/jobs/1/pin").status == 200
    reply = owner.delete("/jobs/1/pin")
    assert (reply.status, reply.body["error"]) == (404, "Job 1 is not pinned.")


def test_a_job_that_is_pinned_twice_counts_once(api):
    owner = api.client_of("nobody")
    assert [owner.post("/jobs/pin", {"id": 1}).status for _ in range(2)] == [200, 200]
    assert _listed(api, "nobody") == {1: "nobody"}


def test_the_quota_is_a_users_and_not_an_administrators(api):
    owner = api.client_of("nobody")
    assert owner.post("/jobs/pin", {"id": 1}).status == 200
    reply = owner.post("/jobs/pin", {"id": 2})
    assert (reply.status, reply.body["error"]) == (
        409,
        "With this file your pinned files would have 2 MiB; 1 MiB are allowed (ARCHIVE_PIN_QUOTA).",
    )
    assert _listed(api, "nobody") == {1: "nobody"}
    assert [api.client_of("root").post("/jobs/pin", {"id": job}).status for job in (1, 2)] == [200, 200]
    assert _listed(api, "nobody") == {}
    assert owner.delete("/jobs/2/pin").status == 200


def test_the_owner_of_a_job_of_another_cluster_pins_it_there(api):
    uid = pwd.getpwnam("nobody").pw_uid

    def register(tx: Tx) -> int:
        return agent_jobs.register(tx, "beta", [DescribedJob("1", "slurm", "nobody", uid)], node="b1", now=9)["1"]

    number = api.core.database.write(register)
    collector = api.core.collector.collector
    collector.take("b1", encode_sample(1000.0, {}, {number: {"cpus": 4.0}}), {number}, at=1000.0)
    owner = api.client_of("nobody")
    assert owner.post("/jobs/pin", {"id": 1, "cluster": "beta"}).body["job_id"] == number
    assert _listed(api, "nobody") == {number: "nobody"}
    assert api.client_of("daemon").delete("/jobs/1/pin?cluster=beta").status == 403
    assert owner.delete("/jobs/1/pin?cluster=beta").status == 200
    assert _listed(api, "nobody") == {}


def test_a_job_that_runs_can_be_pinned_and_one_without_samples_cannot(api):
    owner = api.client_of("nobody")
    assert owner.post("/jobs/pin", {"id": 3}).status == 200
    reply = owner.post("/jobs/pin", {"id": JOB_WITHOUT_SAMPLES})
    assert (reply.status, reply.body["kind"]) == (404, "NoSamples")
    assert owner.post("/jobs/pin", {"id": 99}).body["error"] == "There is no job 99."
