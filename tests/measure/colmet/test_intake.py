"""Colmet's nodes beside a server: jobs with numbers of their own cluster, curves for their owners, what is refused."""

import os
from collections.abc import Iterator

import pytest
import zmq

from oarlock.measure.batch import JobFacts
from oarlock.measure.colmet.intake import ColmetIntake, ColmetOptions
from oarlock.measure.posting.envelope import AgentNotice
from oarlock.node.measure.wire import SampleEncoder
from oarlock.store.queries.job.agent_jobs import FIRST_NUMBER
from tests.measure.colmet import recorded
from tests.store.cluster import add_job
from tests.waiting import wait_until
from tests.web.nodeless_server import NOW, Running, alone

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be several users")


class Owners:
    """A look-up that knows one job once it was asked for it."""

    def __init__(self):
        self.asked, self.kept = [], set()

    def facts(self, job):
        self.asked.append(job)
        return JobFacts("nobody", "physics", "wa\x07ve") if len(self.asked) > 1 else None

    def keep(self, jobs):
        self.kept = set(jobs)


class Intake:
    """Samples of Colmet that go to a running server."""

    def __init__(self, api: Running, **options):
        self.api, self.owners = api, Owners()
        self.intake = ColmetIntake(api.core, "dahu", ColmetOptions("127.0.0.1:0", **options), self.owners)

        async def begin():
            self.intake.begin()

        api.run(begin())
        self.context = zmq.Context()
        self.socket = self.context.socket(zmq.PUSH)
        self.socket.linger = 0
        self.socket.connect(self.intake.address)
        self.sent = 0

    def send(self, *messages: bytes) -> None:
        """Send, and wait until all was taken or refused."""
        receiver = self.intake._receiver
        self.sent += len(messages)
        for message in messages:
            self.socket.send(message)
        wait_until(lambda: receiver.received.total() + sum(receiver.refused.values()) == self.sent, "the messages")
        wait_until(lambda: not self.intake._queue.unfinished_tasks, "what is queued")

    def close(self) -> None:
        self.socket.close()
        self.context.term()
        self.api.run(self.intake.close())


@pytest.fixture
def api(sqlite_path) -> Iterator[Running]:
    with alone(sqlite_path, job_min_uid=1) as running:
        running.core.database.write(lambda tx: add_job(tx, user="daemon"))
        yield running


@pytest.fixture
def intake(api) -> Iterator[Intake]:
    made = Intake(api)
    yield made
    made.close()


def message(number: int) -> bytes:
    """Return records of a job that uses two cores, five seconds after the message before."""
    at = (NOW + 5 * number).to_bytes(8, "little")
    cpu = (number * 10_000_000_000).to_bytes(8, "little")
    task = recorded.TASKSTATS[:518] + at + recorded.TASKSTATS[526:582] + cpu + recorded.TASKSTATS[590:]
    return task + recorded.TEMPERATURE[:518] + at + recorded.TEMPERATURE[526:]


def test_jobs_of_colmets_cluster_have_curves_that_their_owners_see(api, intake):
    for number in range(20):
        api.core.clock.at = NOW + 5 * number
        intake.send(message(number))
    reply = api.client_of("nobody").get("/jobs/4071/series?cluster=dahu&metrics=cpu_seconds_total")
    assert reply.status == 200, reply.body
    [curve] = reply.body["series"]
    assert curve["node"] == "dahu-17"
    assert {round(point[2], 6) for point in curve["points"]} == {2.0}
    assert api.client_of("daemon").get("/jobs/4071/series?cluster=dahu").status == 403
    [job] = api.client_of("daemon").get("/agents/jobs?cluster=dahu").body["jobs"]
    shown = {key: job[key] for key in ("id", "cluster", "job", "manager", "user", "account", "name", "nodes")}
    assert shown == {
        "id": FIRST_NUMBER + 1, "cluster": "dahu", "job": "4071", "manager": "oar", "user": "nobody",
        "account": "physics", "name": "wave", "nodes": ["dahu-17"],
    }  # fmt: skip


def test_what_is_refused_is_counted_by_sender_on_the_page(api, intake):
    intake.send(b"nonsense", recorded.RUST[:-1], message(0))
    wait_until(lambda: api.core.live.refused["127.0.0.1"] == 2, "the count")
    page = api.client.get("/metrics").body
    text = page if isinstance(page, str) else page.decode()
    assert 'oarlock_refused_samples_total{node="127.0.0.1",cluster="cluster"} 2' in text


def test_a_node_of_our_own_is_not_measured_by_colmet(api, intake):
    from tests.clusters import add_nodes

    api.core.database.write(lambda tx: add_nodes(tx, {"dahu-17": 1}))
    intake.send(message(0))
    wait_until(lambda: api.core.live.refused["dahu-17"] == 1, "the refusal")
    assert api.client_of("daemon").get("/agents/jobs?cluster=dahu").body["jobs"] == []


def test_a_node_that_sends_with_a_token_is_not_told_about_by_colmet(api, intake):
    intake.send(message(0))
    frames = [AgentNotice(fresh=True), SampleEncoder("00" * 16, 1).encode(float(NOW), {"load_1min": 1.0}, {})]
    api.run(api.core.agents.take("dahu-17", "dahu", frames))
    intake.send(message(1))
    wait_until(lambda: api.core.live.refused["dahu-17"] == 1, "the refusal")
    api.core.clock.at = NOW + 601
    intake.send(message(2))
    assert api.core.live.refused["dahu-17"] == 1


def test_what_the_collector_has_no_room_for_is_marked_as_a_gap(api, intake):
    for number in range(5):
        api.core.clock.at = NOW + 5 * number
        api.core.collector.full = number in {2, 3}
        intake.send(message(number))
    reply = api.client_of("root").get("/jobs/4071/series?cluster=dahu&metrics=cpu_seconds_total")
    assert [gap[1:] for gap in reply.body["gaps"]] == [
        [NOW + 10, NOW + 15, "The collector is behind: its queue has no room for these samples."]
    ]


def test_a_job_that_is_on_a_node_without_values_is_known_too(api, intake):
    at = NOW.to_bytes(8, "little")
    intake.send(message(0) + recorded.RAPL[:518] + at + recorded.RAPL[526:])  # it names 4080 beside 4071
    listed = api.client_of("daemon").get("/agents/jobs?cluster=dahu").body["jobs"]
    assert sorted(job["job"] for job in listed) == ["4071", "4080"]
    assert api.client.get("/metrics").status == 200
    view = api.client_of("root").get("/nodes/dahu-17/series?metrics=temperature_celsius")
    assert len(view.body["involved_jobs"]) == 2


def test_owners_are_looked_up_for_the_jobs_that_are_there(api, intake):
    intake.send(message(0), message(1))
    assert intake.owners.asked == ["4071", "4071"]
    assert intake.owners.kept == {"4071"}
