"""What was measured of the made-up cluster's past: summaries, sums of days, the energy of nodes."""

from collections.abc import Sequence

from oarlock.job import summaries
from oarlock.model.job import Job
from oarlock.model.summary import DayUsage, MeasuredJob, NodeMeasured
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.job import scripts
from oarlock.store.queries.usage import energy
from oarlock.store.queries.usage.energy import BookedDay, MeteredDay

DAY = 86_400
CORES = 8
EXECUTABLES = ("solver", "gmx_mpi", "vasp_std", "<b>x</b>")
SCRIPT = """#!/bin/bash
#OAR -l /nodes=1/core=8,walltime=2
module purge
module load gcc/12 openmpi/4.1
export WANDB_API_KEY=hunter2
cd "$HOME/cases" && sleep 2
./run.sh --input <mesh>
"""


def measure_past(tx: Tx, over: Sequence[Job], *, now: int) -> None:
    """Summarise jobs that are over: every third of them left most of its cores idle."""
    spans = {job.id: _span(tx, job) for job in over}
    by_day: dict[int, dict[int, int]] = {}
    for job, (begin, ran) in spans.items():
        by_day.setdefault(begin // DAY * DAY, {})[job] = ran * 120_000
    scripts.keep_submitted(tx, [(job.id, SCRIPT) for job in over[1::2]], now=now)
    energy.book(tx, [_booked(day, amounts, spans) for day, amounts in by_day.items()])
    summaries.keep_measured(tx, {job.id: _measured(job, *spans[job.id]) for job in over}, now=now)


def _span(tx: Tx, job: Job) -> tuple[int, int]:
    query = f"SELECT start_time, stop_time - start_time FROM jobs WHERE job_id = {job.id}"
    return tuple(tx.exec_driver_sql(query).one())


def _booked(day: int, amounts: dict[int, int], spans: dict[int, tuple[int, int]]) -> BookedDay:
    idle, rest = 8_000_000_00, 1_000_000_00
    meter = MeteredDay("node-20", day, "controller", sum(amounts.values()) + idle + rest, idle, rest, 80_000.0, 1)
    return BookedDay(meter, amounts, {job: float(spans[job][1]) for job in amounts})


def _measured(job: Job, begin: int, ran: int) -> MeasuredJob:
    busy = CORES * ran * (0.2 if job.id % 3 == 0 else 0.93)
    node = NodeMeasured(
        since=float(begin), until=float(begin + ran), samples=ran // 10, seconds=float(ran), cores=float(CORES),
        node_cores=32, cpu_seconds=busy, memory_asked_bytes=32e9, memory_own_most_bytes=12e9,
        memory_own_mean_bytes=9e9, read_bytes=3e9, written_bytes=5e8,
        executable_cpu_seconds={EXECUTABLES[job.id % len(EXECUTABLES)]: 0.8 * busy, "python3.11": 0.2 * busy},
    )  # fmt: skip
    used = DayUsage(
        core_busy_seconds=busy, memory_asked_byte_seconds=32e9 * ran, memory_used_byte_seconds=9e9 * ran
    )  # fmt: skip
    return MeasuredJob(nodes={"1": {"node-20": node}}, days={begin // DAY * DAY: used})
