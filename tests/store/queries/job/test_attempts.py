"""A launch is written down before it is tried; a job has at most one that is live."""

import pytest
from msgspec.structs import replace

from oarlock.model.errors import AttemptOpen, StaleAttempt
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.job import attempts
from oarlock.store.queries.job.attempts import Attempt, AttemptNode
from tests.store.cluster import add_job

US = 1_000_000_000_123_456


def _attempt(job_id: int, *nodes: str) -> Attempt:
    return Attempt(job_id=job_id, secret_hash="ab12", nodes=tuple(map(AttemptNode, nodes)), opened_us=US)


def test_an_attempt_is_followed_through_its_life(tx: Tx):
    job, other = add_job(tx).id, add_job(tx).id
    first, second = attempts.begin(tx, [_attempt(job, "b", "a"), _attempt(other, "b")])
    assert first == replace(_attempt(job, "b", "a"), number=1)
    assert attempts.live(tx) == [first, second]
    started = replace(first, started_us=US + 1, nodes=(AttemptNode("b", "boot-b"), AttemptNode("a", "boot-a")))
    ended = replace(second, started_us=US + 2, ended_us=US + 3, exit_code=256)
    attempts.record(tx, [started, ended])
    assert attempts.live(tx) == [started, ended]
    closed = replace(started, closed_us=US + 9, outcome="done")
    attempts.record(tx, [closed])
    assert attempts.live(tx) == [ended]
    assert attempts.of_jobs(tx, [job]) == [closed]


def test_there_is_no_second_attempt_before_the_first_is_closed(tx: Tx):
    job, other = add_job(tx).id, add_job(tx).id
    [first] = attempts.begin(tx, [_attempt(job, "a")])
    with pytest.raises(AttemptOpen, match=f"Attempt 1 of job {job} is not over"):
        attempts.begin(tx, [_attempt(other, "a"), _attempt(job, "b")])
    assert attempts.live(tx) == [first]
    attempts.record(tx, [replace(first, closed_us=US + 1, outcome="prologue failed")])
    [second] = attempts.begin(tx, [_attempt(job, "b")])
    assert second.number == 2
    assert [one.number for one in attempts.of_jobs(tx, [job])] == [1, 2]


def test_one_job_cannot_be_launched_twice_in_one_go(tx: Tx):
    job = add_job(tx).id
    with pytest.raises(AttemptOpen):
        attempts.begin(tx, [_attempt(job, "a"), _attempt(job, "b")])


def test_late_and_made_up_reports_are_refused(tx: Tx):
    job = add_job(tx).id
    [first] = attempts.begin(tx, [_attempt(job, "a")])
    closed = replace(first, closed_us=US + 1, outcome="lost")
    attempts.record(tx, [closed])
    [second] = attempts.begin(tx, [_attempt(job, "a")])
    for stale in (replace(first, exit_code=0), replace(second, number=3), replace(second, job_id=job + 1)):
        with pytest.raises(StaleAttempt, match="is over, or never was"):
            attempts.record(tx, [replace(second, exit_code=1), stale])
    assert attempts.of_jobs(tx, [job]) == [closed, second]
