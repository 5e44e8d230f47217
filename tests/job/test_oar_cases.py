"""What OAR's own tests say of events, of jobs whose time has come and of nodes that leave happens here, too."""

from typing import Any

import pytest

from oarlock.config import Config
from oarlock.job.cluster import node_states
from oarlock.job.reactor import watch
from oarlock.job.run import suspend
from oarlock.job.run.effects import Kill
from oarlock.job.run.finish import FinishedAttempts
from oarlock.job.run.unit_of_work import StepContext
from oarlock.model.event import EVENTS, EventType, event_type
from oarlock.model.job import FINAL, FragState, Job, JobKind, JobState
from oarlock.model.resource import NextState, ResourceState
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.cluster import events, resources
from oarlock.store.queries.job import attempts, jobs, moves
from oarlock.store.queries.job.attempts import Attempt, AttemptNode
from tests.clusters import add_nodes
from tests.lang.cases import oar_cases
from tests.store.cluster import add_job, run, step

S = JobState
ON_NODES = (S.LAUNCHING, S.RUNNING, S.SUSPENDED, S.RESUMING, S.FINISHING)
ASKED_FOR = {EventType.HOLD_WAITING_JOB, EventType.HOLD_RUNNING_JOB, EventType.RESUME_JOB}


def site(**settings: Any) -> StepContext:
    return StepContext(Config(**settings), b"key")


def job_in(tx: Tx, state: JobState, *, at: int = 0, walltime: int = 60, **fields: Any) -> Job:
    """Bring a job into a state, on a node of its own if it has to be on one."""
    ids = add_nodes(tx, [f"node{len(resources.listed(tx))}"])
    job = add_job(tx, f"/core=1,walltime=0:0:{walltime}", submitted=at, **fields)
    if state not in (*ON_NODES, S.TERMINATED):
        return job if state is S.WAITING else step(tx, job, state, at=at)
    job = run(tx, job, ids, at=at)
    name = str(resources.listed(tx, ids[:1])[0].properties["network_address"])
    attempts.begin(
        tx, [Attempt(job_id=job.id, secret_hash="x", nodes=(AttemptNode(name, "boot"),), opened_us=at * 1_000_000)]
    )
    for one in {S.RESUMING: (S.SUSPENDED, S.RESUMING), S.TERMINATED: (S.FINISHING, S.TERMINATED)}.get(state, (state,)):
        job = job if one is S.RUNNING else step(tx, job, one, at=at)
    return job


def event_check(tx: Tx, given: dict[str, Any], expected: dict[str, Any]) -> None:
    """Let an event happen to a job: what somebody asks for is done, what happened has the meaning that it has."""
    said = given.get("job", {})
    kind, state = event_type(given["event"]), JobState(said.get("state", "Waiting"))
    told: dict[str, Any] = {"scheduler_must_rerun": EVENTS[kind].to_check, "resubmitted": EVENTS[kind].copy}
    if kind in ASKED_FOR:
        job = job_in(tx, state, kind=JobKind(said.get("job_type", "PASSIVE")))
        act = suspend.resume if kind is EventType.RESUME_JOB else suspend.hold
        more = {} if kind is EventType.RESUME_JOB else {"running": state is not S.WAITING}
        [answer] = act(tx, site(), [job.id], by="ada", now=10, **more).answers
        assert answer.done
        told["job_state"] = str(jobs.get(tx, job.id).state)
    else:
        told["job_state"] = str(EVENTS[kind].becomes or state)
    assert {key: told[key] for key in expected} == expected


def watchdog(tx: Tx, given: dict[str, Any], expected: dict[str, Any]) -> None:
    """Look once at what time has come for. What OAR's watch marks (LEON, LEON_EXTERMINATE) is done at once here."""
    now, known = given["now"], site(dead_switch_time=given.get("DEAD_SWITCH_TIME", 0))
    told: dict[str, Any] = {}
    if "resource" in given:
        about, ids = given["resource"], add_nodes(tx, ["node"])
        resources.set_state(tx, ids, ResourceState(about["state"]), at=about.get("state_since", 0))
        known_ones = {name: about[name] for name in ("desktop_computing", "expiry_date") if name in about}
        resources.set_properties(tx, ids, known_ones, at=0)
    else:
        about = given["job"]
        job = job_in(tx, JobState(about["state"]), walltime=about.get("walltime", 3600))
        if frag := given.get("frag"):
            moves.request_kills(tx, [job.id], at=frag["date"])
            moves.set_kill_state(tx, [job.id], FragState(frag["state"]))
    instructions = watch.check(tx, known, now=now, finished=FinishedAttempts())
    if "resource" in given:
        told["next_state"] = resources.listed(tx, ids)[0].properties["state"]
    else:
        over = jobs.get(tx, job.id).state in FINAL
        stored = {number: state for number, state, _ in moves.kills_under_way(tx)}.get(job.id, FragState.FRAGGED)
        happened = {noted.event.type for noted in events.of_jobs(tx, [job.id])}
        again = FragState.LEON if any(isinstance(one, Kill) for one in instructions) else stored
        told["killed"] = over or again is FragState.LEON
        told["frag_state"] = FragState.LEON_EXTERMINATE if EventType.EXTERMINATE_JOB in happened else again
        told["stored"] = stored
    assert {key: told[key] for key in expected} == expected


def resource_next_state(tx: Tx, given: dict[str, Any], expected: dict[str, Any]) -> None:
    job = job_in(tx, S.RUNNING, types=tuple(given.get("types", ())))
    resources.request_state(tx, jobs.resources_of(tx, [job.id])[job.id], NextState(given["next_state"]))
    node_states.apply(tx, site(), now=10)
    assert {"job_must_be_killed": bool(moves.kills_under_way(tx))} == expected


CHECKS = {check.__name__: check for check in (event_check, watchdog, resource_next_state)}
AGAINST = {
    "test_sarko_job_to_checkpoint": "nodes send the checkpoint signal by themselves; tests/node looks at it",
}
MORE = [
    ("event_check", {"event": "EXTERMINATE_JOB"}, {"job_state": "Error"}),
    ("event_check", {"event": "SWITCH_INTO_TERMINATE_STATE"}, {"job_state": "Terminated", "resubmitted": True}),
    ("event_check", {"event": "CPUSET_CLEAN_ERROR"}, {"job_state": "Terminated", "scheduler_must_rerun": True}),
    ("event_check", {"event": "RESERVATION_NO_NODE"}, {"job_state": "Error", "resubmitted": False}),
    ("event_check", {"event": "CHECKPOINT_SUCCESSFULL", "job": {"state": "Running"}}, {"job_state": "Running"}),
    ("event_check", {"event": "HOLD_WAITING_JOB", "job": {"state": "Resuming"}}, {"job_state": "Suspended"}),
    ("event_check", {"event": "RESUME_JOB", "job": {"state": "Suspended"}}, {"job_state": "Resuming"}),
    ("event_check", {"event": "RESUME_JOB", "job": {"state": "Hold"}}, {"job_state": "Waiting"}),
    ("watchdog", {"now": 59, "job": {"state": "Running", "walltime": 60}}, {"killed": False}),
    ("watchdog", {"now": 0, "frag": {"state": "TIMER_ARMED", "date": 0}, "job": {"state": "Running"}},
     {"killed": False, "frag_state": "TIMER_ARMED"}),
    ("watchdog", {"now": 100, "frag": {"state": "TIMER_ARMED", "date": 0}, "job": {"state": "Running"}},
     {"killed": True, "frag_state": "LEON", "stored": "TIMER_ARMED"}),
    ("watchdog", {"now": 400, "frag": {"state": "TIMER_ARMED", "date": 0}, "job": {"state": "Running"}},
     {"killed": True, "frag_state": "LEON_EXTERMINATE", "stored": "FRAGGED"}),
    ("watchdog", {"now": 400, "DEAD_SWITCH_TIME": 100, "resource": {"state": "Alive", "state_since": 50}},
     {"next_state": "Alive"}),
    ("watchdog", {"now": 400, "DEAD_SWITCH_TIME": 100, "resource": {"state": "Suspected", "state_since": 301}},
     {"next_state": "Suspected"}),
    ("resource_next_state", {"next_state": "Absent"}, {"job_must_be_killed": True}),
    ("resource_next_state", {"next_state": "Suspected"}, {"job_must_be_killed": False}),
    ("resource_next_state", {"next_state": "Dead", "types": ["cosystem"]}, {"job_must_be_killed": False}),
    ("resource_next_state", {"next_state": "Dead", "types": ["noop"]}, {"job_must_be_killed": False}),
]  # fmt: skip


@pytest.mark.parametrize("case", oar_cases(*CHECKS))
def test_what_the_tests_of_oar_expect_happens_here(tx: Tx, case: dict[str, Any]):
    if case["origin"].rpartition("::")[2] in AGAINST:
        pytest.skip(AGAINST[case["origin"].rpartition("::")[2]])
    CHECKS[case["kind"]](tx, case["input"], case["expected"])


@pytest.mark.parametrize(("kind", "given", "expected"), MORE)
def test_more_cases_of_the_same_kinds(tx: Tx, kind: str, given: dict[str, Any], expected: dict[str, Any]):
    CHECKS[kind](tx, given, expected)
