"""The states of a job, and the moves between them."""

import pytest

from oarlock.model.errors import IllegalMove
from oarlock.model.job import FINAL, HOLDS_RESOURCES, MOVES, Job, JobState, Moved, move


def job(state: JobState) -> Job:
    return Job(id=7, state=state, user="ada", queue="default")


def test_a_waiting_job_may_be_held():
    held = job(JobState.HOLD)
    assert move(job(JobState.WAITING), JobState.HOLD, at=100, why="held by ada") == Moved(
        held, JobState.WAITING, 100, "held by ada"
    )


def test_a_refused_move_says_what_is_what_was_asked_and_what_is_possible():
    with pytest.raises(IllegalMove) as refused:
        move(job(JobState.HOLD), JobState.RUNNING, at=100, why="")
    assert refused.value.full_text() == (
        "Job 7 is Hold; it cannot become Running.\n  A job that is Hold can become Error, Waiting."
    )


@pytest.mark.manual(151, 152)
def test_every_state_has_its_moves_and_only_two_have_none():
    assert set(MOVES) == set(JobState)
    assert {JobState.TERMINATED, JobState.ERROR} == FINAL


@pytest.mark.parametrize("state", sorted(set(JobState) - FINAL))
def test_an_end_can_be_reached_from_every_state(state: JobState):
    reached, border = {state}, {state}
    while border:
        border = {to for at in border for to in MOVES[at]} - reached
        reached |= border
    assert reached & FINAL


@pytest.mark.parametrize("state", sorted(JobState))
def test_the_table_alone_decides_which_moves_are_legal(state: JobState):
    for to in JobState:
        if to in MOVES[state]:
            assert move(job(state), to, at=1, why="").job.state is to
        else:
            with pytest.raises(IllegalMove):
                move(job(state), to, at=1, why="")


def test_a_launch_that_fails_before_the_users_code_ran_gives_the_job_back():
    assert JobState.WAITING in MOVES[JobState.LAUNCHING]
    assert JobState.WAITING not in MOVES[JobState.RUNNING]


def test_resources_are_held_from_launch_to_the_very_end():
    assert JobState.FINISHING in HOLDS_RESOURCES
    assert JobState.WAITING not in HOLDS_RESOURCES
    assert not HOLDS_RESOURCES & FINAL


@pytest.mark.manual(189)
def test_a_jobs_cgroup_is_named_after_user_and_number():
    assert job(JobState.WAITING).cpuset_name == "ada_7"
