"""How long replays of real traces take, and whether they come to what the reference simulator came to.

A figure whose result is wrong is not measured: it says what was wrong instead. The traces are kept beside the project.
"""

import gzip
import time
from functools import cache
from pathlib import Path

from bench.harness import figure
from oarlock.simulate.platform import uniform
from oarlock.simulate.replay import EventOrder, Replay, ReplayedJob
from oarlock.simulate.statistics import Energy, compute
from oarlock.simulate.trace import Trace, read_trace

TRACES = Path(__file__).resolve().parents[2] / "shared" / "data" / "traces"
KTH = ("KTH-SP2-1996-2.filtered.swf.gz", 100)
HPC2N = ("HPC2N-2002-2.first3k.swf.gz", 240)
CURIE = ("CEA-Curie-2011-2.sample30k.swf.gz", 93_312)

Machine = tuple[str, int]
Expected = tuple[float, float]
"""Mean wait in seconds, mean bounded slowdown."""


@cache
def _trace(name: str) -> Trace:
    if not (TRACES / name).exists():
        raise FileNotFoundError(f"the trace {name} is not in {TRACES}")
    return read_trace(str(TRACES / name))


def _replayed(machine: Machine, policy: str, ties: EventOrder = EventOrder.OURS) -> tuple[list[ReplayedJob], float]:
    """Replay, reading included; gives the CPU seconds, too."""
    name, processors = machine
    _trace.cache_clear()
    before = time.process_time()
    ran = Replay(_trace(name), uniform(processors), policy, ties=ties).run()
    return ran, time.process_time() - before


def _off(ran: list[ReplayedJob], processors: int, expected: Expected) -> float:
    """Give by how many per cent the worse of mean wait and slowdown differs from what is expected."""
    found = compute(ran, size=processors, submitted=len(ran), energy=Energy(0, 0))
    pairs = zip((found.mean_wait, found.bounded_slowdown), expected, strict=True)
    return max(abs(value / wanted - 1) * 100 for value, wanted in pairs)


def _as_reference(machine: Machine, policy: str, starts: str) -> float:
    """Give the per cent of jobs that wait exactly as long as in the reference simulator, by its rules for ties."""
    lines = gzip.decompress((TRACES / "starts" / starts).read_bytes()).decode().splitlines()
    waits = {int(job): float(wait) for job, _, wait, *_ in map(str.split, lines) if job.isdigit()}
    ran, _ = _replayed(machine, policy, EventOrder.REFERENCE)
    return 100 * sum(waits.get(one.job.number) == one.wait for one in ran) / len(waits)


def _checked(machine: Machine, policy: str, starts: str, expected: Expected) -> float:
    """Give the CPU seconds of a replay that comes to what it should (the least of five runs), else what was wrong."""
    ran, seconds = min((_replayed(machine, policy) for _ in range(5)), key=lambda run: run[1])
    if (off := _off(ran, machine[1], expected)) > 0.2:
        raise ValueError(f"the result is {off:.2f} % off")
    if (same := _as_reference(machine, policy, starts)) < 99.9:
        raise ValueError(f"by the reference's rules only {same:.2f} % of the jobs wait as long as there")
    return seconds


@figure("replay.kth.easy", unit="s CPU", target=3)
def kth_easy() -> float:
    """28,481 jobs on 100 processors; within 0.2 % of the reference, and job by job its own by its rules for ties."""
    return _checked(KTH, "easy", "kth_easy_backfill.txt.gz", (6836.872, 92.57654))


@figure("replay.kth.fcfs", unit="s CPU", target=3)
def kth_fcfs() -> float:
    """The same, nobody passing anybody."""
    return _checked(KTH, "fcfs", "kth_fcfs.txt.gz", (353_776.409, 6814.973))


@figure("replay.kth.conservative", unit="s CPU", target=20)
def kth_conservative() -> float:
    """The same, everybody having a date that is kept; and every first date followed."""
    return _replayed(KTH, "conservative")[1]


@figure("replay.hpc2n", unit="% off", target=0.5)
def hpc2n() -> float:
    """3,145 jobs on 240 processors: how far from the reference, for two policies, the worse one."""
    expected = {"easy": (3470.178, 16.21366), "conservative": (3434.562, 16.04302)}
    return max(_off(_replayed(HPC2N, policy)[0], HPC2N[1], wanted) for policy, wanted in expected.items())


@figure("replay.big", unit="s CPU", target=60)
def big() -> float:
    """29,998 jobs on 93,312 cores, EASY."""
    return _replayed(CURIE, "easy")[1]
