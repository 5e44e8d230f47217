"""The line of attempts: as many at once as there are processors, nobody kept waiting for long."""

import pytest

from oarlock.node.program.workers import LONGEST, StartQueue
from oarlock.node.wire.channel import REQUEST, Frame


def frame(number: int) -> Frame:
    return Frame(REQUEST, number, b"{}")


@pytest.fixture
def starting():
    line = StartQueue(most=2)
    for job in range(1, 6):
        line.queue((job, 1), frame(job))
    return line


def begun(line, now):
    """Give the jobs that begin at an instant."""
    found = []
    while begins := line.next(now):
        (job, _), asked = begins
        assert asked == frame(job)
        found.append(job)
    return found


def test_so_many_begin_at_once_and_another_for_each_that_is_settled(starting):
    assert begun(starting, 10.0) == [1, 2]
    starting.settled((2, 1))
    assert begun(starting, 10.01) == [3]
    starting.settled((2, 1))  # told twice it makes no more room
    starting.settled((9, 1))
    assert begun(starting, 10.02) == []
    starting.settled((1, 1))
    starting.settled((3, 1))
    assert (begun(starting, 10.03), starting.wait(10.03)) == ([4, 5], None)


def test_a_slow_start_holds_others_for_a_second_at_most(starting):
    assert begun(starting, 10.0) == [1, 2]
    assert (begun(starting, 10.9), starting.wait(10.9)) == ([], pytest.approx(0.1))
    assert begun(starting, 10.0 + LONGEST) == [3, 4]


def test_nobody_waits_where_there_is_room(starting):
    assert starting.wait(10.0) == 0.0
    assert StartQueue(most=2).wait(10.0) is None


def test_who_is_withdrawn_never_begins(starting):
    assert begun(starting, 10.0) == [1, 2]
    assert starting.withdraw((4, 1)) == frame(4)
    assert (starting.withdraw((4, 1)), starting.withdraw((1, 1))) == (None, None)
    starting.settled((1, 1))
    starting.settled((2, 1))
    assert begun(starting, 10.01) == [3, 5]


def test_users_take_turns_so_nobody_waits_behind_hundreds_of_another():
    line = StartQueue(most=1)
    for job in range(1, 301):
        line.queue((job, 1), frame(job), "ada")
    for job in (901, 902):
        line.queue((job, 1), frame(job), "bob")
    order = []
    for _ in range(5):
        [job] = begun(line, 10.0)
        order.append(job)
        line.settled((job, 1))
    assert order == [1, 901, 2, 902, 3]


def test_a_user_whose_only_attempt_is_withdrawn_has_no_turn():
    line = StartQueue(most=1)
    line.queue((1, 1), frame(1), "ada")
    line.queue((2, 1), frame(2), "bob")
    assert line.withdraw((1, 1)) == frame(1)
    assert (begun(line, 10.0), line.wait(10.0)) == ([2], None)
