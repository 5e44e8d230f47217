"""What the steps of a job's life read and set beside the jobs themselves."""

from oarlock.model.job import JobState, Reservation
from oarlock.model.resource import NextState, ResourceState
from oarlock.store.engine import facts
from oarlock.store.engine.opening import open_database
from oarlock.store.queries.cluster import resources
from oarlock.store.queries.job import jobs, shapes
from oarlock.store.queries.planning import snapshot
from oarlock.store.queries.site import administration
from tests.clusters import NOW, add_nodes
from tests.store.cluster import add_job, choice, run, step


def test_holders_are_the_jobs_that_have_resources_now(tx):
    a, b, c, d = add_nodes(tx, ["n1", "n2"])
    first, second = add_job(tx), add_job(tx)
    run(tx, first, [a, b])
    ended = run(tx, second, [c])
    step(tx, step(tx, ended, JobState.FINISHING), JobState.TERMINATED)
    assert jobs.holders(tx, [a, b, c, d]) == {a: [first.id], b: [first.id]}


def test_numbers_that_were_never_given_are_left_out(tx):
    job = add_job(tx)
    assert [one.id for one in jobs.existing(tx, [job.id, job.id + 1000])] == [job.id]
    assert jobs.numbers_in(tx, [JobState.WAITING]) == {job.id}
    assert jobs.numbers_in(tx, [JobState.RUNNING]) == set()


def test_resources_that_are_not_alive_or_about_to_leave_are_unusable(tx):
    a, b, c, d = add_nodes(tx, ["n1", "n2"])
    resources.set_state(tx, [b], ResourceState.SUSPECTED, at=NOW + 5)
    resources.request_state(tx, [c], NextState.ABSENT)
    assert resources.unusable(tx, [a, b, c, d, 99]) == {b, c, 99}
    assert resources.states_since(tx) == {a: NOW, b: NOW + 5, c: NOW, d: NOW}
    assert resources.sizes(tx) == {"n1": 2, "n2": 2}


def test_a_walltime_can_be_made_shorter(tx):
    job = add_job(tx)
    number = choice(tx, job)
    assert shapes.walltimes(tx, [number]) == {number: 3600}
    shapes.set_walltimes(tx, {number: 60})
    assert shapes.walltimes(tx, [number]) == {number: 60}


def test_a_shallow_snapshot_has_the_oldest_jobs_of_each_queue(tx):
    cores = add_nodes(tx, ["n1"])
    ids = [add_job(tx).id for _ in range(4)]
    other = add_job(tx, queue="besteffort").id
    run(tx, add_job(tx), cores[:1])
    read = snapshot.read(tx, karma_window=100, now=NOW, depth=2)
    assert [job.job_id for job in read.snapshot.waiting] == [ids[0], ids[1], other]
    assert (len(read.snapshot.placed), read.left) == (1, 2)
    whole = snapshot.read(tx, karma_window=100, now=NOW)
    assert ([job.job_id for job in whole.snapshot.waiting], whole.left) == ([*ids, other], 0)


def test_a_fact_is_kept_as_it_was_first_said(tx):
    assert (facts.get(tx, "colour"), facts.get_or_set(tx, "colour", "red"), facts.get_or_set(tx, "colour", "blue")) == (
        None,
        "red",
        "red",
    )


def test_reservations_are_counted_without_reading_other_jobs(sqlite_path):
    """On SQLite, whose steps can be counted; PostgreSQL chooses its indexes by statistics."""
    steps = []

    def count(tx) -> int:
        steps.clear()
        connection = tx.connection.driver_connection
        connection.set_progress_handler(lambda: steps.append(1), 1)
        assert administration.waiting_reservations(tx, "ada") == 1
        connection.set_progress_handler(None, 0)
        return len(steps)

    with open_database(sqlite_path) as database:
        database.write(lambda tx: add_job(tx, user="ada", reservation=Reservation.TO_SCHEDULE))
        few = database.write(count)
        database.write(lambda tx: [add_job(tx, user="ada") for _ in range(50)])
        assert database.write(count) == few
