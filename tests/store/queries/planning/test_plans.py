"""The plan is written with its copies, and only what changes is written."""

import pytest

from oarlock.model.plan import Placement, Plan
from oarlock.store.engine.database import Database
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.planning import plans
from oarlock.store.queries.planning.plans import Prediction
from tests.clusters import NOW
from tests.store.cluster import add_job, choice, rows
from tests.store.queries.job.test_jobs import counted


def _copies(tx: Tx) -> list[object]:
    return [
        (rows(tx, f"SELECT * FROM gantt_jobs_predictions{copy} ORDER BY 1"),
         rows(tx, f"SELECT * FROM gantt_jobs_resources{copy} ORDER BY 1, 2"))
        for copy in ("", "_visu")
    ]  # fmt: skip


@pytest.mark.manual(100, 101, 196)
def test_a_plan_is_read_back_and_its_copy_is_the_same(tx: Tx):
    assert (plans.read(tx), plans.reference(tx)) == ({}, None)
    plan = [Prediction(7, NOW + 5, (1, 2, 9)), Prediction(8, NOW, ())]
    plans.write(tx, now=NOW, placed=plan)
    assert plans.read(tx) == {7: plan[0], 8: plan[1]}
    assert plans.reference(tx) == NOW
    expected = ([(0, NOW), (7, NOW + 5), (8, NOW)], [(7, 1), (7, 2), (7, 9)])
    assert _copies(tx) == [expected, expected]


def test_a_job_is_planned_when_the_first_of_its_alternatives_is(tx: Tx):
    first, second = add_job(tx), add_job(tx)
    plans.write(tx, now=NOW, placed=[Prediction(choice(tx, first), NOW + 9, (1,))])
    assert plans.planned_starts(tx, {first.id, second.id, 99999}) == {first.id: NOW + 9}


def test_only_what_changed_is_given_and_the_rest_stays(tx: Tx):
    before = {n: Prediction(n, NOW + n, (n, n + 1)) for n in range(1, 60)}
    plans.write(tx, now=NOW, placed=list(before.values()))
    after = {**before, 3: Prediction(3, NOW, (7,)), 99: Prediction(99, NOW, (1,))}
    del after[5]
    placed, gone = plans.difference(before, after)
    assert (placed, gone) == ([after[3], after[99]], [5])
    plans.write(tx, now=NOW + 60, placed=placed, gone=gone)
    assert plans.read(tx) == after
    assert plans.reference(tx) == NOW + 60
    first, second = _copies(tx)
    assert first == second


def test_a_plan_of_thousands_takes_no_more_statements_than_one_of_two(tx: Tx):
    with counted(tx) as few:
        plans.write(tx, now=NOW, placed=[Prediction(n, NOW, (1,)) for n in (1, 2)])
    with counted(tx) as many:
        plans.write(tx, now=NOW, placed=[Prediction(n, NOW, (1, 2)) for n in range(1, 3000)])
    assert len(many) <= len(few) == 8


@pytest.mark.manual(101)
def test_nobody_ever_sees_half_a_plan(database: Database):
    database.write(lambda tx: plans.write(tx, now=1, placed=[Prediction(7, 1, (1,))]))

    def fail(tx: Tx) -> None:
        plans.write(tx, now=2, placed=[Prediction(8, 2, (2,))], gone=[7])
        with database.read() as reader:
            assert plans.read(reader) == {7: Prediction(7, 1, (1,))}
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        database.write(fail)
    with database.read() as tx:
        assert (plans.read(tx), plans.reference(tx)) == ({7: Prediction(7, 1, (1,))}, 1)


def test_what_is_stored_of_a_plan_are_its_places():
    plan = Plan(now=NOW, ids=(9, 4, 0, 7), placements={1: Placement(1, 70, NOW, NOW + 9, 0b1111)}, unplaced={})
    assert plans.predictions(plan) == {70: Prediction(70, NOW, (4, 7, 9))}
