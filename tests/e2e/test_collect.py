"""`oarlock collect` and a real agent on real cgroups, over TLS: killed, restarted, with wrong tokens."""

import csv
import io
import json
import os
import signal
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from oarlock.client import Client, RequestRefused
from oarlock.server.collecting.standalone import VERBS as COLLECTOR_VERBS
from oarlock.web.registry import VERBS
from tests.e2e.instance import SOURCE
from tests.measure.real import free_port
from tests.monitoring import Groups, needs_cgroups
from tests.server.http.test_tls import certificate
from tests.waiting import wait_until

pytestmark = [pytest.mark.skipif(os.geteuid() != 0, reason="only root makes cgroups"), needs_cgroups]

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(SOURCE)}
NOBODY = 65534
BUSY = "while True: pass"


class Samples(Client):
    """The client, with the verbs of a collector."""

    def csv(self, job: int) -> list[dict[str, str]]:
        try:
            text = self._download(f"/jobs/{job}/samples", format="csv", metrics="cpu_seconds_total").decode()
        except RequestRefused:
            return []
        return list(csv.DictReader(io.StringIO(text)))

    def get(self, path: str) -> dict:
        return self._get(path)


class Collect:
    """A collector in a process of its own, which can be killed and started again."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.state, self.port = folder, folder / "state", free_port()
        self.certificate, key = certificate(folder)
        self.settings = folder / "oar.conf"
        self.settings.write_text(f'CLUSTER_NAME=alpha\nTLS_CERTIFICATE="{self.certificate}"\nTLS_KEY="{key}"\n')
        self.url = f"https://localhost:{self.port}"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        listen = f"localhost:{self.port}"
        command = ["collect", "--state", self.state, "--config", self.settings, "--listen", listen]
        with (self.folder / "log").open("ab") as log:
            self.process = oarlock(*command, stderr=log)
        wait_until((self.state / "server.sock").exists, "the collector", 60)

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        code = self.process.wait(30)
        (self.state / "server.sock").unlink(missing_ok=True)
        return code

    @property
    def client(self) -> Samples:
        return Samples(str(self.state / "server.sock"))

    def token(self, node: str) -> Path:
        file = self.folder / f"{node}.token"
        ran = oarlock("token", "add", "--node", node, "-o", file, "--server", self.state / "server.sock")
        assert ran.wait(60) == 0
        return file


def oarlock(*words: object, **options: object) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-m", "oarlock", *map(str, words)], env=ENVIRONMENT, **options)


@pytest.fixture
def collect(tmp_path: Path) -> Iterator[Collect]:
    made = Collect(tmp_path)
    made.start()
    try:
        yield made
    finally:
        if made.process.poll() is None:
            assert made.end() == 0


@pytest.fixture
def job() -> Iterator[int]:
    """A real process in the cgroups that Slurm makes for a job of nobody's."""
    groups = Groups()
    with subprocess.Popen([sys.executable, "-c", BUSY]) as program:
        try:
            groups.join(groups.make(f"slurm/uid_{NOBODY}/job_4711"), program.pid)
            yield 4711
        finally:
            program.kill()
            program.wait()
            groups.clean()


def agent(collect: Collect, token: Path, log: Path, node: str = "n1") -> "subprocess.Popen[bytes]":
    with log.open("wb") as errors:
        return oarlock(
            "agent", "--layout", "slurm", "--period", "0.5", "--listen", "none", "--control", "none", "--node", node,
            "--send", collect.url, "--token-file", token, "--ca", collect.certificate, stderr=errors,
        )  # fmt: skip


def times(rows: list[dict[str, str]]) -> list[float]:
    return [float(row["time"]) for row in rows]


def test_a_collector_that_is_killed_and_restarted_has_every_sample_once(collect, job, tmp_path):
    sending = agent(collect, collect.token("n1"), tmp_path / "agent.log")
    stranger = agent(collect, tmp_path / "n1.token", tmp_path / "stranger.log", "n2")
    try:
        wait_until(lambda: len(collect.client.csv(job)) >= 4, "samples", 60)
        sentence = "403 This token is good for the node n1, not for n2."
        wait_until(lambda: sentence in (tmp_path / "stranger.log").read_text(), "the refusal", 30)
        assert collect.end(signal.SIGKILL) == -signal.SIGKILL
        wait_until(lambda: "samples are not taken" in (tmp_path / "agent.log").read_text(), "the agent to notice", 30)
        collect.start()
        wait_until(lambda: "takes samples again" in (tmp_path / "agent.log").read_text(), "samples again", 60)
        before = len(collect.client.csv(job))
        wait_until(lambda: len(collect.client.csv(job)) > before + 2, "new samples", 30)
        rows = collect.client.csv(job)
    finally:
        for process in (sending, stranger):
            process.terminate()
            assert process.wait(30) == 0
    assert {row["node"] for row in rows} == {"n1"}
    assert times(rows) == sorted(set(times(rows)))
    used = [float(row["cpu_seconds_total"]) for row in rows]
    assert used == sorted(used)
    assert used[-1] > used[0]
    [listed] = collect.client.get("/agents/jobs")["jobs"]
    assert (listed["cluster"], listed["job"], listed["user"], listed["nodes"]) == ("alpha", "4711", "nobody", ["n1"])
    with urllib.request.urlopen(f"{collect.url}/metrics", timeout=20, context=trusting(collect)) as answer:
        page = answer.read().decode()
    assert 'oarlock_job_cpu_seconds_total{job_id="4711",user="nobody"' in page


def trusting(collect: Collect) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(collect.certificate))


def test_every_verb_of_a_collector_is_answered_and_no_other(collect):
    def status(name: str) -> str:
        path = VERBS[name].path.replace("{id}", "1").replace("{name}", "x").replace("{job}", "1")
        try:
            collect.client._get(path) if VERBS[name].method == "GET" else collect.client._change(
                VERBS[name].method, path, {}
            )
        except RequestRefused as refused:
            return refused.kind
        except ValueError:
            return "a page"  # of text
        return "answered"

    kinds = {name: status(name) for name in VERBS}
    assert {name for name, kind in kinds.items() if kind != "UnknownVerb"} == COLLECTOR_VERBS
    assert "InternalError" not in kinds.values()
    with urllib.request.urlopen(f"{collect.url}/api/openapi.json", timeout=20, context=trusting(collect)) as answer:
        paths = json.load(answer)["paths"]
    assert {verb["operationId"] for path in paths.values() for verb in path.values()} == COLLECTOR_VERBS
    with urllib.request.urlopen(f"{collect.url}/api/docs", timeout=20, context=trusting(collect)) as answer:
        assert answer.read().decode().count("<tr><td>") == len(COLLECTOR_VERBS)
