"""A job that does what it is told, says what it did, and then does nothing: measurements are compared with that."""

import json
import shlex
from dataclasses import dataclass
from typing import Any

import pytest

from oarlock.model.summary import NodeMeasured

NEAR = 0.03
"""By how much a figure may differ from what the job did."""

_PROGRAM = """import json, os, resource, sys, time
processes, seconds, memory, written, idle = map(float, sys.argv[1:6])
begin = time.time()
held = bytearray(int(memory))
held[::4096] = b"x" * len(held[::4096])
for _ in range(int(processes)):
    if os.fork() == 0:
        while time.process_time() < seconds: pass
        os._exit(0)
for _ in range(int(processes)): os.wait()
busy = time.time() - begin
with open(sys.argv[6], "wb") as file:
    for _ in range(int(written) // 1_000_000): file.write(bytes(1_000_000))
used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
cpu = sum(part.ru_utime + part.ru_stime for part in used)
print(json.dumps({"begin": begin, "busy": busy, "cpu": cpu, "memory": memory, "written": written}), flush=True)
time.sleep(idle)
"""


@dataclass(frozen=True)
class KnownLoad:
    """So many processes busy for so many seconds of CPU time each, bytes held, bytes written, then idle."""

    processes: int = 2
    seconds: float = 1.5  # less, and what the kernel does at the end of the job is above three percent of it
    memory: int = 400_000_000
    written: int = 200_000_000
    idle: float = 600.0

    def command(self, file: str) -> str:
        words = [self.processes, self.seconds, self.memory, self.written, self.idle]
        return f"python3 -c {shlex.quote(_PROGRAM)} {' '.join(map(str, words))} {shlex.quote(file)}"


def did(printed: str) -> dict[str, float]:
    """What the job says that it did; empty while it is not done."""
    lines = [line for line in printed.splitlines() if line.startswith("{")]
    return json.loads(lines[0]) if lines else {}


def near(value: float) -> Any:
    return pytest.approx(value, rel=NEAR)


def check_node(measured: NodeMeasured, done: dict[str, float]) -> None:
    """Compare what the collector added up on one node with what the job did."""
    assert measured.cpu_seconds == near(done["cpu"])
    assert measured.memory_own_most_bytes == near(done["memory"])
    assert measured.written_bytes == near(done["written"])
    assert measured.seconds == near(measured.until - measured.since), "there was a hole"
    assert measured.cpu_idle_seconds > 0
