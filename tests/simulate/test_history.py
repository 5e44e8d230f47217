"""The past of a server, replayed."""

from msgspec.structs import replace

from oarlock.lang import request
from oarlock.model.job import JobState
from oarlock.model.snapshot import Shape
from oarlock.simulate.compare import Comparison
from oarlock.simulate.platform import parse
from oarlock.simulate.trace import flat, read_trace
from oarlock.store.engine.database import Database
from oarlock.store.engine.tx import Tx
from tests.clusters import NOW, add_nodes
from tests.store.cluster import add_job, run, step

HOUR = 3600


def _live(tx: Tx) -> None:
    """Let two jobs run on two nodes, one of them for long; a third one still runs, a fourth waits."""
    cores = add_nodes(tx, ["a", "b"])
    first = add_job(tx, "/network_address=1/core=2,walltime=1", user="ada", submitted=NOW)
    second = add_job(tx, "/network_address=2,walltime=2", user="bob", submitted=NOW + 10)
    third, _ = add_job(tx, submitted=NOW + 20), add_job(tx, submitted=NOW + 30)
    for job, on, start, stop in ((first, cores[:2], NOW + 5, NOW + 605), (second, cores, NOW + 700, NOW + 1000)):
        running = run(tx, job, on, at=start)
        finishing = step(tx, running, JobState.FINISHING, at=stop)
        step(tx, replace(finishing, stop=stop), JobState.TERMINATED, at=stop)
    run(tx, third, cores[:1])


def _shape(text: str) -> Shape:
    asked = request.parse([text])
    return Shape(asked.alternatives[0].groups, asked.where)


def test_jobs_that_ran_come_with_their_request_and_their_wait(database: Database, place: str):
    database.write(_live)
    trace = read_trace(place)
    assert [(job.user, job.submitted, job.waited, job.run, job.walltime, job.processors) for job in trace.jobs] == [
        ("ada", NOW, 5, 600, HOUR, 2),
        ("bob", NOW + 10, 690, 300, 2 * HOUR, 4),
    ]
    assert [job.shape for job in trace.jobs] == [_shape("/network_address=1/core=2"), _shape("/network_address=2")]
    [result] = Comparison(parse(None, trace)).of(trace, ["conservative"])
    assert [one.start - NOW for one in result.ran] == [0, 600]
    assert [one.start - NOW for one in Comparison(parse("6", trace)).of(trace, ["easy"])[0].ran] == [0, 10]


def test_only_the_jobs_of_a_stretch_of_time_are_read(database: Database, place: str):
    database.write(_live)
    assert [job.user for job in read_trace(place, since=NOW + 1).jobs] == ["bob"]
    assert [job.user for job in read_trace(place, until=NOW + 10).jobs] == ["ada"]


def test_a_request_that_can_no_longer_be_read_counts_as_what_the_job_held(database: Database, place: str):
    database.write(_live)
    database.write(lambda tx: tx.exec_driver_sql("UPDATE jobs SET properties = 'colour = 1' WHERE job_user = 'ada'"))
    assert read_trace(place).jobs[0].shape == flat(2)
