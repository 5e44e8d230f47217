"""Jobs that ran and were measured, for tests of what is said about them."""

from oarlock.job import summaries
from oarlock.model.job import JobState
from oarlock.model.summary import DayUsage, GpuMeasured, MeasuredJob, NodeMeasured
from oarlock.store.engine.tx import Tx
from tests.store.cluster import add_job, run, step
from tests.web.nodeless_server import NOW

HOUR, DAY = 3600, 86_400


def ran(
    tx: Tx, cores: list[int], user: str, *, busy: float, ago: int = HOUR, project: str = "physics", **fields
) -> int:
    """Add a job that ran an hour on two cores, used a part of them and ended well so many seconds ago."""
    begin = NOW - ago - HOUR
    job = run(tx, add_job(tx, user=user, project=project, submitted=begin, **fields), cores, at=begin)
    for state in (JobState.FINISHING, JobState.TERMINATED):
        job = step(tx, job, state, at=begin + HOUR)
    used = busy * 2 * HOUR
    node = NodeMeasured(
        since=begin, until=begin + HOUR, samples=360, seconds=HOUR, cores=2.0, node_cores=4, cpu_seconds=used
    )
    day = begin // DAY * DAY
    measured = MeasuredJob(nodes={"1": {"n1": node}}, days={day: DayUsage(core_busy_seconds=used)})
    summaries.keep_measured(tx, {job.id: measured}, now=NOW)
    return job.id


def runs_on_gpu(tx: Tx, cores: list[int], user: str, *, begin: int, idle: float, worked: bool, **fields) -> int:
    """Add a job that runs since then with a GPU, which is idle for so many seconds, after work or from the start."""
    job = run(tx, add_job(tx, user=user, submitted=begin, **fields), cores, at=begin)
    measure_gpu(tx, job.id, begin=begin, idle=idle, worked=worked)
    return job.id


def measure_gpu(tx: Tx, job: int, *, begin: int, idle: float, worked: bool) -> None:
    """Store what samples say of the GPU of a job so far."""
    gpu = GpuMeasured(
        seconds=idle + 1000 * worked,
        busy_mean_ratio=0.2 if worked else 0.0,
        busy_most_ratio=0.9 if worked else 0.0,
        idle_after_work_seconds=idle if worked else 0.0,
        idle_now_seconds=idle,
    )
    node = NodeMeasured(since=begin, until=begin + idle, samples=360, seconds=idle, cores=2.0, gpus={"0": gpu})
    summaries.keep_measured(tx, {job: MeasuredJob(nodes={"1": {"n1": node}})}, now=begin + int(idle))
