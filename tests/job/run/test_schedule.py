"""A plan that was made from an older state becomes true only as far as it still fits."""

import pytest

from oarlock.config import Config
from oarlock.job.run.starting import schedule
from oarlock.job.run.starting.apply import apply_decision
from oarlock.job.run.starting.schedule import Decision
from oarlock.job.run.unit_of_work import StepContext
from oarlock.lang import request as requests
from oarlock.model.job import Job, JobState, Moved, Reservation, move
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.job import jobs, moves, new_jobs
from oarlock.store.queries.planning import plans, predictions
from oarlock.store.queries.planning.plans import Prediction
from oarlock.store.queries.planning.predictions import PredictedStart, PredictionError
from tests.clusters import NOW, add_nodes

CONFIG = Config(scheduler_job_security_time=0)
HOW = schedule.plan_settings(CONFIG)
SITE = StepContext(CONFIG, b"key")


@pytest.fixture
def tx(tx: Tx) -> Tx:
    add_nodes(tx, ["n0", "n1"], cores=1)
    return tx


def reserve(tx: Tx, start: int, cores: int = 1) -> int:
    """Ask for a date; 100 seconds."""
    job = Job(
        id=0,
        state=JobState.WAITING,
        user="ada",
        queue="default",
        submitted=NOW,
        command="true",
        reservation=Reservation.TO_SCHEDULE,
        start=start,
    )
    return new_jobs.add(tx, [new_jobs.NewJob(job, requests.parse([f"/core={cores},walltime=0:1:40"]))])[0].id


def decided(tx: Tx) -> Decision:
    return schedule.decide(schedule.read(tx, HOW, karma_window=CONFIG.karma_window, now=NOW), HOW, now=NOW)


def apply(tx: Tx, decision: Decision) -> None:
    apply_decision(tx, SITE, decision, {}, now=NOW)


def moved(tx: Tx, number: int, state: JobState) -> Moved:
    return move(jobs.get(tx, number), state, at=NOW, why="test")


def place(tx: Tx, job: int) -> Prediction | None:
    """Give what an accepted reservation has."""
    number = plans.reserved(tx).get(job)
    return None if number is None else plans.read(tx)[number]


def test_a_reservation_that_an_older_plan_did_not_know_keeps_its_place(tx: Tx):
    first = reserve(tx, NOW + 500)
    older = decided(tx)
    second = reserve(tx, NOW + 500)
    apply(tx, decided(tx))
    before = place(tx, first), place(tx, second)
    assert None not in before
    apply(tx, older)
    assert (place(tx, first), place(tx, second)) == before
    assert [jobs.get(tx, one).reservation for one in (first, second)] == [Reservation.SCHEDULED] * 2


def test_a_reservation_is_accepted_once(tx: Tx):
    job = reserve(tx, NOW + 500)
    older = decided(tx)
    apply(tx, older)
    apply(tx, older)
    assert [state for state, *_ in jobs.state_history(tx, job)] == ["Waiting", "toAckReservation", "Waiting"]


def test_a_place_that_an_older_plan_would_give_away_again_is_not_given(tx: Tx):
    first = reserve(tx, NOW + 500)
    older = decided(tx)
    moves.record(tx, [moved(tx, first, JobState.HOLD)])  # the next pass does not see it
    second = reserve(tx, NOW + 500, cores=2)
    apply(tx, decided(tx))
    moves.record(tx, [moved(tx, first, JobState.WAITING)])
    apply(tx, older)
    assert (place(tx, first), place(tx, second) is not None) == (None, True)
    apply(tx, decided(tx))
    assert "the date is taken" in jobs.get(tx, first).message


def submit_array(tx: Tx, user: str, asked: str, size: int) -> list[int]:
    """Let the members of an array wait."""
    waiting = {"id": 0, "state": JobState.WAITING, "queue": "default", "submitted": NOW, "command": "true"}
    request = requests.parse([asked])
    members = [new_jobs.NewJob(Job(user=user, array_index=n, **waiting), request) for n in range(1, size + 1)]
    return [job.id for job in new_jobs.add(tx, members)]


def started_by_quick_pass(tx: Tx) -> list[int]:
    seen = schedule.read(tx, HOW, karma_window=CONFIG.karma_window, now=NOW, depth=64, arrays=True)
    assert len(seen.snapshot.waiting) <= 70
    return [start.job_id for start in schedule.decide(seen, HOW, now=NOW).starts]


def test_a_quick_pass_starts_who_fits_behind_2000_members_of_an_array(tx: Tx):
    [first] = submit_array(tx, "ada", "{core = 0}/core=1,walltime=1:0:0", 1)
    assert started_by_quick_pass(tx) == [first]
    submit_array(tx, "ada", "{core = 0}/core=1,walltime=0:1:0", 2000)
    [other] = submit_array(tx, "bob", "/core=1,walltime=9:0:0", 1)
    assert started_by_quick_pass(tx) == [first, other]


def test_a_quick_pass_starts_nobody_who_would_delay_unread_members(tx: Tx):
    [first] = submit_array(tx, "ada", "{core = 0}/core=1,walltime=1:0:0", 1)
    submit_array(tx, "ada", "/core=2,walltime=0:1:0", 2000)
    submit_array(tx, "bob", "/core=1,walltime=2:0:0", 1)
    [short] = submit_array(tx, "bob", "/core=1,walltime=0:30:0", 1)
    assert started_by_quick_pass(tx) == [first, short]


def test_very_many_dates_are_written_in_slices_and_answers_come_first(tx: Tx):
    asking = reserve(tx, NOW + 50)
    waits = Job(id=0, state=JobState.WAITING, user="ada", queue="default", submitted=NOW, command="true")
    request = requests.parse(["/core=1,walltime=0:1:40"])
    new_jobs.add(tx, [new_jobs.NewJob(waits, request) for _ in range(10_050)])
    decision = schedule.only_changes(decided(tx), plans.read(tx))
    first, second = schedule.slices(decision)
    assert (first.starts, first.accept, first.predictions[0].job_id) == (decision.starts, decision.accept, asking)
    assert (len(first.predictions), second.starts, second.accept) == (10_000, (), ())
    for part in (first, second):
        apply(tx, part)
    stored = plans.read(tx)
    assert {number: (planned.start, planned.resources) for number, planned in stored.items()} == {
        planned.moldable_id: (planned.start, planned.resources) for planned in decision.predictions
    }
    assert schedule.slices(second) == [second]


def predicted(tx: Tx, *numbers: int) -> list[PredictedStart | None]:
    return [predictions.first_of(tx, number) for number in numbers]


def test_the_first_predicted_start_of_a_job_is_kept(tx: Tx):
    """Nothing is kept of jobs that start at once and of reservations."""
    first, second, third = submit_array(tx, "ada", "/core=2,walltime=0:10", 3)
    dated = reserve(tx, NOW + 90_000)
    apply(tx, decided(tx))
    kept = [None, PredictedStart(second, NOW, NOW + 600), PredictedStart(third, NOW, NOW + 1200), None]
    assert predicted(tx, first, second, third, dated) == kept
    moves.record(tx, [moved(tx, second, JobState.HOLD)])
    sooner = decided(tx)
    apply(tx, sooner)
    [alternative] = [planned.moldable_id for planned in sooner.predictions if planned.job_id == third]
    assert plans.read(tx)[alternative].start == NOW + 600
    assert predicted(tx, first, second, third, dated) == kept


def test_predictions_are_compared_with_the_starts_that_followed(tx: Tx):
    _, second, third = submit_array(tx, "ada", "/core=2,walltime=0:10", 3)
    apply(tx, decided(tx))
    assert predictions.errors(tx) == []
    for number, start in ((second, NOW + 540), (third, NOW + 1500)):
        tx.exec_driver_sql(f"UPDATE jobs SET start_time = {start}, stop_time = {start + 9} WHERE job_id = {number}")
    assert sorted(predictions.errors(tx)) == [PredictionError(600, -60), PredictionError(1200, 300)]
