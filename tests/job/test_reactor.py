"""The reactor by itself: what it says is due, by the clocks that it is told."""

import pytest

from oarlock.config import Config
from oarlock.job.reactor.passes import LONGEST_PAUSE
from oarlock.job.reactor.reactor import AGAIN_SECONDS, Reactor
from oarlock.job.reactor.steps import ApplyReports, BeginLaunches, Moment, Periodic, QuickPass
from oarlock.job.run.reports import NotificationSent
from oarlock.job.run.starting.schedule import Decision
from oarlock.job.run.unit_of_work import StepContext
from oarlock.model.errors import DatabaseAway

NOW = 1_000_000


def at(seconds):
    return Moment(NOW + seconds, seconds)


def reactor(**periods):
    return Reactor(StepContext(Config(), b"key"), {Periodic[name]: float(s) for name, s in periods.items()}, began=0.0)


def test_a_periodic_step_is_due_after_its_period_and_never_twice():
    it = reactor(WATCH=10, CHECK_NODES=30)
    assert (it.due(at(9)), it.wake_in(at(9))) == ([], 1)
    assert it.due(at(10)) == [Periodic.WATCH]
    assert it.due(at(25)) == []
    it.ended(Periodic.WATCH, at(26))
    assert it.due(at(35)) == [Periodic.CHECK_NODES]
    assert it.wake_in(at(35)) == 1


def test_a_periodic_step_that_is_requested_while_it_runs_is_repeated():
    it = reactor(WATCH=10)
    it.request(Periodic.WATCH)
    assert it.due(at(1)) == [Periodic.WATCH]
    it.request(Periodic.WATCH)
    it.ended(Periodic.WATCH, at(2))
    assert it.due(at(2)) == [Periodic.WATCH]
    it.failed(Periodic.WATCH, ValueError(), at(3))
    assert (it.due(at(12)), it.due(at(13))) == ([], [Periodic.WATCH])


@pytest.mark.manual(178)
def test_launches_follow_the_reports_that_came_before_them():
    it, report = reactor(), NotificationSent(1)
    it.receive(report)
    it.nodes_reached([7])
    reports = it.next_step(at(0))
    assert (reports, it.next_step(at(0)), it.wake_in(at(0))) == (ApplyReports((report,)), None, None)
    it.ended(reports, at(1))
    assert it.next_step(at(1)) == BeginLaunches((7,))


def test_a_pass_runs_beside_a_transaction_and_only_one_at_a_time():
    it = reactor()
    it.receive(NotificationSent(1))
    it.request_pass()
    assert isinstance(it.next_step(at(0)), ApplyReports)
    step = it.next_step(at(0))
    assert isinstance(step, QuickPass)
    it.request_pass()
    assert it.next_step(at(0)) is None
    it.planned(step, Decision(now=NOW), at(1), cost=0.5)
    assert (it.next_step(at(1.9)), it.wake_in(at(1))) == (None, 1.0)
    assert isinstance(it.next_step(at(2)), QuickPass)


def test_a_pass_is_due_at_a_start_at_a_wake_up_and_after_silence():
    it = reactor()
    it.request_pass()
    it.planned(it.next_step(at(0)), Decision(now=NOW, next_start=NOW + 40), at(0), cost=0.0)
    assert (it.next_step(at(39)), it.wake_in(at(39))) == (None, 1)
    it.planned(it.next_step(at(40)), Decision(now=NOW), at(40), cost=0.0)
    it.request_pass(NOW + 55)
    assert (it.next_step(at(54)), it.wake_in(at(54))) == (None, 1)
    it.planned(it.next_step(at(55)), Decision(now=NOW), at(55), cost=0.0)
    assert it.wake_in(at(55)) == LONGEST_PAUSE
    assert isinstance(it.next_step(at(55 + LONGEST_PAUSE)), QuickPass)


def test_only_the_first_report_that_waits_wakes_the_driver():
    woken = []
    it = Reactor(StepContext(Config(), b"key"), {}, began=0.0, wake=lambda: woken.append(1))
    for number in range(3):
        it.receive(NotificationSent(number))
    assert woken == [1]


def whole(it, begin, took):
    """Let the whole pass that is due at an instant take so long; return whether it gave dates."""
    step = it.next_step(at(begin))
    it.planned(step, Decision(now=NOW, whole=step.dates), at(begin + took), cost=took)
    return step.dates


def look_at_a_long_queue(it, begin):
    """Let a quick pass find that more jobs wait than it reads."""
    it.request_pass()
    it.planned(it.next_step(at(begin)), Decision(now=NOW, left=100_000, whole=False), at(begin), cost=0.0)


def test_who_starts_is_seen_before_all_jobs_get_dates():
    it = reactor()
    look_at_a_long_queue(it, 0)
    assert [whole(it, 0, 1), whole(it, 1, 4)] == [False, True]
    look_at_a_long_queue(it, 5)
    assert it.wake_in(at(5)) == 1  # soon after dates, for which jobs had to wait
    assert not whole(it, 6, 1)


def test_a_long_queue_is_looked_at_every_few_seconds_whatever_it_takes():
    it = reactor()
    look_at_a_long_queue(it, 0)
    assert [whole(it, 0, 1), whole(it, 1, 10)] == [False, True]
    look_at_a_long_queue(it, 11)
    pauses = []
    for begin, took in ((12, 0.2), (20, 1), (30, 5)):
        assert not whole(it, begin, took)
        pauses.append(round(it.wake_in(at(begin + took)), 3))
    assert pauses == [2, 3, 5]


def test_a_pass_that_the_database_did_not_take_is_made_again_soon():
    it = reactor()
    for error, expected in ((ValueError(), LONGEST_PAUSE), (DatabaseAway("The disk is full.", hint=""), AGAIN_SECONDS)):
        it.request_pass()
        step = it.next_step(at(100))
        assert isinstance(step, QuickPass)
        it.failed(step, error, at(100))
        assert it.wake_in(at(100)) == expected
        assert it.next_step(at(100)) is None
