"""What an agent costs the server: a POST of samples over a connection that stays open."""

import http.client
import os
import subprocess
import sys
import time
from pathlib import Path

from bench.harness import figure, workspace
from oarlock.client import Client
from oarlock.measure.posting.envelope import AgentNotice, NotedJob, encode_notice, pack
from oarlock.node.measure.wire import SampleEncoder

_POSTS, _ROUNDS = 1000, 3  # the kernel counts in hundredths of a second
_BOOT = "0d5a6a4e7a434d6d9d536f9a2a3a9a11"
_START_SECONDS = 30.0


@figure("agents.post", unit="ms of CPU", target=0.5)
def empty_post() -> float:
    """Take a POST without samples: the connection, the token, the body."""
    return _cpu_of_posts([pack([])] * (_POSTS * _ROUNDS))


@figure("agents.samples", unit="ms of CPU", target=1.0)
def sample_post() -> float:
    """Take a sample with 200 values of a node with two jobs, collector included."""
    encoder = SampleEncoder(_BOOT)
    values = {f"cpus_{number}": float(number) for number in range(66)}
    notice = encode_notice(AgentNotice(fresh=True, period=10.0, jobs=[NotedJob(1, "1"), NotedJob(2, "2")]))
    begin = time.time()
    frames = [encoder.encode(begin + turn / 1000, values, {1: values, 2: values}) for turn in range(_POSTS * _ROUNDS)]
    return _cpu_of_posts([pack([notice, frames[0]]), *(pack([frame]) for frame in frames[1:])])


def _cpu_of_posts(bodies: list[bytes]) -> float:
    """Return the milliseconds of CPU that a collector spends on each of these bodies."""
    with workspace() as folder:
        where = ["--state", str(folder / "state"), "--listen", "127.0.0.1:0"]
        command = [sys.executable, "-m", "oarlock", "collect", *where]
        with (folder / "log").open("wb") as log, subprocess.Popen(command, stderr=log) as server:
            try:
                return _posted(server.pid, folder, bodies)
            finally:
                server.terminate()


def _posted(pid: int, folder: Path, bodies: list[bytes]) -> float:
    socket, end = folder / "state" / "server.sock", time.monotonic() + _START_SECONDS
    while not socket.exists():
        if time.monotonic() > end:
            raise RuntimeError("the collector does not start")
        time.sleep(0.05)
    token = str(Client(str(socket))._change("POST", "/tokens", {"name": "n1", "node": "n1"})["token"])
    port = int((folder / "log").read_text().partition("port=")[2].split()[0])
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    spent = []
    for turn in range(_ROUNDS):
        before = _cpu(pid)
        for body in bodies[turn * _POSTS : (turn + 1) * _POSTS]:
            connection.request("POST", "/api/v1/samples?node=n1", body, {"Authorization": f"Bearer {token}"})
            response = connection.getresponse()
            if response.status != http.client.OK:
                raise RuntimeError(response.read().decode())
            response.read()
        spent.append((_cpu(pid) - before) / _POSTS)
    return min(spent) * 1000


def _cpu(pid: int) -> float:
    """Return the CPU seconds of a process and of those that it started."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    ticks = 0
    for process in (str(pid), *children):
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")
