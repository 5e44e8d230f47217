"""The agent's sender against a real server: it waits, repeats, drops and says so, and never holds sampling up."""

import os
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from oarlock.measure.batch import JOB, JobOwner, MeasuredSubject, SampleBatch
from oarlock.measure.naming import Naming
from oarlock.measure.posting import receive
from oarlock.measure.posting.https import ServerConnection
from oarlock.measure.posting.send import SampleSender
from oarlock.model.errors import ConfigRefused, SecretExposed
from oarlock.store.queries.job import agent_jobs
from tests.waiting import wait_until
from tests.web.nodeless_server import NOW, Running, alone

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be several users")


@pytest.fixture
def api(sqlite_path: Path) -> Iterator[Running]:
    with alone(sqlite_path, job_min_uid=1) as running:
        yield running


def token(api: Running, folder: Path, node: str = "n7") -> Path:
    file = folder / f"{node}.token"
    file.touch(0o600)
    file.write_text(api.client.post("/tokens", {"name": node, "node": node, "cluster": "alpha"}).body["token"] + "\n")
    return file


class Sampling:
    """Samples of one job, a second apart, handed to a sender."""

    def __init__(
        self, api: Running, folder: Path, *, node: str = "n7", most_bytes: int = 1 << 20, ahead: float = 0.0
    ) -> None:
        self.api, self.second, self.ahead = api, 0, ahead
        self.owner = JobOwner("17", "nobody", "65534", "physics", "", "wave", "slurm")
        connection = ServerConnection(f"http://127.0.0.1:{api.port}", token(api, folder))
        self.sender = SampleSender(
            connection, node, lambda: 1.0, most_bytes=most_bytes, now=lambda: api.core.clock.at + ahead
        )
        self._naming = Naming([])

    def take(self, count: int = 1) -> None:
        for _ in range(count):
            self.second += 1
            self.api.core.clock.at = NOW + self.second
            values = {"cpu_seconds_total": float(self.second), f'threads{{exe="{self.second}"}}': 1.0}
            subject = MeasuredSubject(("slurm", "", "17"), JOB, self.owner, values)
            at = NOW + self.second + self.ahead
            self.sender.take(SampleBatch(at, "n7", [subject], {"load_1min": 1.0}), self._naming)

    def curve(self) -> dict:
        reply = self.api.client_of("nobody").get("/jobs/17/series?cluster=alpha&metrics=cpu_seconds_total")
        return reply.body if reply.status == 200 else {"series": [], "gaps": []}

    def logged(self) -> int:
        return self.api.core.collector.collector.counts["rows"] // 2

    def until_logged(self, count: int) -> None:
        wait_until(lambda: self.logged() == count, f"{count} samples", 15)


def test_samples_arrive_with_their_job_and_are_kept_for_its_owner(api, tmp_path):
    sampling = Sampling(api, tmp_path)
    sampling.take(5)
    sampling.until_logged(5)
    sampling.sender.close()
    [curve] = sampling.curve()["series"]
    assert [point[2] for point in curve["points"]] == [1.0] * 4
    with api.core.database.read() as tx:
        job = agent_jobs.find(tx, "alpha", "17")
    assert (job.manager, job.user, job.uid, job.account, job.name) == ("slurm", "nobody", 65534, "physics", "wave")


def test_what_a_job_is_called_later_is_told_later(api, tmp_path):
    sampling = Sampling(api, tmp_path)
    sampling.take(1)
    sampling.until_logged(1)
    sampling.owner = sampling.owner._replace(account="chemistry")
    sampling.take(1)
    sampling.until_logged(2)
    sampling.sender.close()
    with api.core.database.read() as tx:
        assert agent_jobs.find(tx, "alpha", "17").account == "chemistry"


def test_a_full_queue_makes_samples_wait_not_vanish(api, tmp_path, monkeypatch):
    monkeypatch.setattr(receive.QueueFull, "retry_seconds", 1)
    sampling = Sampling(api, tmp_path)
    api.core.collector.full = True
    sampling.take(3)
    wait_until(lambda: sampling.sender._away.startswith("429"), "the refusal")
    api.core.collector.full = False
    sampling.until_logged(3)
    assert sampling.sender.dropped == 0
    sampling.sender.close()


@pytest.mark.parametrize("ahead", [0.0, 5.0, 3600.0, -86_400.0])
def test_samples_that_waited_for_long_are_those_of_their_time(api, tmp_path, ahead, monkeypatch):
    """Whatever the clock of the node says; what it says is believed if it is right when they are sent."""
    monkeypatch.setattr(receive.QueueFull, "retry_seconds", 1)
    sampling = Sampling(api, tmp_path, ahead=ahead)
    api.core.collector.full = True
    sampling.take(200)
    wait_until(lambda: sampling.sender._away.startswith("429"), "the refusal")
    api.core.collector.full = False
    sampling.until_logged(200)
    sampling.sender.close()
    [curve] = sampling.curve()["series"]
    believed = ahead if abs(ahead) <= 30 else 0.0
    assert [point[0] - believed for point in curve["points"]] == [NOW + second for second in range(2, 201)]
    assert {point[2] for point in curve["points"]} == {1.0}


def test_a_restarted_server_is_told_everything_again(api, tmp_path):
    """The connection stays, as behind a proxy: the sender learns of the restart by the refusal."""
    sampling = Sampling(api, tmp_path)
    sampling.take(3)
    sampling.until_logged(3)
    api.run(api.core.restart_measuring())
    sampling.take(2)
    sampling.until_logged(2)
    sampling.sender.close()
    assert sampling.sender.dropped == 0
    [curve] = sampling.curve()["series"]
    assert [point[2] for point in curve["points"]] == [1.0] * 4


def test_what_does_not_fit_is_dropped_counted_and_marked(api, tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(receive.QueueFull, "retry_seconds", 1)
    sampling = Sampling(api, tmp_path, most_bytes=1000)
    sampling.take(2)
    wait_until(lambda: not sampling.sender._pending, "two samples to be taken")
    api.core.collector.full = True
    sampling.take(40)
    dropped = sampling.sender.dropped
    assert 20 < dropped < 40
    assert "samples are dropped: the agent's buffer was full" in caplog.text
    api.core.collector.full = False
    # Those under way when they were dropped may have arrived.
    wait_until(lambda: sampling.logged() >= 42 - dropped, "the others", 15)
    sampling.take(1)  # what was dropped during the last POST is told with the sample that follows
    wait_until(lambda: not sampling.sender._pending, "the last one to be taken", 15)
    sampling.sender.close()
    gaps = [gap for gap in sampling.curve()["gaps"] if gap[3] == "the agent's buffer was full"]
    # Two, if some were dropped during a POST; the last sample may have found the buffer full once more.
    assert (gaps[0][1], gaps[-1][2]) == (NOW + 3.0, NOW + 2.0 + sampling.sender.dropped)
    assert all(before[2] == after[1] for before, after in pairwise(gaps))


def test_a_token_of_another_node_is_said_in_the_log_and_samples_wait(api, tmp_path, caplog):
    sampling = Sampling(api, tmp_path, node="n8")
    sampling.take(1)
    sentence = "403 This token is good for the node n7 of the cluster alpha, not for n8."
    wait_until(lambda: sentence in caplog.text, "the refusal in the log")
    assert sampling.logged() == 0
    sampling.sender.close()


def test_a_token_that_others_can_read_is_refused(api, tmp_path):
    file = token(api, tmp_path)
    file.chmod(0o640)
    with pytest.raises(SecretExposed, match="can be read by others"):
        ServerConnection(f"http://127.0.0.1:{api.port}", file)


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("http://far.example:6680", "would carry the token across the network unencrypted"),
        ("ftp://far.example", "is not the address of a server"),
        ("far.example:6680", "is not the address of a server"),
    ],
)
def test_addresses_that_would_give_a_token_away_are_refused(api, tmp_path, url, sentence):
    with pytest.raises(ConfigRefused, match=sentence):
        ServerConnection(url, token(api, tmp_path))
