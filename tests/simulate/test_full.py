"""Full replays: the simulated cluster decides what the planner alone does, and accounts for it."""

from itertools import combinations
from random import Random

import pytest
from msgspec.structs import replace

from oarlock.model.snapshot import ResourceTable
from oarlock.simulate.compare import Comparison
from oarlock.simulate.platform import from_table, uniform
from oarlock.simulate.replay import Replay, full_replay, identical_processors
from oarlock.simulate.trace import Trace, TraceJob, flat, parts

BEGIN = 5_000_000


def cluster(nodes, cores):
    """Make a table of nodes that are all ready."""
    places = [(node, core) for node in range(nodes) for core in range(cores)]
    count = len(places)
    usual = {"type": "default", "state": "Alive", "next_state": "UnChanged", "suspended_jobs": "NO"}
    columns = {name: (value,) * count for name, value in usual.items()}
    columns |= {"scheduler_priority": (0,) * count, "network_address": tuple(f"n{node:02}" for node, _ in places)}
    columns["core"] = tuple(range(count))
    return ResourceTable(tuple(range(1, count + 1)), columns)


def trace(seed, jobs=60, *, most=4):
    """Draw jobs that come in bursts and mostly end before their time."""
    r, now, drawn = Random(seed), BEGIN, []
    for number in range(1, jobs + 1):
        now += r.choice([0, 0, 5, 40, 200])
        walltime = r.choice([60, 300, 900])
        run = r.choice([walltime, walltime // 2, 7])
        shape = r.choice([flat(r.randint(1, most)), parts(r.randint(1, 2), 2)])
        count = shape.groups[0].levels[0].count * (2 if len(shape.groups[0].levels) > 1 else 1)
        drawn.append(TraceJob(number, now, run, walltime, shape, count, user=f"user{r.randint(1, 3)}", project="p"))
    return Trace("drawn", tuple(drawn))


def flattened(jobs):
    """Ask for as many resources, whichever."""
    return replace(jobs, jobs=tuple(replace(job, shape=flat(job.processors)) for job in jobs.jobs))


def overlapping(ran):
    """Give the pairs of jobs that had a resource at the same time."""
    return [
        (one.job.number, other.job.number)
        for one, other in combinations(ran, 2)
        if one.resources & other.resources and one.start < other.end and other.start < one.end
    ]


@pytest.mark.parametrize("policy", ["fcfs", "easy", "easy-sjbf", "depth-2", "oar_sched_gantt_with_timesharing"])
def test_the_house_starts_what_the_planner_alone_starts(policy):
    jobs, site = trace(7), cluster(4, 2)
    alone = Replay(jobs, from_table(site), policy).run()
    told = []
    whole = full_replay(jobs, site, policy, progress=told.append)
    assert [(one.job.number, one.start, one.resources) for one in whole] == [
        (one.job.number, one.start, one.resources) for one in alone
    ]
    assert (len(whole), told[-1]) == (60, 60)


@pytest.mark.parametrize("seed", [8, *(pytest.param(seed, marks=pytest.mark.soak) for seed in (7, 11))])
def test_the_house_keeps_dates_where_the_policy_does(seed):
    """Told by one pass, kept by the next, though each begins from the database."""
    jobs, site = trace(seed), cluster(4, 2)
    kept, anew = (full_replay(jobs, site, policy) for policy in ("conservative", "oar_sched_gantt_with_timesharing"))
    late = [
        [one.job.number for one in ran if one.foreseen is not None and one.start > one.foreseen] for ran in (kept, anew)
    ]
    assert late[0] == []
    assert late[1] != []  # so that there was something to keep


@pytest.mark.parametrize("seed", [8, *(pytest.param(seed, marks=pytest.mark.soak) for seed in (9, 10))])
def test_the_house_keeps_dates_as_the_planner_alone_does(seed):
    jobs, site = trace(seed), cluster(4, 2)
    alone, whole = Replay(jobs, from_table(site), "conservative").run(), full_replay(jobs, site, "conservative")
    assert [(one.start, one.resources) for one in whole] == [(one.start, one.resources) for one in alone]


@pytest.mark.parametrize("policy", ["easy-sjbf+predict", "easy+multifactor", "multifactor+predict"])
def test_policies_that_need_history_are_replayed_with_it(policy):
    ran = full_replay(trace(8), cluster(4, 2), policy)
    assert len(ran) == 60
    assert all(one.start >= one.job.submitted for one in ran)
    assert overlapping(ran) == []


def test_processors_that_are_all_alike_are_one_large_node():
    jobs = Trace("t", tuple(TraceJob(n, BEGIN, 10, 20, flat(count), count) for n, count in enumerate((3, 2, 9), 1)))
    ran = full_replay(jobs, identical_processors(4), "easy")
    assert [(one.job.number, one.wait, one.foreseen) for one in ran] == [(1, 0, None), (2, 10, BEGIN + 20)]
    assert full_replay(Trace("nothing", ()), identical_processors(4), "easy") == []


def test_the_planner_alone_predicts_too():
    jobs, site = trace(9, 120), cluster(4, 2)
    alone = Replay(jobs, from_table(site), "easy-sjbf+predict").run()
    assert [one.start for one in alone] != [one.start for one in Replay(jobs, from_table(site), "easy-sjbf").run()]
    assert (len(alone), overlapping(alone)) == (120, [])
    [pooled] = Comparison(uniform(8)).of(trace(9, 40, most=4), ["easy+predict"])
    [tree] = Comparison(from_table(identical_processors(8))).of(flattened(trace(9, 40, most=4)), ["easy+predict"])
    assert [one.start for one in pooled.ran] == [one.start for one in tree.ran]


def test_a_comparison_can_be_made_with_everything():
    jobs = trace(3, 20, most=3)
    for where in (uniform(8), from_table(cluster(4, 2))):
        quick, slow = (Comparison(where, full=full_).of(jobs, ["easy"])[0] for full_ in (False, True))
        assert [one.start for one in slow.ran] == [one.start for one in quick.ran]
        # The planner alone goes only as far as somebody could start, so that fewer are told a date.
        measures = [one.measures.plain() for one in (slow, quick)]
        assert [one.pop("prediction")["late"] for one in measures] == [0, 0]
        assert measures[0] == measures[1]
