"""Samples and scripts of other clusters, as agents and pushers send them to the port."""

import io
import os
import zlib
from collections.abc import Iterator
from pathlib import Path

import h5py
import pytest

from oarlock.measure.collect.jobs import describe_ended
from oarlock.measure.posting.envelope import LARGEST_INFLATED, AgentNotice, NotedGap, NotedJob, encode_notice, pack
from oarlock.measure.posting.receive import OLDEST_SECONDS
from oarlock.node.measure.wire import SampleEncoder
from oarlock.store.queries.job import agent_jobs
from oarlock.store.queries.job.agent_jobs import FIRST_NUMBER
from oarlock.store.queries.usage import energy
from oarlock.store.queries.usage.energy import BookedDay, MeteredDay
from tests.clusters import add_nodes
from tests.store.cluster import add_job
from tests.web.nodeless_server import NOW, Reply, Running, alone

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be several users")

BOOT = "0d5a6a4e7a434d6d9d536f9a2a3a9a11"
NOBODY = 65534


@pytest.fixture
def api(sqlite_path: Path) -> Iterator[Running]:
    with alone(sqlite_path, job_min_uid=1) as running:
        running.core.database.write(lambda tx: add_job(tx, user="daemon"))
        yield running


class Node:
    """A node of another cluster with an agent: its token, and its numbers for jobs."""

    def __init__(self, api: Running, name: str = "n7", cluster: str | None = "alpha") -> None:
        about = {"name": f"{cluster}-{name}", "node": name} | ({"cluster": cluster} if cluster else {})
        self._client = api.client_at_port(api.client.post("/tokens", about).body["token"])
        self.name, self.api = name, api
        self.encoder = SampleEncoder(BOOT)

    def send(self, *frames: bytes, node: str | None = None) -> Reply:
        return self.send_body(pack(frames), node=node)

    def send_body(self, body: bytes, node: str | None = None) -> Reply:
        return self._client.ask("POST", f"/samples?node={node or self.name}", body)

    def sample(self, jobs: dict[int, float], load: float = 1.0) -> bytes:
        """Make a sample of the present, a second after the one before."""
        self.api.core.clock.at += 1
        values = {number: {"cpu_seconds_total": seconds} for number, seconds in jobs.items()}
        return self.encoder.encode(float(self.api.core.clock.at), {"load_1min": load}, values)


def told(number: int, job: str = "1", *, user: str = "nobody", uid: int | None = NOBODY, name: str = "") -> NotedJob:
    return NotedJob(number, job, "slurm", user, uid, "physics", name)


def notice(*jobs: NotedJob, fresh: bool = True, **more) -> bytes:
    return encode_notice(AgentNotice(fresh=fresh, period=1.0, jobs=list(jobs), **more))


def curve(api: Running, path: str, user: str = "nobody") -> list[float]:
    reply = api.client_of(user).get(f"/jobs/{path}")
    assert reply.status == 200, reply.body
    [series] = reply.body["series"]
    return [point[2] for point in series["points"]]


def test_a_job_of_another_cluster_has_curves_beside_ours_of_its_number(api):
    node = Node(api)
    reply = node.send(notice(told(5)), *(node.sample({5: 3.0 * second}) for second in range(20)))
    assert (reply.status, reply.body) == (200, {"taken": 20, "repeated": 0})
    assert curve(api, "1/series?cluster=alpha&metrics=cpu_seconds_total") == [3.0] * 19
    assert api.client_of("nobody").get("/jobs/1/series").status == 403  # that one is daemon's, and ours
    [listed] = api.client_of("daemon").get("/agents/jobs?cluster=alpha").body["jobs"]
    wanted = {"id": FIRST_NUMBER + 1, "cluster": "alpha", "job": "1", "manager": "slurm", "user": "nobody",
              "account": "physics", "name": "", "nodes": ["n7"], "first_seen": NOW, "last_seen": NOW}  # fmt: skip
    assert {**listed, "first_seen": NOW, "last_seen": NOW} == wanted
    assert curve(api, f"{FIRST_NUMBER + 1}/series?metrics=cpu_seconds_total") == [3.0] * 19


def test_only_the_owner_by_name_and_number_sees_a_job_of_another_cluster(api):
    node = Node(api)
    node.send(notice(told(1), told(2, "2", uid=4711)), *(node.sample({1: 1.0, 2: 1.0}) for _ in range(3)))
    seen = {
        (user, job): api.client_of(user).get(f"/jobs/{job}/series?cluster=alpha").status
        for user in ("nobody", "daemon", "root")
        for job in (1, 2, 3)
    }
    assert seen == {
        ("nobody", 1): 200, ("nobody", 2): 403, ("nobody", 3): 404,
        ("daemon", 1): 403, ("daemon", 2): 403, ("daemon", 3): 404,
        ("root", 1): 200, ("root", 2): 200, ("root", 3): 404,
    }  # fmt: skip


def test_its_file_has_the_managers_number_and_its_owner(api):
    node = Node(api)
    node.send(notice(told(5, "4711", name="wave")), *(node.sample({5: float(second)}) for second in range(15)))
    with api.client_of("nobody").connected() as connection:
        connection.request("GET", "/api/v1/jobs/4711/samples?cluster=alpha")
        content = connection.getresponse().read()
    with h5py.File(io.BytesIO(content)) as file:
        about = dict(file["job_4711"].attrs)
        assert file["job_4711/cpu"]["cpu_seconds_total"].tolist() == [float(second) for second in range(15)]
    assert {key: about[key] for key in ("owner", "project", "name", "cluster", "manager", "label")} == {
        "owner": "nobody", "project": "physics", "name": "wave", "cluster": "alpha", "manager": "slurm",
        "label": "4711",
    }  # fmt: skip


def test_samples_that_are_sent_again_count_once(api):
    node = Node(api)
    frames = [notice(told(1)), *(node.sample({1: float(second)}) for second in range(4))]
    assert node.send(*frames).body == {"taken": 4, "repeated": 0}
    assert node.send(*frames).body == {"taken": 0, "repeated": 4}
    assert api.core.collector.collector.counts["rows"] == 8


def test_a_restarted_server_takes_what_it_had_taken_only_once(api):
    """The server forgets sequence numbers; the node's log has the instants."""
    node = Node(api)
    frames = [notice(told(1)), *(node.sample({1: float(second)}) for second in range(4))]
    node.send(*frames)
    collector = api.core.collector.collector
    collector.close()
    api.run(api.core.restart_measuring())
    node.send(*frames, node.sample({1: 4.0}))
    counts = api.core.collector.collector.counts
    assert (counts["refused"], counts["rows"]) == (4, 2)
    assert curve(api, "1/series?cluster=alpha&metrics=cpu_seconds_total") == [1.0] * 4


def test_what_builds_on_tables_that_are_lost_is_asked_for_again(api):
    node = Node(api)
    node.send(notice(told(1)), node.sample({1: 0.0}))
    api.run(api.core.restart_measuring())
    refused = node.send(node.sample({1: 1.0}))
    assert (refused.status, refused.body["error"]) == (
        409,
        "A sample of n7 cannot be read: nothing was reported about job 1.",
    )
    refused = node.send(notice(told(1)), node.sample({1: 2.0}))
    assert (refused.status, refused.body["kind"]) == (409, "UnreadableFrames")
    node.encoder.forget_tables()
    assert node.send(notice(told(1)), node.sample({1: 3.0})).body == {"taken": 1, "repeated": 0}


@pytest.mark.parametrize("token", ["", "unknown"])
def test_samples_without_a_valid_token_are_refused(api, token):
    reply = api.client_at_port(token).ask("POST", "/samples?node=n7", pack([]))
    assert reply.status == 401


def test_a_token_that_is_revoked_is_worthless_at_once(api):
    node = Node(api)
    assert node.send().status == 200
    assert api.client.delete("/tokens/alpha-n7").status == 200
    assert node.send().status == 401


def test_a_token_of_one_node_is_not_good_for_another(api):
    reply = Node(api).send(node="n8")
    assert (reply.status, reply.body["error"]) == (
        403,
        "This token is good for the node n7 of the cluster alpha, not for n8.",
    )


def test_a_node_of_our_own_sends_no_samples_by_itself(api):
    api.core.database.write(lambda tx: add_nodes(tx, ["n7"]))
    reply = Node(api).send()
    assert (reply.status, reply.body["error"]) == (
        409,
        "n7 is a node of this cluster: the server measures it by itself.",
    )


def test_a_full_queue_is_answered_with_when_to_come_again(api):
    node = Node(api)
    frames = notice(told(1)), node.sample({1: 1.0})
    api.core.collector.full = True
    reply = node.send(*frames)
    assert (reply.status, reply.body["kind"], reply.headers["retry-after"]) == (429, "QueueFull", "5")
    api.core.collector.full = False
    assert node.send(*frames).body == {"taken": 1, "repeated": 0}


@pytest.mark.parametrize(
    ("body", "status", "sentence"),
    [
        (b"", 400, "The body ends before its end"),
        (b"not deflated", 400, "The body is not deflated"),
        (zlib.compress(b"\xff\xff\xff\xffxx"), 400, "frame 1 of 4294967295 bytes does not fit"),
        (zlib.compress(b"\x02\0\0\0{}\x01\0\0\0!"), 400, "JSON is malformed"),
        (pack([b'{"jobs":[{"number":1,"job":"../x"}]}']), 400, "Expected `str` matching regex"),
        (zlib.compress(b"\0" * (LARGEST_INFLATED + 1)), 413, "The body inflates to more than 33554432 bytes."),
        (b"\0" * ((4 << 20) + 1), 413, "The request is over 4194304 bytes."),
        (pack([b"oar\xf2"]), 409, "4 bytes do not begin as a sample does"),
    ],
)  # fmt: skip
def test_what_is_no_body_of_samples_is_refused_in_a_sentence(api, body, status, sentence):
    reply = Node(api).send_body(body)
    assert reply.status == status
    assert sentence in reply.body["error"]


def test_what_an_agent_dropped_is_a_gap_in_the_curve(api):
    node = Node(api)
    node.send(notice(told(1)), *(node.sample({1: float(second)}) for second in range(4)))
    gap = NotedGap(float(NOW + 4), float(NOW + 9), "the agent's buffer was full", [1])
    api.core.clock.at = NOW + 9
    node.send(notice(fresh=False, gaps=[gap]), node.sample({1: 9.0}))
    view = api.client_of("nobody").get("/jobs/1/series?cluster=alpha&metrics=cpu_seconds_total").body
    assert ["n7", NOW + 4.0, NOW + 9.0, "the agent's buffer was full"] in view["gaps"]


def test_curves_of_a_node_name_the_jobs_of_other_managers(api):
    node = Node(api)
    node.send(notice(told(5, "4711")), *(node.sample({5: 3.0}) for _ in range(3)))
    view = api.client_of("daemon").get("/nodes/n7/series").body
    assert [curve["metric"] for curve in view["series"]] == ["load_1min"]
    assert (view["involved_jobs"], view["agent_jobs"]) == ([FIRST_NUMBER + 1], {str(FIRST_NUMBER + 1): "4711@alpha"})


def test_energy_of_their_jobs_is_their_users(api):
    node = Node(api)
    node.send(notice(told(5, "4711")), node.sample({5: 3.0}))
    job = FIRST_NUMBER + 1
    day = BookedDay(MeteredDay("n7", 0, "rapl", 5000, 2000, 0, 10.0, 1), {job: 3000}, {job: 10.0})
    api.core.database.write(lambda tx: energy.book(tx, [day]))
    rows = api.client_of("nobody").get("/energy?since=0&until=9&by=user,project,job").body["rows"]
    assert [(row["group"], row["joules"]) for row in rows] == [
        ({"user": "nobody", "project": "physics", "job": "4711@alpha"}, 3.0)
    ]


def test_metrics_name_the_cluster_the_manager_and_its_number(api):
    node = Node(api)
    node.send(notice(told(5, "4711")), node.sample({5: 3.0}))
    lines = api.client.get("/metrics").body.splitlines()
    [line] = [line for line in lines if line.startswith("oarlock_job_cpu_seconds_total")]
    for label in ('job_id="4711"', 'user="nobody"', 'account="physics"', 'instance="n7"', 'cluster="alpha"'):
        assert label in line


def ended(api: Running) -> list[int]:
    with api.core.database.read() as tx:
        return [job.ended for job in agent_jobs.listed(tx, cluster=None, user=None, running=False, most=9)]


def test_a_job_is_over_when_all_its_nodes_send_samples_without_it(api):
    first, second = Node(api), Node(api, "n8")
    first.send(notice(told(1)), first.sample({1: 1.0}))
    second.send(notice(told(1)), second.sample({1: 1.0}))
    seen = api.core.clock.at
    first.send(first.sample({}))
    api.core.clock.at += 100
    api.run(api.core.agents.sweep())
    assert ended(api) == [0]
    second.send(second.sample({}))
    api.run(api.core.agents.sweep())
    assert ended(api) == [seen]
    with api.core.database.read() as tx:
        assert describe_ended(tx, [FIRST_NUMBER + 1])[FIRST_NUMBER + 1].nodes == ("n7", "n8")
    # Slurm runs it once more, or uses its number again: another job.
    first.send(notice(told(2)), first.sample({2: 1.0}))
    assert ended(api) == [0, seen]


def test_two_clusters_with_a_node_of_one_name_share_nothing(api):
    nodes = [Node(api, cluster=cluster) for cluster in ("alpha", "beta")]
    for second in range(15):
        for place, node in enumerate(nodes):
            frames = [notice(told(1, "4711"))] if second == 0 else []
            frames.append(node.sample({1: second * (place + 2.0)}, load=10.0 * (place + 1)))
            assert node.send(*frames).body == {"taken": 1, "repeated": 0}
    curves = [api.client.get(f"/nodes/{name}/series?metrics=load_1min&since={NOW}").body for name in ("n7", "n7@beta")]
    assert [{point[2] for point in view["series"][0]["points"]} for view in curves] == [{10.0}, {20.0}]
    assert [view["involved_jobs"] for view in curves] == [[FIRST_NUMBER + 1], [FIRST_NUMBER + 2]]
    rates = [curve(api, f"4711/series?cluster={name}&metrics=cpu_seconds_total") for name in ("alpha", "beta")]
    assert rates == [[1.0] * 14, [1.5] * 14]  # each sends every other second
    api.run(api.core.restart_measuring())  # who has the name does not depend on who sends first then
    api.run(api.core.agents.begin())
    nodes[1].send(notice(told(1, "4711")), nodes[1].sample({1: 99.0}))
    with api.core.database.read() as tx:
        assert {job.cluster: job.nodes for job in agent_jobs.not_over(tx)} == {"alpha": ("n7",), "beta": ("n7@beta",)}


def test_a_node_that_was_silent_for_hours_goes_on_with_its_job(api):
    node = Node(api)
    node.send(notice(told(1, "4711")), *(node.sample({1: float(second)}) for second in range(15)))
    api.core.clock.at += 5 * 3600
    api.run(api.core.agents.sweep())
    node.send(*(node.sample({1: 15.0 + second}) for second in range(15)))
    assert ended(api) == [0]
    view = api.client_of("nobody").get("/jobs/4711/series?cluster=alpha&metrics=cpu_seconds_total").body
    assert len([point for point in view["series"][0]["points"] if point[2] is not None]) == 28
    [[_, since, until, why]] = view["gaps"]
    assert (until - since, why) == (5 * 3600 + 1, "nothing came")


def test_a_job_lost_by_a_node_with_others_silent_is_over_after_an_hour(api):
    first, second = Node(api), Node(api, "n8")
    for node in (first, second):
        node.send(notice(told(1)), node.sample({1: 1.0}))
    seen = api.core.clock.at
    for seconds, wanted in ((3000, 0), (700, seen)):
        api.core.clock.at += seconds
        first.send(first.sample({}))
        api.run(api.core.agents.sweep())
        assert ended(api) == [wanted]


def test_a_job_whose_nodes_are_silent_is_over_when_nothing_of_it_can_come(api):
    node = Node(api)
    node.send(notice(told(1)), node.sample({1: 1.0}))
    seen = api.core.clock.at
    for seconds, wanted in ((int(OLDEST_SECONDS) - 400, 0), (400, seen)):
        api.core.clock.at += seconds
        api.run(api.core.restart_measuring())  # what it knows is in the database
        api.run(api.core.agents.begin())
        api.run(api.core.agents.sweep())
        assert ended(api) == [0]  # nobody could send while there was no server
        api.core.clock.at += 301
        api.run(api.core.agents.sweep())
        assert ended(api) == [wanted]


# Scripts.


def pusher(api: Running, token: str, method: str = "POST", path: str = "/api/jobscripts/", body: bytes = b"") -> tuple:
    """Ask as the pusher of the user portal does: no request id, `Token`, and a slash at the end."""
    with api.client_at_port().connected() as connection:
        connection.request(method, path, body, {"Authorization": f"Token {token}", "Content-Type": "application/json"})
        reply = connection.getresponse()
        return reply.status, reply.read()


@pytest.fixture
def scripts(api) -> str:
    return api.client.post("/tokens", {"name": "scripts", "scripts": True, "cluster": "alpha"}).body["token"]


def test_a_script_is_stored_once_and_its_owner_reads_it(api, scripts):
    for script in ("#!/bin/sh\\nfirst", "second"):
        body = f'{{"id_job": 17, "submit_script": "{script}"}}'.encode()
        assert pusher(api, scripts, body=body)[0] == 201
    assert pusher(api, "wrong", body=b"{}")[0] == 401
    read = {user: api.client_of(user).get("/jobs/17/script?cluster=alpha") for user in ("nobody", "root")}
    assert (read["nobody"].status, read["root"].body["script"]) == (403, "#!/bin/sh\nfirst")
    node = Node(api)
    node.send(notice(told(3, "17")), node.sample({3: 1.0}))
    answers = {user: api.client_of(user).get("/jobs/17/script?cluster=alpha").status for user in ("nobody", "daemon")}
    assert answers == {"nobody": 200, "daemon": 403}


def test_put_replaces_a_script_and_too_much_is_refused(api, scripts):
    assert pusher(api, scripts, body=b'{"id_job": 17, "submit_script": "first"}')[0] == 201
    assert pusher(api, scripts, "PUT", "/api/jobscripts/17/", b"#!/bin/sh\nsecond")[0] == 200
    assert api.client.get("/jobs/17/script?cluster=alpha").body["script"] == "#!/bin/sh\nsecond"
    status, answer = pusher(api, scripts, "PUT", "/api/jobscripts/17", b"x" * (2**20 + 1))
    assert (status, b"The request is over 1048576 bytes." in answer) == (413, True)
    status, answer = pusher(api, scripts, "PUT", "/api/jobscripts/17", b"\xff")
    assert (status, b"Byte 0 of the script is not valid UTF-8." in answer) == (400, True)
    missing = api.client.get("/jobs/18/script?cluster=alpha")
    assert (missing.status, missing.body["error"]) == (404, "There is no script of job 18 of the cluster alpha.")


def test_the_command_of_a_job_of_ours_is_its_script(api):
    assert api.client_of("daemon").get("/jobs/1/script").status == 200
    assert api.client_of("nobody").get("/jobs/1/script").status == 403
