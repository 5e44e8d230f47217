"""A plan that was made from an older state becomes true only as far as it still fits."""

import pytest

from oarlock.config import Config
from oarlock.job.run import schedule
from oarlock.job.run.schedule import Decision
from oarlock.job.run.unit_of_work import StepContext
from oarlock.lang import request as requests
from oarlock.model.job import Job, JobState, Moved, Reservation, move
from oarlock.store.engine.tx import Tx
from oarlock.store.queries import jobs, plans, properties, resources
from oarlock.store.queries.plans import Prediction

NOW = 1_000_000
CONFIG = Config(scheduler_job_security_time=0)
HOW = schedule.plan_settings(CONFIG)
SITE = StepContext(CONFIG, b"key")


@pytest.fixture
def tx(tx: Tx) -> Tx:
    properties.add(tx, "core", int)
    resources.add(tx, [{"network_address": f"n{n}", "core": n} for n in range(2)], at=NOW)
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
    return jobs.add(tx, [jobs.NewJob(job, requests.parse([f"/core={cores},walltime=0:1:40"]))])[0].id


def decided(tx: Tx) -> Decision:
    return schedule.decide(schedule.read(tx, HOW, karma_window=CONFIG.karma_window, now=NOW), HOW, now=NOW)


def apply(tx: Tx, decision: Decision) -> None:
    schedule.apply(tx, SITE, decision, {}, now=NOW)


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
    jobs.record(tx, [moved(tx, first, JobState.HOLD)])  # the next pass does not see it
    second = reserve(tx, NOW + 500, cores=2)
    apply(tx, decided(tx))
    jobs.record(tx, [moved(tx, first, JobState.WAITING)])
    apply(tx, older)
    assert (place(tx, first), place(tx, second) is not None) == (None, True)
    apply(tx, decided(tx))
    assert "the date is taken" in jobs.get(tx, first).message
