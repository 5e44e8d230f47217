"""Seeded days on which nodes, clocks and servers misbehave: what must always hold holds, and a seed replays exactly."""

import hashlib
import os
import subprocess
import sys
from dataclasses import replace

import pytest
from msgspec import structs

from oarlock.model.event import EventType
from oarlock.model.job import JobState
from oarlock.simulate import invariants, scenario
from oarlock.simulate.scenario import ScenarioSettings
from oarlock.store.queries.usage import history

KNOWN = (0, 1, 4, 100, 114)
"""Seeds that found something once: jobs started where others ran after the clock was set back (0, 1), or where a
best-effort job was still ending (114)."""

STORM = ScenarioSettings(jobs=40, nodes=3, cores=2, troubles=0.7, wishes=0.4, jumps=0.1, crashes=0.2)


def later(*seeds):
    """Leave seeds to the long runs."""
    return [pytest.param(seed, marks=pytest.mark.soak) for seed in seeds]


@pytest.mark.parametrize("seed", [*KNOWN, 200, *later(201, 202, 203)])
def test_every_job_ends_once_and_no_resource_is_given_twice(seed):
    outcome = scenario.run(seed)
    assert not outcome.problems, outcome.summary()


@pytest.mark.parametrize("seed", [300, 301, *later(*range(302, 306))])
def test_it_holds_in_a_storm_too(seed):
    outcome = scenario.run(seed, STORM)
    assert not outcome.problems, outcome.summary()


@pytest.mark.parametrize("seed", [400, 401, *later(*range(402, 408))])
def test_no_two_accepted_reservations_overlap_whatever_is_held_and_resumed(seed):
    outcome = scenario.run(seed, ScenarioSettings(jobs=50, nodes=2, wishes=0.9, reservations=0.4))
    assert not outcome.problems, outcome.summary()


BUSY = ScenarioSettings(jobs=40, nodes=2, arrivals=8, depths=(2, 8), work=0.02, outages=0.2, crashes=0.1)
"""More jobs wait than a quick pass looks at, work takes time, and the database accepts nothing now and then."""


@pytest.mark.parametrize("seed", [500, *later(501, 502, 503, 504, 505, 506, 507)])
def test_it_holds_on_a_busy_server(seed):
    outcome = scenario.run(seed, BUSY)
    assert not outcome.problems, outcome.summary()


@pytest.mark.soak
def test_it_holds_for_hundreds_of_seeds():
    for seed in range(1000, 1300):
        weather = replace(STORM, jobs=60) if seed % 2 else ScenarioSettings()
        outcome = scenario.run(seed, replace(weather, reservations=0.2 if seed % 3 == 0 else 0.0))
        assert not outcome.problems, outcome.summary()


_DIGEST = """
import hashlib
from oarlock.simulate import scenario
print(hashlib.sha256("\\n".join(scenario.run(5).trace).encode()).hexdigest())
"""


def test_a_seed_gives_the_same_day_to_the_last_event_in_any_process():
    trace = scenario.run(5).trace
    here = hashlib.sha256("\n".join(trace).encode()).hexdigest()
    environment = {**os.environ, "PYTHONHASHSEED": "12345", "PYTHONPATH": os.pathsep.join(sys.path)}
    ran = subprocess.run(
        [sys.executable, "-c", _DIGEST], env=environment, capture_output=True, text=True, check=True, timeout=100
    )
    assert ran.stdout.strip() == here
    assert scenario.run(6).trace != trace


def _history(cluster):
    with cluster.database.read() as tx:
        return history.read_full_history(tx)


def _told(cluster, everything):
    return invariants.broken(everything, cluster.nodes.values())


@pytest.fixture
def lived(cluster):
    """A cluster on which three jobs lived: one failed, one was killed."""
    cluster.submit("sleep 10 exit 3")
    cluster.submit("sleep 20", "/core=2,walltime=1")
    cluster.kill(cluster.submit("sleep 500"))
    cluster.finish()
    return cluster


def test_a_good_history_breaks_nothing(lived):
    assert _told(lived, _history(lived)) == []


def test_each_thing_that_could_be_wrong_is_named(lived):
    good = _history(lived)
    job, stays, attempt = good.jobs[1], good.stays[1], good.attempts[1][0]
    broken = {
        "ended with 0 instead of 768": replace(good, jobs={**good.jobs, 1: structs.replace(job, exit_code=0)}),
        "was not accounted": replace(good, jobs={**good.jobs, 1: structs.replace(job, accounted=False)}),
        "before its start": replace(good, jobs={**good.jobs, 1: structs.replace(job, stop=job.start - 1)}),
        "is Running, and its state history ends with Terminated": replace(
            good, jobs={**good.jobs, 1: structs.replace(job, state=JobState.RUNNING)}
        ),
        "begins with": replace(good, stays={**good.stays, 1: stays[1:]}),
        "went from Waiting to Launching": replace(good, stays={**good.stays, 1: [stays[0], *stays[2:]]}),
        "ended 0 times": replace(good, stays={**good.stays, 1: stays[:-1]}),
        "until 5, and": replace(good, stays={**good.stays, 1: [stays[0]._replace(stop=5), *stays[1:]]}),
        "has attempts [2]": replace(good, attempts={**good.attempts, 1: [structs.replace(attempt, number=2)]}),
        "not closed": replace(good, attempts={**good.attempts, 1: [structs.replace(attempt, closed_us=None)]}),
        "was tried again": replace(good, attempts={**good.attempts, 1: [attempt, structs.replace(attempt, number=2)]}),
        "no event says why": replace(good, events={}),
        "1 resources are held": replace(good, held=1),
        "was given to job 2 while job 1 had it": replace(good, resources={**good.resources, 1: good.resources[2]}),
        "resource-seconds were accounted": replace(good, used=good.used + 1),
        "nobody knows of it": replace(good, jobs={2: good.jobs[2], 3: good.jobs[3]}),
    }
    for sentence, history_ in broken.items():
        assert any(sentence in told for told in _told(lived, history_)), sentence


def test_a_command_that_began_twice_or_goes_on_is_named(cluster):
    cluster.submit("sleep 10")
    cluster.nodes["node2"].ran.append((1, 2))
    assert {told for told in _told(cluster, _history(cluster)) if "command" in told or "still runs" in told} == {
        "the command of job 1 began 2 times: attempt 1 on node1, 2 on node2",
        "node1 still runs job 1",
    }


def test_a_failure_tells_its_seed():
    outcome = scenario.ScenarioOutcome(7, 1, (), ("job 1 ended 0 times", "1 jobs were lost"))
    assert outcome.summary() == "seed 7: job 1 ended 0 times; 1 jobs were lost"


def test_a_launch_on_a_node_that_hangs_is_neither_repeated_nor_lost(cluster):
    for delivered, attempts in ((True, [1]), (False, [1, 2])):
        cluster.receive([])
        warm = cluster.submit("sleep 1", "/network_address=2/core=2,walltime=0:1:0")  # both nodes are known now
        cluster.finish()
        for node in cluster.nodes.values():
            node.hangs = True
        job = cluster.submit("sleep 10", "/core=1,walltime=0:5:0")
        assert cluster.story(job)[-1] == "Launching"
        for name in cluster.nodes:
            cluster.go_on(name, delivered=delivered)
        cluster.finish()
        assert cluster.story(job)[-1] == "Terminated"
        assert [one.number for one in cluster.attempts(job)] == attempts
        assert sum(key[0] == job for node in cluster.nodes.values() for key in node.ran) == 1
        assert warm < job


def test_words_that_come_late_or_get_lost_end_a_job_all_the_same(cluster):
    cluster.nodes["node1"].lag = 60
    late = cluster.submit("sleep 10", "/core=2,walltime=0:5:0")
    cluster.pass_time(30)
    assert cluster.job(late).state is JobState.LAUNCHING
    cluster.finish()
    assert (cluster.story(late)[-1], cluster.job(late).exit_code) == ("Terminated", 0)
    cluster.nodes["node1"].lag, cluster.nodes["node1"].loses = 0, 1
    lost = cluster.submit("sleep 10", "/core=2,walltime=0:5:0")
    assert cluster.nodes["node1"].cut
    cluster.finish()
    assert (cluster.story(lost)[-1], cluster.job(lost).exit_code) == ("Terminated", 0)


def test_a_place_that_fails_on_another_node_gives_the_job_back(make):
    cluster = make(nodes=3)
    cluster.nodes["node2"].fails = "CPUSET_ERROR"
    job = cluster.submit("sleep 10", "/network_address=2,walltime=0:5:0")
    cluster.finish()
    assert cluster.events(job)[0] == str(EventType.CPUSET_ERROR)
    assert (cluster.story(job)[-1], cluster.placed(job)) == ("Terminated", ["node1", "node3"])
