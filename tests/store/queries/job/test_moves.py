"""Jobs move together or not at all, and their history says when and why."""

from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from oarlock.model.errors import IllegalMove, UnknownJob
from oarlock.model.job import FINAL, HOLDS_RESOURCES, MOVES, Job, JobState, Moved, move
from oarlock.store.engine.database import Database
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.cluster import resources
from oarlock.store.queries.job import jobs, moves, new_jobs
from tests.clusters import NOW, add_nodes
from tests.store.cluster import add_job, choice, new, rows, run, step
from tests.store.queries.job.test_jobs import counted

S = JobState


def _moves(moved: Sequence[Job], state: JobState, *, at: int = NOW) -> list[Moved]:
    return [move(job, state, at=at, why="test") for job in moved]


@pytest.mark.manual(107)
def test_a_move_is_written_with_its_line_of_history(tx: Tx):
    job = add_job(tx)
    moves.record(tx, [move(job, S.HOLD, at=NOW + 5, why="held by ada")])
    assert jobs.get(tx, job.id) == replace(job, state=S.HOLD)
    assert jobs.state_history(tx, job.id) == [
        (S.WAITING, NOW, NOW + 5, "submitted"),
        (S.HOLD, NOW + 5, 0, "held by ada"),
    ]


def test_what_changes_with_the_state_is_written_with_it(tx: Tx):
    job = add_job(tx)
    changed = replace(job, start=7, assigned=choice(tx, job), message="FIFO", exit_code=256)
    moves.record(tx, [move(changed, S.TO_LAUNCH, at=NOW, why="its turn")])
    assert jobs.get(tx, job.id) == replace(changed, state=S.TO_LAUNCH)


def test_two_people_cannot_both_move_the_same_job(tx: Tx):
    job = add_job(tx)
    step(tx, job, S.HOLD)
    with pytest.raises(IllegalMove, match=f"Job {job.id} is no longer Waiting: it is Hold"):
        step(tx, job, S.HOLD)


def test_one_job_that_is_elsewhere_stops_them_all(tx: Tx):
    first, second, third = new_jobs.add(tx, [new() for _ in range(3)])
    step(tx, second, S.HOLD)
    before = rows(tx, "SELECT * FROM jobs"), rows(tx, "SELECT * FROM job_state_logs")
    with pytest.raises(IllegalMove, match=f"Job {second.id} is no longer Waiting"):
        moves.record(tx, _moves([first, second, third], S.TO_LAUNCH))
    assert (rows(tx, "SELECT * FROM jobs"), rows(tx, "SELECT * FROM job_state_logs")) == before


def test_a_job_that_never_was_cannot_move(tx: Tx):
    job = add_job(tx)
    with pytest.raises(UnknownJob):
        moves.record(tx, _moves([job, replace(job, id=job.id + 1)], S.HOLD))
    assert jobs.get(tx, job.id).state is S.WAITING


def test_a_job_may_move_several_times_at_once(tx: Tx):
    first, second = new_jobs.add(tx, [new(), new()])
    chain = [move(first, S.HOLD, at=NOW + 1, why="a")]
    chain.append(move(chain[-1].job, S.WAITING, at=NOW + 2, why="b"))
    chain.append(move(chain[-1].job, S.TO_LAUNCH, at=NOW + 3, why="c"))
    moves.record(tx, [*chain[:1], *_moves([second], S.HOLD), *chain[1:]])
    assert [(state, why) for state, _, _, why in jobs.state_history(tx, first.id)] == [
        (S.WAITING, "submitted"),
        (S.HOLD, "a"),
        (S.WAITING, "b"),
        (S.TO_LAUNCH, "c"),
    ]
    assert jobs.get(tx, second.id).state is S.HOLD


def test_moves_at_once_leave_what_the_same_moves_leave_one_by_one(tx: Tx):
    cores = add_nodes(tx, ["a", "b"])
    # The clock was set back in between.
    way = [(S.SUSPENDED, 20), (S.RESUMING, 10), (S.RUNNING, 30), (S.FINISHING, 30), (S.TERMINATED, 40)]
    one, other = (run(tx, add_job(tx), cores[place : place + 1]) for place in range(2))
    chain: list[Moved] = []
    for state, seconds in way:
        chain.append(move(chain[-1].job if chain else one, state, at=NOW + seconds, why="test"))
        step(tx, jobs.get(tx, other.id), state, at=NOW + seconds)
    moves.record(tx, chain)
    stories = [[line[:3] for line in jobs.state_history(tx, job.id)] for job in (one, other)]
    ends = [rows(tx, f"SELECT state, stop_time, suspended FROM jobs WHERE job_id = {job.id}") for job in (one, other)]
    assert stories[0] == stories[1]
    assert ends == [[("Terminated", NOW + 40, "YES")]] * 2
    assert rows(tx, "SELECT DISTINCT suspended_jobs, last_job_date FROM resources WHERE last_job_date > 0") == [
        ("NO", NOW + 40)
    ]


def test_a_chain_with_a_hole_in_it_is_not_begun(tx: Tx):
    job = add_job(tx)
    first = move(job, S.HOLD, at=NOW, why="a")
    with pytest.raises(IllegalMove, match="no longer toLaunch: it is Hold"):
        moves.record(tx, [first, move(replace(job, state=S.TO_LAUNCH), S.LAUNCHING, at=NOW, why="b")])
    assert jobs.get(tx, job.id).state is S.WAITING


@pytest.mark.parametrize(("before", "after", "most"), [(S.WAITING, S.HOLD, 4), (S.WAITING, S.ERROR, 11)])
def test_moving_thousands_takes_no_more_statements_than_moving_two(tx: Tx, before: S, after: S, most: int):
    two, many = (
        new_jobs.add(tx, [new(types=("deploy",)) for _ in range(2)]),
        new_jobs.add(tx, [new() for _ in range(2000)]),
    )
    with counted(tx) as few:
        moves.record(tx, _moves(two, after))
    with counted(tx) as said:
        moves.record(tx, _moves(many, after))
    assert len(said) <= len(few) == most
    assert jobs.count(tx) == {after: 2002}


def test_postgresql_finds_the_rows_of_ended_jobs_by_an_index(tx: Tx):
    """With the statistics of a table that was empty a moment ago it joins row by row, which takes minutes."""
    with counted(tx) as said:
        moves.record(tx, _moves(new_jobs.add(tx, [new()]), S.ERROR))
    guessed = [statement for statement in said if "UPDATE" in statement and "IN (SELECT" in statement]
    assert bool(guessed) == (tx.dialect.name == "sqlite")


@pytest.mark.manual(115)
def test_an_ended_job_releases_what_it_had(tx: Tx):
    cores = add_nodes(tx, ["a", "b"])
    other = run(tx, add_job(tx), cores[3:])
    job = run(tx, add_job(tx, types=("deploy",), after=(other.id,)), cores[:2], at=NOW + 10)
    job = step(tx, job, S.FINISHING, at=NOW + 50)
    step(tx, replace(job, stop=NOW + 49, exit_code=0), S.TERMINATED, at=NOW + 60)
    assert (jobs.get(tx, job.id).stop, jobs.get(tx, job.id).exit_code) == (NOW + 49, 0)
    for table, column in (
        ("job_types", "type_index"),
        ("job_dependencies", "job_dependency_index"),
    ):
        assert rows(tx, f"SELECT DISTINCT {column} FROM {table}") == [("LOG",)]
    for table, column in (
        ("moldable_job_descriptions", "moldable_index"),
        ("job_resource_groups", "res_group_index"),
        ("job_resource_descriptions", "res_job_index"),
    ):
        assert sorted(rows(tx, f"SELECT {column} FROM {table}"))[0] == ("CURRENT",)  # the other's
        assert sorted(rows(tx, f"SELECT {column} FROM {table}"))[-1] == ("LOG",)
    assert rows(tx, "SELECT resource_id, assigned_resource_index FROM assigned_resources ORDER BY 1") == [
        (cores[0], "LOG"),
        (cores[1], "LOG"),
        (cores[3], "CURRENT"),
    ]
    dates = [one.properties["last_job_date"] for one in resources.listed(tx)]
    assert dates == [NOW + 49, NOW + 49, 0, 0]
    assert jobs.resources_of(tx, [job.id]) == {job.id: cores[:2]}


def test_a_job_that_never_ran_ends_when_it_is_ended(tx: Tx):
    job = add_job(tx)
    step(tx, job, S.ERROR, at=NOW + 3)
    assert jobs.get(tx, job.id).stop == NOW + 3


def test_a_job_never_stops_before_it_starts(tx: Tx):
    job = add_job(tx, start=NOW + 1000)  # a reservation for later
    step(tx, job, S.ERROR, at=NOW + 3)
    assert jobs.get(tx, job.id).stop == NOW + 1000


@pytest.mark.manual(153)
def test_resources_know_whether_a_suspended_job_is_on_them(tx: Tx):
    cores = add_nodes(tx, ["a", "b"])
    job = step(tx, run(tx, add_job(tx), cores[:2]), S.SUSPENDED, at=NOW + 5)
    other = step(tx, run(tx, add_job(tx), cores[1:3]), S.SUSPENDED, at=NOW + 6)

    def marked() -> list[str]:
        return [str(one.properties["suspended_jobs"]) for one in resources.listed(tx)]

    assert marked() == ["YES", "YES", "YES", "NO"]
    assert jobs.get(tx, job.id).suspended
    job = step(tx, replace(job, suspended=True), S.RESUMING, at=NOW + 7)
    assert marked() == ["YES", "YES", "YES", "NO"]
    step(tx, job, S.RUNNING, at=NOW + 8)
    assert marked() == ["NO", "YES", "YES", "NO"]
    assert jobs.get(tx, job.id).suspended
    step(tx, other, S.FINISHING, at=NOW + 9)
    assert marked() == ["NO", "NO", "NO", "NO"]


def test_a_clock_set_back_does_not_turn_intervals_round(tx: Tx):
    job = add_job(tx)
    job = step(tx, job, S.HOLD, at=NOW + 50)
    job = step(tx, job, S.WAITING, at=NOW + 20)
    assert [line[1:3] for line in jobs.state_history(tx, job.id)] == [
        (NOW, NOW + 50),
        (NOW + 50, NOW + 50),
        (NOW + 50, 0),
    ]


walks = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 11), st.integers(0, 30)), max_size=25)


@pytest.mark.manual(107)
@given(walks)
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_history_is_without_gaps_and_its_last_line_is_the_present(database: Database, walk):
    """Whatever jobs do, in whatever order and however the clock goes."""

    def story(tx: Tx) -> None:
        here = {job.id: job for job in new_jobs.add(tx, [new() for _ in range(4)])}
        numbers = list(here)
        moved = []
        for which, where, at in walk:
            job = here[numbers[which]]
            if ways := sorted(MOVES[job.state]):
                moved.append(move(job, ways[where % len(ways)], at=NOW + at, why="walk"))
                here[job.id] = moved[-1].job
        moves.record(tx, moved)
        for number, job in here.items():
            lines = jobs.state_history(tx, number)
            assert [state for state, *_ in lines][1:] == [m.job.state for m in moved if m.job.id == number]
            assert all(start <= stop for _, start, stop, _ in lines[:-1])
            assert [stop for _, _, stop, _ in lines] == [start for _, start, *_ in lines[1:]] + [0]
            found = jobs.get(tx, number)
            assert found.state is job.state is lines[-1][0]
            assert (found.stop > 0) == (found.state in FINAL)

    database.write(story)


def test_states_between_waiting_and_the_end_hold_resources():
    """`record` marks resources by these sets; a new state has to be put into one of them."""
    assert set(S) - FINAL - HOLDS_RESOURCES == {S.WAITING, S.HOLD, S.TO_ERROR, S.TO_ACK_RESERVATION}
