"""What the server's own `/metrics` costs on a large site: the samples of its nodes taken in, and the page made of them.

Every node runs two jobs of 16 cores and sends what a node really sends; all values changed since the page before.
"""

import time

from bench.harness import figure
from oarlock.measure.batch import JobFacts
from oarlock.measure.live import LiveUsage
from oarlock.measure.metrics import catalogue
from oarlock.node.measure.wire import encode_sample
from oarlock.node.sources.probe import series

NODES, JOBS_A_NODE, CORES = 200, 2, 16
_TURNS = 5


@figure("metrics.take", unit="ms of CPU, 200 nodes", target=60)
def take() -> float:
    """Take one sample of each of 200 nodes."""
    return min(_measured()[0])


@figure("metrics.page", unit="ms of CPU, 200 nodes", target=300)
def page() -> float:
    """Write the page of 200 nodes with 400 jobs when everything changed."""
    return min(_measured()[1])


def _measured() -> tuple[list[float], list[float]]:
    live = LiveUsage(10, "bench")
    taking, writing = [], []
    for turn in range(1, _TURNS + 1):
        samples = [(f"node{node}", *_sample(node, turn)) for node in range(NODES)]
        begin = time.process_time()
        for name, data, jobs in samples:
            live.take(name, data, jobs, at=float(turn))
        taking.append((time.process_time() - begin) * 1000)
        live.learn({job: JobFacts("root", "bench", "") for job in live.unknown()})
        begin = time.process_time()
        text = live.page(live.batches(now=float(turn)))
        writing.append((time.process_time() - begin) * 1000)
        if text.count(b"\noarlock_job_cpu_seconds_total{") != NODES * JOBS_A_NODE:
            raise RuntimeError("not every job is on the page")
    return taking[1:], writing[1:]


def _sample(node: int, turn: int) -> tuple[bytes, set[int]]:
    numbers = range(node * JOBS_A_NODE + 1, (node + 1) * JOBS_A_NODE + 1)
    values = {name: float(turn * 1000 + at) for at, name in enumerate(_series("job"))}
    whole = {name: float(turn * 1000 + at) for at, name in enumerate(_series("node"))}
    return encode_sample(float(turn), whole, dict.fromkeys(numbers, values)), set(numbers)


def _series(scope: str) -> list[str]:
    """Name what a node sends of a job, or of itself: each metric once, but those by core for every core."""
    found: list[str] = []
    for metric in catalogue().values():
        if metric.scope == scope and metric.source in _SENT:
            times = CORES if "core" in metric.labels else 1
            found += [series(metric.name, **dict.fromkeys(metric.labels, str(n))) for n in range(times)]
    return found


_SENT = {"cpu", "memory", "blockio", "pids", "processes", "machine", "network"}
