"""`oarlock collect --zmq` as a process of its own, and a sender as Colmet's nodes are."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import h5py
import pytest
import zmq

from oarlock.cli.oarlock import main
from oarlock.client import Client, RequestRefused
from tests.e2e.instance import SOURCE
from tests.measure.colmet import recorded
from tests.measure.real import free_port
from tests.waiting import wait_until

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(SOURCE)}


class CollectorClient(Client):
    """The client, with the curves of a job of Colmet's cluster."""

    def curve(self, job: int, metric: str) -> list[list[float]]:
        try:
            [curve] = self._get(f"/jobs/{job}/series", cluster="dahu", metrics=metric)["series"]
        except RequestRefused:
            return []
        return curve["points"]


class Collect:
    """A collector that receives from this machine, and a node that sends to it."""

    def __init__(self, folder: Path) -> None:
        self.state, self.port, self.zmq_port = folder / "state", free_port(), free_port()
        settings = folder / "oar.conf"
        settings.write_text("CLUSTER_NAME=dahu\n")
        command = [
            "collect", "--state", self.state, "--config", settings, "--listen", f"127.0.0.1:{self.port}",
            "--zmq", f"tcp://127.0.0.1:{self.zmq_port}", "--zmq-perfhw-list", "instructions", "cpu_cycles",
        ]  # fmt: skip
        with (folder / "log").open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "oarlock", *map(str, command)], env=ENVIRONMENT, stderr=log
            )
        wait_until((self.state / "server.sock").exists, "the collector", 60)
        self.client = CollectorClient(str(self.state / "server.sock"))
        self._context = zmq.Context()
        self.node = self._context.socket(zmq.PUSH)
        self.node.linger = 0
        self.node.connect(f"tcp://127.0.0.1:{self.zmq_port}")

    def page(self) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=20) as answer:
            return answer.read().decode()

    def close(self) -> None:
        self.node.close()
        self._context.term()
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(30) == 0


@pytest.fixture
def collect(tmp_path: Path) -> Iterator[Collect]:
    made = Collect(tmp_path)
    yield made
    made.close()


def message(at: int, cpu_seconds: int) -> bytes:
    """Return what Colmet in Python sends: records of a job and of its node."""
    instant, cpu = at.to_bytes(8, "little"), (cpu_seconds * 10**9).to_bytes(8, "little")
    task = recorded.TASKSTATS[:518] + instant + recorded.TASKSTATS[526:582] + cpu + recorded.TASKSTATS[590:]
    others = (recorded.PERFHW, recorded.PROCSTATS, recorded.RAPL)
    return task + b"".join(record[:518] + instant + record[526:] for record in others)


def test_a_colmet_node_sends_to_a_collector_as_it_is(collect, tmp_path, capsys):
    now = int(time.time())
    for second in range(-12, 0):
        collect.node.send(message(now + second, 2 * (second + 12)))
    collect.node.send(b"\x93\x01\x02")
    wait_until(lambda: len(collect.client.curve(4071, "cpu_seconds_total")) == 11, "the curve")
    assert {round(point[2], 6) for point in collect.client.curve(4071, "cpu_seconds_total")} == {2.0}
    assert len(collect.client.curve(4071, "perf_cpu_cycles_total")) == 11
    refused = 'oarlock_refused_samples_total{node="127.0.0.1",cluster="dahu"} 1'
    wait_until(lambda: refused in collect.page(), "the count of what was refused")
    collect.node.send(message(int(time.time()), 99))
    wait_until(lambda: 'oarlock_node_load_1min{instance="dahu-17"' in collect.page(), "the node on the page")
    assert 'oarlock_job_cpu_seconds_total{job_id="4071"' in collect.page()
    wait_until(lambda: len(collect.client.curve(4071, "cpu_seconds_total")) == 12, "the last sample")
    export = ["archive", "export", "--colmet", "4071", "--cluster", "dahu", "-o", str(tmp_path / "out"), "--json"]
    assert main([*export, "--state", str(collect.state)]) == 0
    written = json.loads(capsys.readouterr().out)
    [mapping] = [Path(path).read_text() for path in written["mappings"] if "perfhw" in path]
    assert mapping.splitlines()[:3] == ["counter1,cpu_cycles", "counter2,instructions", "counter3,no_counter"]
    with h5py.File(written["file"]) as file:
        assert file["job_4071/taskstats_default"]["cpu_run_virtual_total"].tolist() == [
            *(2 * number * 10**9 for number in range(12)),
            99 * 10**9,
        ]
        assert [set(file["job_4071/perfhwstats_default"][f"counter_{number}"]) for number in (1, 2)] == [{2000}, {1000}]
        assert set(file["job_0/RAPLstats_default"]["counter_1"]) == {1_000_000}


def test_a_collector_that_cannot_receive_says_why_and_does_not_start(tmp_path, capsys):
    start = ["collect", "--state", str(tmp_path / "state"), "--listen", f"127.0.0.1:{free_port()}"]
    for more, sentence in [
        (["--zmq", "5556"], "`5556` is not an address for ZeroMQ."),
        (["--zmq", "127.0.0.1:0", "--zmq-allow", "ten"], "`ten` is neither an address nor a network."),
        (["--zmq", "127.0.0.1:0", "--zmq-perfhw-list", "moon"], "There is no event `moon`."),
        (["--zmq", "127.0.0.1:0", "--look-up", "oar"], "The look-up `oar` needs --database FILE."),
        (["--zmq-allow", "10.0.0.1"], "--zmq-allow is for --zmq."),
    ]:
        assert main([*start, *more]) == 2
        assert sentence in capsys.readouterr().err
