"""What the collector costs: to log what nodes send, to make a file of a day, to read a curve of it, to send it on."""

import random
import struct
import time
from functools import cache, partial
from pathlib import Path

import msgspec

from bench.harness import cpu_seconds, figure, workspace
from oarlock.job.summaries import keep_measured
from oarlock.lang import request as requests
from oarlock.measure.batch import JobFacts
from oarlock.measure.collect.collector import Collector, LoggedSample
from oarlock.measure.collect.files import hdf5
from oarlock.measure.collect.files.hdf5 import ArchivedJob
from oarlock.measure.collect.files.places import SamplePlaces
from oarlock.measure.collect.files.rowlog import RowLog, survey_log
from oarlock.measure.collect.series import SeriesRange, read_job
from oarlock.measure.collect.sums.running_sums import RunningSums
from oarlock.measure.metrics import catalogue
from oarlock.measure.remote.remote_series import RemoteSeries
from oarlock.model.job import Job, JobState
from oarlock.model.summary import MeasuredJob
from oarlock.node.measure.wire import RawSubject, SampleEncoder, encode_sample
from oarlock.store.engine.opening import open_database
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.job import new_jobs
from oarlock.store.queries.job.new_jobs import NewJob
from oarlock.store.queries.usage import summaries

NODES, JOBS_A_NODE, SAMPLES = 50, 2, 40
_HOSTS, _PERIOD, _DAY = 4, 10, 86_400
_JOB = 7
_RUNNING, _HOUR = 4000, 3600

decoded = msgspec.msgpack.Decoder(dict[int, MeasuredJob]).decode


@figure("collect.values", unit="values/s", target=1_000_000, better="higher")
def values() -> float:
    """Decode, check and log the samples of 50 nodes with two jobs each."""
    names = _names("job")
    nodes = _names("node")
    encoders = [SampleEncoder(f"{node:032x}") for node in range(1, NODES + 1)]
    frames = []
    for turn in range(SAMPLES):
        for node, encoder in enumerate(encoders):
            numbers = range(node * JOBS_A_NODE + 1, (node + 1) * JOBS_A_NODE + 1)
            # What a job holds stays: a change of it is noted, which real jobs do once.
            sample = {name: float(turn * 1000 + place) for place, name in enumerate(names)} | {"cpus": 1.0}
            whole = {name: float(turn + place) for place, name in enumerate(nodes)}
            data = encoder.encode(float(turn), whole, dict.fromkeys(numbers, sample))
            frames.append((f"n{node}", data, set(numbers), float(turn)))
    with workspace() as folder:
        collector = Collector(folder / "samples")
        collector.start()
        begin = time.process_time()
        for name, data, jobs, at in frames:
            collector.take(name, data, jobs, at=at)
        seconds = time.process_time() - begin
        collector.close()
        if collector.counts["rows"] != SAMPLES * NODES * (JOBS_A_NODE + 1):
            raise RuntimeError("not every row was logged")
        return collector.counts["values"] / seconds


@figure("archive.write", unit="values/s", target=5_000_000, better="higher")
def archive_write() -> float:
    """Read the log of a job that ran for a day on four nodes, and make its file."""
    with workspace() as folder:
        places = _day(folder)
        log, about = places.log(_JOB), ArchivedJob(_JOB)
        count = survey_log(log).rows * len(_names("job"))
        return count / cpu_seconds(
            lambda: hdf5.write_job(places.archived(_JOB), places.temporary, about, survey_log(log))
        )


@figure("series.day", unit="ms of CPU", target=100)
def series_day() -> float:
    """Read one plot of that job while it runs and when it is over; the dearer of both."""
    wanted = SeriesRange(["cpu_seconds_total"])
    with workspace() as folder:
        places = _day(folder)
        log, sums = places.log(_JOB), RunningSums(places, 3 * _PERIOD)
        sums.restore([_JOB])
        live = cpu_seconds(lambda: read_job(places, _JOB, wanted, live=[log], read_copy=partial(sums.curves, _JOB)))
        hdf5.write_job(places.archived(_JOB), places.temporary, ArchivedJob(_JOB), survey_log(log))
        log.unlink()
        over = cpu_seconds(lambda: read_job(places, _JOB, wanted))
        return max(live, over) * 1000


@figure("summary.flush", unit="s of CPU", target=0.5)
def summary_flush() -> float:
    """Write the summaries of 4,000 jobs that run, and the sums of their days, a second time, in one transaction."""
    with workspace() as folder, open_database(folder / "oarlock.db", create=True) as database:
        numbers = database.write(_running_jobs)
        collector = Collector(folder / "samples")
        collector.start()
        rounds = [_flushed(collector, numbers, at=_HOUR * turn) for turn in (1, 2)]
        collector.close()
        for turn, measured in enumerate(rounds, 1):
            begin = time.process_time()
            database.write(partial(_store_summaries, measured=measured, now=_HOUR * turn))
            seconds = time.process_time() - begin
        with database.read() as tx:
            [sums] = summaries.usage_by(tx, [], since=0, until=2**40, most=1)
        if sums.usage.jobs != _RUNNING:
            raise RuntimeError(f"{sums.usage.jobs} jobs were booked")
        return seconds


def _store_summaries(tx: Tx, *, measured: bytes, now: int) -> None:
    keep_measured(tx, decoded(measured), now=now)


def _running_jobs(tx: Tx) -> list[int]:
    asked = requests.parse(["/network_address=1/core=1,walltime=1"])
    new = [
        NewJob(Job(id=0, state=JobState.RUNNING, user=f"user{n % 50}", queue="default", submitted=1, start=1), asked)
        for n in range(_RUNNING)
    ]
    return [job.id for job in new_jobs.add(tx, new)]


def _flushed(collector: Collector, numbers: list[int], at: int) -> bytes:
    """Feed two samples of every job, and return what the collector would hand over."""
    names = _names("job")
    for second in (at - _PERIOD, at):
        sample = {name: float(second + place) for place, name in enumerate(names)}
        for first in range(0, len(numbers), JOBS_A_NODE):
            jobs = numbers[first : first + JOBS_A_NODE]
            data = encode_sample(float(second), {}, dict.fromkeys(jobs, sample))
            collector.take(f"n{first}", data, dict.fromkeys(jobs, 1), at=float(second))
    return msgspec.msgpack.encode(collector.sums.hand_over())


def _day(folder: Path) -> SamplePlaces:
    """Log a day of a job on four nodes: counters that grow unevenly, gauges that wander."""
    places = SamplePlaces(folder / "samples")
    places.prepare()
    log, names, dice = RowLog(places.log(_JOB)), _names("job"), random.Random(1)
    rows = [[dice.random() * 1e6 // 1 for _ in names] for _ in range(_HOSTS)]
    for at in range(0, _DAY, _PERIOD):
        for host, row in enumerate(rows):
            for place in range(0, len(row), 3):
                row[place] += dice.randrange(1000)
            log.row(at * 1000, f"n{host}", names, struct.pack(f"<{len(names)}d", *row))
        log.write()
    log.close()
    return places


@cache
def _names(scope: str) -> tuple[str, ...]:
    sources = ("cpu", "memory", "blockio", "pids", "processes", "machine", "network")
    return tuple(metric.name for metric in catalogue().values() if metric.scope == scope and metric.source in sources)


@figure("remote.values", unit="values/s", target=500_000, better="higher")
def remote_values() -> float:
    """Encode and compress the samples of 50 nodes with two jobs each for remote write."""
    import cramjam

    facts = {job: JobFacts("ada", "physics", "run") for job in range(1, NODES * JOBS_A_NODE + 1)}
    series = RemoteSeries("cluster")

    def encode(turn: int) -> int:
        samples = [_logged(node, turn) for node in range(NODES)]
        parts = [part for sample in samples for part in series.encode(sample, facts)]
        cramjam.snappy.compress_raw(b"".join(parts))
        return sum(sample.values for sample in samples)

    values = encode(0)  # labels are encoded with the first sample of a job
    return values / cpu_seconds(lambda: encode(1))


def _logged(node: int, turn: int) -> LoggedSample:
    jobs = range(node * JOBS_A_NODE + 1, (node + 1) * JOBS_A_NODE + 1)
    subjects = {0: _names("node"), **dict.fromkeys(jobs, _names("job"))}
    packed = {
        job: struct.pack(f"<{len(names)}d", *(turn * 1e6 + place for place in range(len(names))))
        for job, names in subjects.items()
    }
    raw = [RawSubject(job, names, packed[job]) for job, names in subjects.items()]
    return LoggedSample(f"node{node}", 1_790_000_000_000 + turn * 10_000, raw)
