"""What goes wrong, and what becomes of jobs and nodes: events, suspicion, attempts, restarts."""

import contextlib
import random

import pytest

from oarlock.failpoints import Died, armed
from oarlock.job.run.finish import FinishedAttempts
from oarlock.job.run.reports import AttemptMissing, BadReport, Exited, NodesChecked, Started
from oarlock.model.event import EventType
from oarlock.model.job import JobState
from oarlock.model.resource import ResourceState
from oarlock.node.wire.messages import CLEANED, EXITED, Report
from oarlock.simulate.cluster import BEGIN, ServerCrash
from oarlock.store.queries.cluster import events, resources
from oarlock.store.queries.usage import summaries
from tests.scenarios.test_life import KILLED, NORMAL


@pytest.mark.parametrize(
    "event", ["PROLOGUE_ERROR", "CPUSET_ERROR", "CANNOT_CREATE_TMP_DIRECTORY", "CAN_NOT_WRITE_NODE_FILE"]
)
def test_a_launch_that_fails_before_the_users_code_is_retried(cluster, event):
    cluster.nodes["node1"].fails = event
    job = cluster.submit("sleep 10")
    cluster.finish()
    assert cluster.story(job) == [*NORMAL[:3], *NORMAL]
    assert cluster.events(job) == [event, "SWITCH_INTO_TERMINATE_STATE"]
    assert cluster.states() == {"node1": {"Suspected"}, "node2": {"Alive"}}
    assert [attempt.number for attempt in cluster.attempts(job)] == [1, 2]
    assert cluster.placed(job) == ["node2"]


def test_after_three_attempts_a_job_is_in_error(make):
    cluster = make(nodes=5)
    for node in cluster.nodes.values():
        node.fails = "PROLOGUE_ERROR"
    job = cluster.submit("sleep 10")
    assert cluster.story(job) == [*NORMAL[:3] * 3, "Error"]
    assert len(cluster.attempts(job)) == 3
    assert sorted(cluster.states().items())[3:] == [("node4", {"Alive"}), ("node5", {"Alive"})]


def test_a_job_is_not_launched_on_cpus_that_cannot_be_read(cluster):
    broken = "UPDATE resources SET cpuset = '0;1' WHERE network_address = 'node1'"  # past the server
    cluster.write(lambda tx: tx.exec_driver_sql(broken))
    job = cluster.submit("sleep 10")
    cluster.finish()
    assert cluster.story(job) == [*NORMAL[:2], *NORMAL]
    assert cluster.events(job) == ["CPUSET_ERROR", "SWITCH_INTO_TERMINATE_STATE"]
    assert cluster.states() == {"node1": {"Suspected"}, "node2": {"Alive"}}
    assert cluster.placed(job) == ["node2"]


@pytest.mark.parametrize("event", ["WORKING_DIRECTORY", "OUTPUT_FILES"])
def test_the_users_own_fault_is_not_tried_again(cluster, event):
    job = cluster.submit(f"fail {event}")
    assert cluster.story(job) == [*NORMAL[:3], "Finishing", "Error"]
    assert cluster.events(job) == [event, "SWITCH_INTO_ERROR_STATE"]
    assert cluster.states() == {"node1": {"Alive"}, "node2": {"Alive"}}


@pytest.mark.manual(147)
@pytest.mark.parametrize(
    ("event", "state"),
    [("SSH_TRANSFER_TIMEOUT", "Suspected"), ("BAD_HASHTABLE_DUMP", "Alive"), ("EXIT_VALUE_OAREXEC", "Alive")],
)
def test_a_launch_that_fails_in_an_unclear_way_is_not_tried_again(cluster, event, state):
    job = cluster.submit(f"fail {event}")
    assert cluster.story(job) == [*NORMAL[:3], "Error"]
    assert cluster.states()["node1"] == {state}


def test_an_account_that_no_node_accepts_suspects_nobody_and_ends_its_job(make):
    cluster = make(nodes=5)
    job = cluster.submit("fail USER_SHELL")
    assert cluster.story(job) == [*NORMAL[:3] * 3, "Error"]
    assert cluster.events(job) == [*["USER_SHELL"] * 3, "SWITCH_INTO_ERROR_STATE"]
    assert set.union(*cluster.states().values()) == {"Alive"}


@pytest.mark.parametrize("event", ["USER_SHELL", "EXIT_VALUE_OAREXEC", "WORKING_DIRECTORY", "OUTPUT_FILES"])
def test_one_user_suspects_no_node_whatever_fails(make, event):
    cluster = make(nodes=1)
    for _ in range(6):
        cluster.submit(f"fail {event}")
    assert cluster.states() == {"node1": {"Alive"}}


@pytest.mark.parametrize("event", ["USER_SHELL", "EXIT_VALUE_OAREXEC", "WORKING_DIRECTORY"])
def test_a_node_where_jobs_of_several_users_fail_is_suspected(make, event):
    cluster = make(nodes=1)
    cluster.submit(f"fail {event}", user="ada")
    cluster.submit(f"fail {event}", user="bob")
    assert cluster.states() == {"node1": {"Alive"}}
    cluster.submit(f"fail {event}", user="eve")
    assert cluster.states() == {"node1": {"Suspected"}}
    with cluster.database.read() as tx:
        said = [noted.event for noted in events.of_hosts(tx, ["node1"]) if noted.event.job is None]
    assert [(one.type, one.hosts) for one in said] == [(EventType.NODE_FAILS_SEVERAL_USERS, ("node1",))]
    assert "jobs of ada, bob, eve failed on node1" in said[0].description


def test_failures_of_users_count_only_one_after_the_other_within_an_hour(make):
    cluster = make(nodes=1)
    for user in ("ada", "bob"):
        cluster.submit("fail WORKING_DIRECTORY", user=user)
    cluster.submit("sleep 10", user="joe")
    cluster.finish()
    cluster.submit("fail WORKING_DIRECTORY", user="eve")
    cluster.submit("fail WORKING_DIRECTORY", user="ada")
    assert cluster.states() == {"node1": {"Alive"}}
    cluster.pass_time(3700)
    cluster.submit("fail WORKING_DIRECTORY", user="bob")
    assert cluster.states() == {"node1": {"Alive"}}


def test_a_server_that_dies_in_each_launch_of_a_job_costs_it_none(cluster):
    def die(point, _node):
        if point == "launch":
            raise Died

    with armed(die):
        with pytest.raises(Died):
            cluster.submit("sleep 10")
        for _ in range(5):
            with pytest.raises(Died):
                cluster.restart()
    cluster.restart()
    cluster.finish()
    assert (cluster.story(1)[-1], cluster.job(1).exit_code) == ("Terminated", 0)
    assert [node.ran for node in cluster.nodes.values() if node.ran] == [[(1, 7)]]


@pytest.mark.manual(121)
def test_a_job_of_an_unreachable_node_runs_elsewhere(cluster):
    cluster.unplug("node1")
    job = cluster.submit("sleep 10")
    cluster.finish()
    assert cluster.story(job) == ["Waiting", "toLaunch", *NORMAL]
    assert cluster.events(job) == ["PING_CHECKER_NODE_SUSPECTED", "SWITCH_INTO_TERMINATE_STATE"]
    assert cluster.states() == {"node1": {"Suspected"}, "node2": {"Alive"}}
    cluster.plug_in("node1")
    assert cluster.states() == {"node1": {"Alive"}, "node2": {"Alive"}}


def test_a_node_that_answers_again_gets_the_job_that_waited_for_it(cluster):
    cluster.unplug("node1")
    job = cluster.submit("sleep 10", "/network_address=2/core=2,walltime=1")
    cluster.pass_time(100)
    assert (cluster.job(job).state, cluster.states()["node1"]) == (JobState.WAITING, {"Suspected"})
    cluster.plug_in("node1")
    assert cluster.job(job).state is JobState.RUNNING


def test_a_node_that_answered_since_is_not_suspected(cluster):
    cluster.receive([NodesChecked((), {"node1": "it is unplugged"}), *cluster.nodes["node1"].catch_up()])
    assert cluster.states()["node1"] == {"Alive"}


@pytest.mark.manual(141)
def test_a_failed_server_prologue_ends_the_job_and_stops_all_queues(cluster):
    cluster.scripts["prologue"] = EventType.SERVER_PROLOGUE_EXIT_CODE_ERROR
    job = cluster.submit("sleep 10")
    assert cluster.story(job) == [*NORMAL[:3], "Error"]
    assert cluster.nodes["node1"].ran == []
    cluster.scripts.clear()
    other = cluster.submit("sleep 10")
    cluster.pass_time(500)
    assert cluster.job(other).state is JobState.WAITING


@pytest.mark.manual(140)
def test_a_failed_server_epilogue_keeps_the_exit_code(make):
    cluster = make(server_epilogue_exec_file="/site/epilogue")
    cluster.scripts["epilogue"] = EventType.SERVER_EPILOGUE_TIMEOUT
    job = cluster.submit("sleep 10 exit 4")
    cluster.finish()
    assert (cluster.story(job), cluster.job(job).exit_code) == (NORMAL, 4 << 8)
    assert cluster.events(job) == ["SERVER_EPILOGUE_TIMEOUT", "SWITCH_INTO_TERMINATE_STATE"]


def test_a_node_that_vanishes_and_returns_keeps_its_job(cluster):
    job = cluster.submit("sleep 500")
    cluster.unplug("node1")
    cluster.pass_time(100)
    assert cluster.job(job).state is JobState.RUNNING
    assert cluster.states()["node1"] == {"Suspected"}
    cluster.plug_in("node1")
    assert cluster.states()["node1"] == {"Alive"}
    cluster.finish()
    assert (cluster.story(job), cluster.job(job).exit_code) == (NORMAL, 0)
    assert cluster.nodes["node1"].ran == [(job, 1)]


def test_a_job_that_ended_on_an_absent_node_is_finished_later(cluster):
    job = cluster.submit("sleep 50")
    cluster.unplug("node1")
    cluster.pass_time(200)
    assert cluster.job(job).state is JobState.RUNNING
    cluster.plug_in("node1")
    assert (cluster.story(job), cluster.job(job).exit_code) == (NORMAL, 0)


def test_what_cannot_be_known_is_held_until_the_lease_is_over(cluster):
    job = cluster.submit("sleep 9999", "/core=2,walltime=0:1:0")
    cluster.unplug("node1")
    cluster.pass_time(60 + 110)
    assert cluster.job(job).state is JobState.RUNNING
    cluster.pass_time(30)
    assert cluster.story(job) == KILLED
    assert "EXIT_VALUE_OAREXEC" in cluster.events(job)


def test_a_node_that_was_started_again_lost_its_job(cluster):
    job = cluster.submit("sleep 500")
    cluster.unplug("node1")
    cluster.nodes["node1"].reboot()
    cluster.pass_time(20)
    cluster.plug_in("node1")
    assert cluster.story(job) == KILLED
    assert "started again" in str(cluster.story_why(job))


def test_a_kill_for_a_node_out_of_reach_waits_until_it_is_back(cluster):
    job = cluster.submit("sleep 3000")
    cluster.unplug("node1")
    cluster.kill(job)
    cluster.pass_time(400)
    assert cluster.job(job).state is JobState.RUNNING
    cluster.plug_in("node1")
    cluster.pass_time(20)
    assert cluster.story(job) == KILLED


@pytest.mark.manual(121, 154, 169)
def test_silent_nodes_are_suspected_by_the_check_and_come_back(cluster):
    cluster.nodes["node2"].up = False
    cluster.check_nodes()
    assert cluster.states() == {"node1": {"Alive"}, "node2": {"Suspected"}}
    cluster.nodes["node2"].up = True
    cluster.check_nodes()
    assert cluster.states() == {"node1": {"Alive"}, "node2": {"Alive"}}


@pytest.mark.manual(169, 179)
def test_resources_long_suspected_are_dead(make):
    cluster = make(dead_switch_time=600)
    cluster.nodes["node2"].up = False
    cluster.check_nodes()
    cluster.pass_time(500)
    assert cluster.states()["node2"] == {"Suspected"}
    cluster.pass_time(200)
    assert cluster.states() == {"node1": {"Alive"}, "node2": {"Dead"}}


def test_a_desktop_out_of_reach_is_not_suspected_before_its_date(cluster):
    job = cluster.submit("sleep 1000", asked="/network_address=1/core=1,walltime=1")
    numbers = [one["resource_id"] for one in cluster.resources() if one["network_address"] == "node1"]
    desktop = {"desktop_computing": "YES", "expiry_date": cluster.now + 100}
    cluster.write(lambda tx: resources.set_properties(tx, numbers, desktop, at=cluster.now))
    cluster.unplug("node1")
    cluster.pass_time(80)
    assert (cluster.states()["node1"], cluster.job(job).state) == ({"Alive"}, JobState.RUNNING)
    cluster.pass_time(60)
    assert (cluster.states()["node1"], cluster.job(job).state) == ({"Suspected"}, JobState.RUNNING)


@pytest.mark.manual(179)
def test_a_resource_beyond_its_expiry_date_is_suspected(cluster):
    job = cluster.submit("sleep 1000")
    numbers = [one["resource_id"] for one in cluster.resources() if one["network_address"] == "node1"]
    until = {"expiry_date": cluster.now + 100}
    cluster.write(lambda tx: resources.set_properties(tx, numbers, until, at=cluster.now))
    cluster.pass_time(90)
    assert cluster.states() == {"node1": {"Alive"}, "node2": {"Alive"}}
    cluster.pass_time(60)
    assert cluster.states() == {"node1": {"Suspected"}, "node2": {"Alive"}}
    cluster.check_nodes()  # that it answers does not make it Alive
    assert cluster.states()["node1"] == {"Suspected"}
    assert cluster.job(job).state is JobState.RUNNING
    with cluster.database.read() as tx:
        written = events.after(tx, 0, [EventType.LOG_SUSPECTED], most=9)
    assert [(one.event.description, one.event.hosts) for one in written] == [
        (f"the expiry_date of resources of node1 has passed: {', '.join(map(str, numbers))}", ("node1",))
    ]
    later = {"expiry_date": cluster.now + 1000}
    cluster.write(lambda tx: resources.set_properties(tx, numbers, later, at=cluster.now))
    cluster.write(lambda tx: resources.set_state(tx, numbers, ResourceState.ALIVE, at=cluster.now))
    cluster.pass_time(60)
    assert cluster.states()["node1"] == {"Alive"}


@pytest.mark.manual(144)
def test_forged_and_foreign_reports_change_nothing_but_leave_an_event(cluster):
    job = cluster.submit("sleep 100")
    foreign = Exited("node2", Report(job, 1, "node2", "node2-1", EXITED, status=0))
    cluster.receive([foreign, BadReport("node1", job, 1, "a bad signature"), BadReport("node1", 99, 1, "unknown")])
    assert cluster.job(job).state is JobState.RUNNING
    assert cluster.events(job) == ["BIPBIP_CHALLENGE", "BIPBIP_CHALLENGE"]


def test_late_duplicate_and_stale_reports_change_nothing(cluster):
    job = cluster.submit("sleep 10 exit 1")
    cluster.finish()
    before = (cluster.job(job), cluster.events(job), cluster.used())
    late = Report(job, 1, "node1", "node1-1", EXITED, status=0, started=1.0, ended=2.0)
    cluster.receive([Exited("node1", late), Started("node1", job, 1, 5.0), AttemptMissing("node1", job, 1)])
    cluster.receive([Exited("node1", late._replace(attempt=7))])
    assert (cluster.job(job), cluster.events(job), cluster.used()) == before


@pytest.mark.parametrize("seed", range(6))
def test_reports_of_a_two_node_job_may_come_in_any_order(cluster, seed):
    job = cluster.submit("sleep 10", "/network_address=2,walltime=1")
    reports = [
        Started("node1", job, 1, float(BEGIN)),
        Exited("node1", Report(job, 1, "node1", "node1-1", EXITED, status=0, started=1e6, ended=1e6 + 10)),
        Exited("node2", Report(job, 1, "node2", "node2-1", "cleaned")),
    ] * 2
    random.Random(seed).shuffle(reports)
    for report in reports:
        cluster.receive([report])
    assert (cluster.story(job), cluster.job(job).exit_code) == (NORMAL, 0)
    assert cluster.events(job) == ["SWITCH_INTO_TERMINATE_STATE"]


def test_a_report_that_comes_before_the_start_was_seen_is_believed(cluster):
    job = cluster.submit("sleep 0")
    assert cluster.story(job) == NORMAL


def day(cluster):
    """A little of everything; gives the jobs."""
    ids = [cluster.submit("sleep 30"), cluster.submit("sleep 20", "/network_address=2,walltime=0:5:0")]
    ids.append(cluster.submit("sleep 5 exit 2", after=(ids[0],)))
    ids.append(cluster.submit("sleep 500"))
    cluster.pass_time(70)
    cluster.kill(ids[3])
    cluster.finish(within=2000)
    return ids


def stories(cluster, ids):
    return [(cluster.story(one)[-1], cluster.job(one).exit_code) for one in ids]


def test_the_server_may_die_after_any_transaction(make):
    undisturbed = make()
    ids = day(undisturbed)
    expected = stories(undisturbed, ids)
    assert expected == [("Terminated", 0), ("Terminated", 0), ("Terminated", 2 << 8), ("Error", None)]
    writes = undisturbed.transactions
    for point in range(5, writes, 2):
        cluster = make()
        cluster.crash_after = point
        with pytest.raises(ServerCrash):
            day(cluster)
        cluster.restart()
        for job in range(1 + max_job(cluster), 5):
            cluster.submit(["sleep 30", "sleep 20", "sleep 5 exit 2", "sleep 500"][job - 1])
        cluster.run_until(4, JobState.RUNNING) if not over(cluster, 4) else None
        cluster.kill(4)
        cluster.finish(within=9000)
        assert stories(cluster, ids) == expected, f"died after transaction {point}"
        runs = [key for node in cluster.nodes.values() for key in node.ran]
        assert sorted(job for job, _ in runs) == ids, f"died after transaction {point}: {runs}"


def max_job(cluster):
    with cluster.database.read() as tx:
        from oarlock.store.queries.job import jobs

        return sum(jobs.count(tx).values())


def over(cluster, job):
    return cluster.job(job).state in {JobState.TERMINATED, JobState.ERROR}


def test_the_memory_of_ended_places_is_not_kept(cluster):
    from oarlock.job.run.effects import ForgetAttempts
    from oarlock.job.run.reports import Exited
    from oarlock.job.run.unit_of_work import UnitOfWork
    from oarlock.node.wire.messages import EXITED, Report
    from oarlock.store.queries.job.attempts import Attempt, AttemptNode

    finished, place = FinishedAttempts(), (1, 1, "a")
    attempt = Attempt(job_id=1, number=1, secret_hash="", nodes=(AttemptNode("a"), AttemptNode("b")), opened_us=0)
    with cluster.database.read() as tx:
        step, again, later = (UnitOfWork(tx, cluster.context, cluster.now) for _ in range(3))
    assert (finished.add(step, place), finished.add(step, place), finished.nodes_left(attempt)) == (True, False, ["b"])
    assert finished.add(again, place)  # the first step was undone
    finished.mark_written([Exited("a", Report(*place, "", EXITED))], [])
    assert not finished.add(later, place)
    finished.mark_written([], [ForgetAttempts("a", ((1, 1),))])
    assert finished.nodes_left(attempt) == ["a", "b"]


def test_a_step_that_is_undone_and_done_again_changes_nothing(cluster, monkeypatch):
    """As it is when the connection to the database breaks, or its disk is full, before a step is committed."""

    class Undone(Exception):
        pass

    def undo(tx, change):
        change(tx)
        raise Undone

    def twice(change):
        with contextlib.suppress(Undone):
            write(lambda tx: undo(tx, change))
        return write(change)

    write = cluster.write
    monkeypatch.setattr(cluster, "write", twice)
    wide = cluster.submit("sleep 10", "/network_address=2,walltime=0:1:0")
    long = cluster.submit("sleep 100", "/network_address=2,walltime=0:1:0", after=(wide,))
    cluster.finish()
    normal = ["Waiting", "toLaunch", "Launching", "Running", "Finishing"]
    assert (cluster.story(wide), cluster.events(wide)) == ([*normal, "Terminated"], ["SWITCH_INTO_TERMINATE_STATE"])
    assert (cluster.story(long), cluster.events(long)) == ([*normal, "Error"], ["WALLTIME", "SWITCH_INTO_ERROR_STATE"])


def _cut_power(cluster, job):
    [node] = cluster.placed(job)
    cluster.unplug(node)
    cluster.nodes[node].reboot()
    cluster.plug_in(node)
    cluster.settle()


@pytest.mark.manual(197)
def test_dependants_wait_for_the_copy_after_a_power_cut(make):
    cluster = make(nodes=3)
    job = cluster.submit("sleep 100", types=("idempotent",))
    waits = cluster.submit("sleep 5", after=(job,))
    plain = cluster.submit("sleep 100", "/network_address=1,walltime=1")
    _cut_power(cluster, job)
    _cut_power(cluster, plain)
    copy = plain + 1
    assert (cluster.story(job)[-1], cluster.story(plain)[-1]) == ("Error", "Error")
    assert "RESUBMIT_JOB_AUTOMATICALLY" not in cluster.events(plain)
    cluster.finish()
    assert (cluster.job(copy).resubmit_of, cluster.story(copy)[-1]) == (job, "Terminated")
    assert cluster.job(waits).start >= cluster.job(copy).stop


def test_a_job_that_brings_its_nodes_down_is_not_run_for_ever(make):
    cluster = make(nodes=6)
    job = cluster.submit("sleep 100", types=("idempotent",))
    for copy in range(job + 1, job + 4):
        _cut_power(cluster, copy - 1)
        assert cluster.job(copy).state is JobState.RUNNING
    _cut_power(cluster, job + 3)
    assert cluster.all_over()
    assert "RESUBMIT_JOB_AUTOMATICALLY" not in cluster.events(job + 3)


def test_a_lost_job_that_somebody_ended_is_not_run_again(cluster):
    job = cluster.submit("sleep 100", types=("idempotent",))
    [node] = cluster.placed(job)
    cluster.unplug(node)
    cluster.kill(job)
    cluster.nodes[node].reboot()
    cluster.plug_in(node)
    cluster.finish()
    assert cluster.story(job)[-1] == "Error"
    assert "RESUBMIT_JOB_AUTOMATICALLY" not in cluster.events(job)


def _used(cluster, job):
    with cluster.database.read() as tx:
        return [(one.cpu_seconds, one.memory_peak_bytes, one.detail) for one in summaries.of_jobs(tx, [job])]


def test_usage_counts_once_when_reports_come_again(cluster):
    job = cluster.submit("sleep 1000", "/network_address=2,walltime=1")
    first, second = (
        Exited(node, Report(job, 1, node, f"{node}-1", outcome, 0, started=1.0, ended=9.0, counters=counted))
        for node, outcome, counted in (
            ("node1", EXITED, {"cpu_seconds_total": 5.0, "memory_peak_bytes": 100.0}),
            ("node2", CLEANED, {"cpu_seconds_total": 2.0, "memory_peak_bytes": 30.0}),
        )
    )
    cluster.unplug("node2")  # it has not heard yet that it may give its place back
    cluster.receive([first])
    cluster.restart()
    cluster.receive([first, first])  # told again: what the last server had heard is not in its successor's memory
    cluster.receive([second])
    once = _used(cluster, job)
    assert [(cpu, memory) for cpu, memory, _ in once] == [(7.0, 130)]
    cluster.restart()
    cluster.receive([second, first])
    assert _used(cluster, job) == once
    assert cluster.events(job).count("SWITCH_INTO_TERMINATE_STATE") == 1
