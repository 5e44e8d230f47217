"""Jobs are found again as they were written."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from msgspec.structs import replace
from sqlalchemy import event

from oarlock.lang.where import check, parse
from oarlock.model.errors import UnknownJob
from oarlock.model.job import Job, JobKind, JobState, Reservation
from oarlock.model.submission_errors import UnknownProperty
from oarlock.store.engine.database import Database
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.cluster import properties
from oarlock.store.queries.job import jobs, new_jobs, shapes
from tests.clusters import add_nodes
from tests.store.cluster import add_job, new, rows, run


@contextmanager
def counted(tx: Tx) -> Iterator[list[str]]:
    """Note the statements that are sent; rows copied into PostgreSQL are noted as nothing at all."""
    said: list[str] = []

    def note(_connection, _cursor, statement, *_):
        said.append(statement)

    event.listen(tx.engine, "before_cursor_execute", note)
    yield said
    event.remove(tx.engine, "before_cursor_execute", note)


def test_a_job_is_read_back_as_it_was_written(tx: Tx):
    written = Job(
        id=0,
        state=JobState.HOLD,
        user="zoë",
        queue="default",
        kind=JobKind.INTERACTIVE,
        name="a name",
        project="p",
        types=("besteffort", "idempotent"),
        command="echo '\t\\N \"x\"\n'; é",
        properties="ignored: the request's own condition is stored",
        directory="/home/zoë",
        environment="A=1\nB=2",
        stdout="OAR.%jobid%.stdout",
        stderr="OAR.%jobid%.stderr",
        notify="mail:zoe@example.org",
        message="m",
        info="frontend",
        initial_request="oarsub -I",
        reservation=Reservation.TO_SCHEDULE,
        submitted=5,
        start=7,
        checkpoint=60,
        checkpoint_signal=10,
        resubmit_of=3,
    )
    [added] = new_jobs.add(tx, [replace(new("/core=1,walltime=1", where="cpu > 3 and switch like 'a%'"), job=written)])
    expected = replace(written, id=added.id, array_id=added.id, properties="cpu > 3 AND switch LIKE 'a%'")
    assert added == expected
    assert jobs.get(tx, added.id) == expected


def test_many_jobs_are_read_back_in_their_order(tx: Tx):
    added = new_jobs.add(tx, [new(types=("besteffort",) * (n % 2), name=f"job {n}") for n in range(100)])
    assert jobs.get_many(tx, [job.id for job in reversed(added)]) == added


def test_a_job_that_never_was_is_refused(tx: Tx):
    job = add_job(tx)
    with pytest.raises(UnknownJob, match=f"no job {job.id + 1}"):
        jobs.get_many(tx, [job.id, job.id + 1])


@pytest.mark.manual(103, 104, 105, 106, 108)
def test_what_is_asked_for_is_stored_in_the_manuals_tables(tx: Tx):
    asked = ["{cpu > 1}/switch=2/core=ALL+{type = 'licence'}/resource_id=1,walltime=2", "/core=4,walltime=0:10"]
    job = add_job(tx, asked, types=("deploy",), after=(1, 2, 2))
    [first, second] = [row[0] for row in rows(tx, "SELECT moldable_id FROM moldable_job_descriptions ORDER BY 1")]
    assert rows(tx, "SELECT * FROM moldable_job_descriptions ORDER BY moldable_id") == [
        (first, job.id, 7200, "CURRENT"),
        (second, job.id, 600, "CURRENT"),
    ]
    assert rows(
        tx,
        "SELECT res_group_moldable_id, res_group_property, res_job_resource_type, res_job_value, res_job_order "
        "FROM job_resource_groups JOIN job_resource_descriptions ON res_job_group_id = res_group_id "
        "ORDER BY res_group_id, res_job_order",
    ) == [
        (first, "cpu > 1", "switch", 2, 0),
        (first, "cpu > 1", "core", -1, 1),
        (first, "type = 'licence'", "resource_id", 1, 0),
        (second, "", "core", 4, 0),
    ]
    assert rows(tx, "SELECT job_id, type, type_index FROM job_types") == [(job.id, "deploy", "CURRENT")]
    assert rows(tx, "SELECT * FROM job_dependencies ORDER BY 2") == [
        (job.id, 1, "CURRENT"),
        (job.id, 2, "CURRENT"),
    ]
    assert jobs.dependencies(tx, [job.id]) == {job.id: [1, 2]}
    assert jobs.state_history(tx, job.id) == [(JobState.WAITING, job.submitted, 0, "submitted")]
    assert rows(tx, "SELECT cpuset_name FROM jobs") == [(f"ada_{job.id}",)]


def test_members_of_an_array_share_its_number(tx: Tx):
    added = new_jobs.add(tx, [new(), *(new(array_index=n) for n in (1, 2, 3)), new()])
    first = added[0].id
    assert [(job.array_id, job.array_index) for job in added] == [
        (first, 1),
        (first + 1, 1),
        (first + 1, 2),
        (first + 1, 3),
        (first + 4, 1),
    ]
    assert jobs.get_many(tx, range(first + 1, first + 4)) == added[1:4]


def test_a_thousand_jobs_are_written_in_no_more_statements_than_two(tx: Tx):
    asked = {"asked": ["/core=1,walltime=1", "/core=2,walltime=1"], "types": ("deploy",), "after": (1,)}
    new_jobs.add(tx, [new(**asked)])  # the numbers of all tables are known from here on
    with counted(tx) as two:
        new_jobs.add(tx, [new(**asked) for _ in range(2)])
    with counted(tx) as thousand:
        new_jobs.add(tx, [new(**asked) for _ in range(1000)])
    assert len(thousand) <= len(two) == 7
    assert rows(tx, "SELECT count(*) FROM job_resource_descriptions") == [(2 * 1003,)]


def test_numbers_go_on_after_a_restart_and_are_never_given_twice(database: Database):
    first = database.write(add_job)
    with pytest.raises(ZeroDivisionError):
        database.write(lambda tx: add_job(tx).id / 0)
    second = database.write(add_job)
    assert second.id > first.id


def test_an_alternative_without_a_walltime_is_a_mistake_of_ours(tx: Tx):
    with pytest.raises(ValueError, match="without a walltime"):
        add_job(tx, "/core=1")


def test_jobs_are_found_by_state_and_user(tx: Tx):
    waiting, held, others = (
        add_job(tx),
        add_job(tx, state=JobState.HOLD),
        add_job(tx, user="bob"),
    )
    assert jobs.in_states(tx, [JobState.WAITING]) == [waiting, others]
    assert jobs.in_states(tx, [JobState.WAITING, JobState.HOLD], user="ada") == [waiting, held]
    assert jobs.count(tx) == {JobState.WAITING: 2, JobState.HOLD: 1}


def test_jobs_are_found_by_condition(tx: Tx):
    ids = [job.id for job in new_jobs.add(tx, [new(name="x", user=user) for user in ("ada", "bob", "ada")])]
    condition = check(parse("job_name = 'x' AND job_id > 0"), jobs.VISIBLE)
    assert jobs.matching(tx, condition) == ids
    assert jobs.matching(tx, condition, user="ada") == [ids[0], ids[2]]


@pytest.mark.parametrize("column", ["command", "job_env", "initial_request", "message", "notify"])
def test_what_is_hidden_cannot_be_asked_for(column: str):
    with pytest.raises(UnknownProperty):
        check(parse(f"{column} LIKE 's%'"), jobs.VISIBLE)


@pytest.mark.manual(111)
def test_resources_are_given_and_taken_back(tx: Tx):
    cores = add_nodes(tx, ["a", "b"])
    first, second = add_job(tx), add_job(tx)
    first = run(tx, first, cores[:3])
    second = run(tx, second, cores[3:], until=JobState.LAUNCHING)
    assert jobs.resources_of(tx, [first.id, second.id]) == {first.id: cores[:3], second.id: cores[3:]}
    jobs.unassign(tx, [second.assigned])
    assert jobs.resources_of(tx, [first.id, second.id]) == {first.id: cores[:3]}


def test_who_waits_for_a_job_can_wait_for_its_copy(tx: Tx):
    original, copy = add_job(tx), add_job(tx)
    waiting = add_job(tx, after=(original.id,))
    jobs.wait_for_copy(tx, original.id, copy.id)
    assert jobs.dependencies(tx, [waiting.id]) == {waiting.id: [copy.id]}


def test_what_a_job_asked_for_can_be_asked_again(tx: Tx):
    add_nodes(tx, ["a"])
    written = new(["{cpu > 1}/core=2+/core=ALL,walltime=1", "/core=1,walltime=2"], where="switch = 's'")
    first, second = new_jobs.add(tx, [written, new(where="cpu = 1")])
    properties_there = properties.types(tx)
    assert shapes.requests_of(tx, [first.id], properties_there) == {first.id: written.request}
    without_switch = {name: kind for name, kind in properties_there.items() if name != "switch"}
    assert list(shapes.requests_of(tx, [first.id, second.id], without_switch)) == [second.id]


def test_members_of_an_array_may_have_commands_of_their_own(tx: Tx):
    added = new_jobs.add(tx, [new(command=text, array_index=place) for place, text in enumerate("aba", 1)])
    assert [job.command for job in jobs.get_many(tx, [job.id for job in added])] == ["a", "b", "a"]


def test_interactive_jobs_that_wait_are_read_once_and_then_only_new_ones(tx: Tx):
    [first, _, second] = [
        add_job(tx, kind=kind) for kind in (JobKind.INTERACTIVE, JobKind.PASSIVE, JobKind.INTERACTIVE)
    ]
    assert jobs.interactive_since(tx, 0) == ([first.id, second.id], second.id)
    assert jobs.interactive_since(tx, first.id) == ([second.id], second.id)
    assert jobs.interactive_since(tx, second.id) == ([], second.id)
