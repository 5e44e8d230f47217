"""Nodes beside the database: whatever does not agree is named, what merely changed meanwhile is not."""

import pytest
from msgspec.structs import replace

from oarlock.job.check.finding import LIVE
from oarlock.job.check.live import LEFTOVER_SECONDS, DatabaseLook, NodeAttempts, compare
from oarlock.model.job import UnknownAttempt
from oarlock.store.queries.job.attempts import Attempt, AttemptNode

NOW = 2_000_000
OPEN = Attempt(
    job_id=1, number=1, secret_hash="tag", nodes=(AttemptNode("node1", "boot", None),), opened_us=1, started_us=2
)
CLOSED = replace(OPEN, job_id=2, ended_us=3, closed_us=(NOW - 2 * LEFTOVER_SECONDS) * 10**6)
LATE = replace(OPEN, job_id=3, ended_us=3, closed_us=(NOW - 5) * 10**6)


def _there(job: int, *, tag: str = "tag", alive: bool = True) -> UnknownAttempt:
    return UnknownAttempt(node="node1", job=job, attempt=1, tag=tag, alive=alive)


def _look(*attempts: Attempt, foreign: tuple[tuple[str, int, int, str], ...] = ()) -> DatabaseLook:
    return DatabaseLook({(one.job_id, one.number): one for one in attempts}, frozenset(foreign))


def _compared(*there, before=None, after=None, boot="boot", problem="", stored=(OPEN, CLOSED, LATE)):
    node = NodeAttempts("node1", boot, tuple(there), problem)
    before = _look(OPEN) if before is None else before
    numbers = {(attempt.job_id, attempt.number): attempt for attempt in stored}
    return compare(before, [node], before if after is None else after, numbers, now=NOW)


def test_nodes_that_agree_give_no_finding():
    assert _compared(_there(1), _there(3, alive=False)) == []


CORRUPTORS = {
    "a job that nobody knows": (17, "broken", lambda: _compared(_there(1), _there(9))),
    "a job of another secret": (17, "broken", lambda: _compared(_there(1), _there(2, tag="other"))),
    "a job that is over and runs": (17, "broken", lambda: _compared(_there(1), _there(2))),
    "a job that is gone": (17, "broken", lambda: _compared()),
    "a node that was started again": (17, "broken", lambda: _compared(boot="other")),
    "a job of another generation": (
        17, "warning", lambda: _compared(_there(1), _there(9), before=_look(OPEN, foreign=(("node1", 9, 1, "tag"),))),
    ),
    "a node that does not answer": (17, "warning", lambda: _compared(problem="it is unplugged")),
    "a report that nobody deleted": (18, "warning", lambda: _compared(_there(1), _there(2, alive=False))),
    "a report of a job that nobody knows": (18, "warning", lambda: _compared(_there(1), _there(9, alive=False))),
}  # fmt: skip


@pytest.mark.parametrize("name", CORRUPTORS)
def test_what_does_not_agree_is_named_and_nothing_else(name: str):
    invariant, severity, made = CORRUPTORS[name]
    assert [(finding.invariant, finding.severity.name.lower()) for finding in made()] == [(invariant, severity)]


def test_what_changed_while_it_was_looked_at_is_no_finding():
    assert _compared(before=_look(), after=_look(OPEN)) == []  # begun meanwhile, after the node answered
    assert _compared(before=_look(OPEN), after=_look()) == []  # over meanwhile, before the node answered
    ends = replace(OPEN, ended_us=3, closed_us=NOW * 10**6)
    assert _compared(_there(1), before=_look(OPEN), after=_look(), stored=(ends,)) == []


def test_every_live_invariant_has_a_corruptor():
    assert {number for number, *_ in CORRUPTORS.values()} == LIVE
