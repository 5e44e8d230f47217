"""How jobs live: every way through the states of the manual."""

import pytest

from oarlock.job import explain
from oarlock.job.run import kill
from oarlock.job.run.reports import JobResumed, JobSuspended
from oarlock.model.job import JobState, Reservation
from oarlock.model.resource import NextState
from oarlock.simulate.cluster import BEGIN, FRONTEND

NORMAL = ["Waiting", "toLaunch", "Launching", "Running", "Finishing", "Terminated"]
KILLED = [*NORMAL[:-1], "Error"]


@pytest.mark.manual(78, 107)
def test_a_job_runs_ends_and_is_accounted(cluster):
    job = cluster.submit("sleep 10")
    cluster.finish()
    assert cluster.story(job) == NORMAL
    assert cluster.events(job) == ["SWITCH_INTO_TERMINATE_STATE"]
    ended = cluster.job(job)
    assert (ended.start, ended.stop, ended.exit_code, ended.accounted) == (BEGIN, BEGIN + 10, 0, True)
    assert cluster.used() == 10
    [attempt] = cluster.attempts(job)
    assert (attempt.number, attempt.exit_code, attempt.outcome) == (1, 0, "exited")
    assert attempt.closed_us is not None


def test_a_command_that_fails_is_still_terminated_with_its_raw_status(cluster):
    job = cluster.submit("sleep 1 exit 3")
    cluster.finish()
    assert (cluster.story(job), cluster.job(job).exit_code) == (NORMAL, 3 << 8)


def test_jobs_wait_for_each_other_where_there_is_room_for_one(make):
    cluster = make(nodes=1, cores=1)
    first, second = cluster.submit("sleep 10"), cluster.submit("sleep 10")
    assert (cluster.job(first).state, cluster.job(second).state) == (JobState.RUNNING, JobState.WAITING)
    cluster.finish()
    assert cluster.job(second).start == BEGIN + 10
    assert cluster.used() == 20


@pytest.mark.manual(135)
def test_a_job_over_its_walltime_is_ended_by_its_node(cluster):
    job = cluster.submit("sleep 9999", "/core=1,walltime=0:1:0")
    cluster.finish()
    assert cluster.story(job) == KILLED
    assert cluster.events(job) == ["WALLTIME", "SWITCH_INTO_ERROR_STATE"]
    assert (cluster.job(job).exit_code, cluster.job(job).stop) == (None, BEGIN + 60)


@pytest.mark.manual(99, 129, 138)
def test_a_running_job_is_killed(cluster):
    job = cluster.submit("sleep 100")
    [answer] = cluster.kill(job)
    assert (answer.done, answer.says) == (True, f"Job {job} will be deleted in the near future.")
    assert cluster.story(job) == KILLED
    assert cluster.events(job) == ["FRAG_JOB_REQUEST", "SEND_KILL_JOB", "SWITCH_INTO_ERROR_STATE"]
    assert [one.done for one in cluster.kill(job)] == [False]


@pytest.mark.manual(99)
@pytest.mark.parametrize("held", [False, True])
def test_a_job_that_waits_or_is_held_is_killed_at_once(make, held):
    cluster = make(nodes=1, cores=1)
    cluster.submit("sleep 100")
    job = cluster.submit("sleep 100")
    if held:
        cluster.hold(job)
    cluster.kill(job)
    assert cluster.story(job) == ["Waiting", *(["Hold"] if held else []), "Error"]


def test_killing_what_does_not_exist_or_is_over_is_refused_in_a_sentence(cluster):
    job = cluster.submit("sleep 1")
    cluster.finish()
    answers = cluster.kill(99, job)
    assert [(one.done, one.kind, one.says) for one in answers] == [
        (False, "UnknownJob", "There is no job 99."),
        (False, "JobOver", f"Job {job} is already Terminated."),
    ]


@pytest.mark.manual(131, 181, 192)
def test_a_job_that_does_not_end_is_given_up(cluster):
    job = cluster.submit("sleep 9999 deaf")
    cluster.nodes["node1"].runs[job, 1].ends = None
    cluster.kill(job)
    cluster.pass_time(290)
    assert cluster.job(job).state is JobState.RUNNING
    cluster.pass_time(30)
    assert cluster.story(job) == KILLED
    assert cluster.events(job)[-1] == "EXTERMINATE_JOB"
    assert cluster.states() == {"node1": {"Suspected"}, "node2": {"Alive"}}


@pytest.mark.manual(29, 63, 66)
def test_a_held_job_does_not_start_until_it_is_released(make):
    cluster = make(nodes=1, cores=1)
    first = cluster.submit("sleep 10")
    job = cluster.submit("sleep 10")
    cluster.hold(job)
    cluster.pass_time(50)
    assert (cluster.job(first).state, cluster.job(job).state) == (JobState.TERMINATED, JobState.HOLD)
    cluster.resume(job)
    cluster.finish()
    assert cluster.story(job) == ["Waiting", "Hold", *NORMAL]


def test_a_suspended_job_stands_still_and_its_walltime_with_it(cluster):
    job = cluster.submit("sleep 40", "/core=1,walltime=0:1:0")
    cluster.pass_time(10)
    cluster.hold(job, running=True)
    assert cluster.job(job).state is JobState.SUSPENDED
    cluster.pass_time(1000)
    cluster.resume(job)
    cluster.finish()
    assert cluster.story(job) == [*NORMAL[:4], "Suspended", "Resuming", *NORMAL[3:]]
    assert cluster.job(job).stop == BEGIN + 10 + 1000 + 30


def test_a_job_that_cannot_be_suspended_is_ended(cluster):
    job = cluster.submit("sleep 100")
    cluster.nodes["node1"].refuses_to_stop = True
    cluster.hold(job, running=True)
    assert cluster.story(job) == KILLED
    assert "SUSPEND_ERROR" in cluster.events(job)
    assert cluster.states()["node1"] == {"Alive"}


def test_a_job_whose_suspend_script_fails_is_ended_and_nobody_is_suspected(cluster):
    job = cluster.submit("sleep 1000")
    cluster.hold(job, running=True)
    cluster.receive([JobSuspended(job, 1, (), "the site's script ended with status 3")])
    cluster.finish()
    assert (cluster.events(job)[1], cluster.story(job)[-1]) == ("SUSPEND_ERROR", "Error")
    assert cluster.states() == {"node1": {"Alive"}, "node2": {"Alive"}}


def test_a_job_whose_resume_script_fails_is_ended_and_nobody_is_suspected(cluster):
    job = cluster.submit("sleep 1000")
    cluster.hold(job, running=True)
    cluster.resume(job)
    cluster.receive([JobResumed(job, 1, (), "the site's script ended with status 3")])
    cluster.finish()
    assert ("RESUME_ERROR" in cluster.events(job), cluster.story(job)[-1]) == (True, "Error")
    assert cluster.states() == {"node1": {"Alive"}, "node2": {"Alive"}}


def test_a_running_job_is_not_held_without_saying_so(cluster):
    job = cluster.submit("sleep 100")
    [answer] = cluster.hold(job)
    assert (answer.done, answer.kind) == (False, "IllegalMove")


@pytest.mark.manual(20)
def test_a_dependant_starts_after_the_job_it_waits_for(cluster):
    first = cluster.submit("sleep 20")
    second = cluster.submit("sleep 1", after=(first,))
    cluster.finish()
    assert cluster.job(second).start >= cluster.job(first).stop


@pytest.mark.manual(197)
def test_a_job_blocked_by_a_failed_one_waits_for_ever(cluster):
    first = cluster.submit("sleep 1 exit 1")
    second = cluster.submit("sleep 1", after=(first,))
    cluster.pass_time(5000)
    assert cluster.job(second).state is JobState.WAITING


@pytest.mark.manual(189)
def test_a_job_on_two_nodes_prepares_both_and_gives_both_back(cluster):
    job = cluster.submit("sleep 10", "/network_address=2,walltime=1")
    assert cluster.placed(job) == ["node1", "node2"]
    assert [len(node.runs) for node in cluster.nodes.values()] == [1, 1]
    cluster.finish()
    assert cluster.story(job) == NORMAL
    assert [(node.ran, node.runs) for node in cluster.nodes.values()] == [([(job, 1)], {}), ([], {})]
    assert cluster.used() == 40


def test_a_noop_job_runs_nothing_and_ends_at_its_walltime(cluster):
    job = cluster.submit("", "/core=1,walltime=0:1:0", types=("noop",))
    assert cluster.job(job).state is JobState.RUNNING
    cluster.pass_time(80)
    assert cluster.story(job) == ["Waiting", "toLaunch", "Launching", "Running", "Terminated"]
    assert cluster.attempts(job) == []
    assert cluster.events(job) == ["WALLTIME", "SWITCH_INTO_TERMINATE_STATE"]


@pytest.mark.manual(159, 203, 204)
@pytest.mark.parametrize("kind", ["deploy", "cosystem"])
def test_deploy_and_cosystem_jobs_run_on_the_frontend(make, kind):
    cluster = make(deploy_hostname=FRONTEND, cosystem_hostname=FRONTEND)
    job = cluster.submit("sleep 10", types=(kind,))
    limits = cluster.frontend.runs[job, 1].launch.limits
    cluster.finish()
    assert cluster.story(job) == NORMAL
    assert (cluster.frontend.ran, cluster.nodes["node1"].ran) == ([(job, 1)], [])
    assert (limits.memory, limits.pids) == (2 << 30, 512)


@pytest.mark.parametrize("kind", ["deploy", "cosystem"])
def test_where_no_frontend_is_set_nothing_runs_on_the_server(cluster, kind):
    job = cluster.submit("sleep 10", types=(kind,))
    assert (cluster.story(job)[-1], cluster.events(job)) == ("Error", ["RESERVATION_NO_NODE"])
    assert cluster.frontend.ran == []


@pytest.mark.manual(12)
def test_a_reservation_is_acknowledged_and_starts_at_its_date(cluster):
    job = cluster.submit(
        "sleep 10", reservation=Reservation.TO_SCHEDULE, start=BEGIN + 100, asked="/network_address=2,walltime=0:1:0"
    )
    assert cluster.story(job) == ["Waiting", "toAckReservation", "Waiting"]
    small = cluster.submit("sleep 300", "/core=1,walltime=0:10:0")
    cluster.run_until(job, JobState.RUNNING)
    assert cluster.job(job).start == BEGIN + 100
    cluster.finish()
    assert cluster.story(job) == ["Waiting", "toAckReservation", *NORMAL]
    assert cluster.job(small).start > BEGIN + 100


def test_a_reservation_without_a_command_keeps_its_resources(cluster):
    job = cluster.submit(
        "", reservation=Reservation.TO_SCHEDULE, start=BEGIN + 100, asked="/network_address=2,walltime=0:5:0"
    )
    cluster.run_until(job, JobState.RUNNING)
    cluster.pass_time(290)
    assert cluster.job(job).state is JobState.RUNNING
    cluster.finish()
    assert (cluster.job(job).state, cluster.job(job).stop) == (JobState.TERMINATED, BEGIN + 399)


def test_a_reservation_whose_date_is_taken_names_another_date(cluster):
    cluster.submit("sleep 3600", "/network_address=2,walltime=1")
    job = cluster.submit("sleep 1", reservation=Reservation.TO_SCHEDULE, start=BEGIN + 100)
    assert cluster.story(job) == ["Waiting", "toError", "Error"]
    assert "the date is taken" in cluster.job(job).message
    with cluster.database.read() as tx:
        answer, told = explain.reservation(tx, job), explain.why(tx, cluster.context.config, job, now=cluster.now)
    assert (answer.accepted, answer.start) == (False, BEGIN + 3601)
    assert (told.says, told.start) == (f"it is over (Error): {cluster.job(job).message}", None)


@pytest.mark.manual(146)
def test_a_reservation_that_starts_late_is_shorter(cluster):
    job = cluster.submit(
        "sleep 9999", reservation=Reservation.TO_SCHEDULE, start=BEGIN + 100, asked="/network_address=2,walltime=0:10:0"
    )
    cluster.set_state("node2", NextState.ABSENT)
    cluster.pass_time(250)
    cluster.set_state("node2", NextState.ALIVE)
    cluster.run_until(job, JobState.RUNNING)
    assert "REDUCE_RESERVATION_WALLTIME" in cluster.events(job)
    cluster.finish()
    assert cluster.job(job).stop == BEGIN + 700


@pytest.mark.manual(136)
def test_a_reservation_starts_without_missing_resources(cluster):
    job = cluster.submit(
        "sleep 9999", reservation=Reservation.TO_SCHEDULE, start=BEGIN + 100, asked="/network_address=2,walltime=0:10:0"
    )
    cluster.set_state("node2", NextState.ABSENT)
    cluster.run_until(job, JobState.RUNNING)
    assert cluster.job(job).start == BEGIN + 400
    assert cluster.placed(job) == ["node1"]
    assert "SCHEDULER_REDUCE_NB_NODES_FOR_RESERVATION" in cluster.events(job)


def test_a_permissive_job_holds_nodes_that_are_away(cluster):
    cluster.set_state("node2", NextState.ABSENT)
    job = cluster.submit("", "/network_address=2,walltime=0:1:0", types=("noop", "state=permissive"))
    assert (cluster.job(job).state, cluster.placed(job)) == (JobState.RUNNING, ["node1", "node2"])
    cluster.finish()
    assert cluster.job(job).state is JobState.TERMINATED


def test_a_permissive_job_whose_node_does_not_answer_is_not_tried_again(make):
    cluster = make(nodes=1)
    cluster.unplug("node1")
    cluster.set_state("node1", NextState.SUSPECTED)
    job = cluster.submit("true", types=("state=permissive",))
    cluster.finish()
    assert cluster.story(job) == ["Waiting", "toLaunch", "Error"]
    assert cluster.events(job) == ["PING_CHECKER_NODE_SUSPECTED", "SWITCH_INTO_ERROR_STATE"]


@pytest.mark.manual(137, 145, 194, 202)
def test_a_best_effort_job_makes_room_and_its_copy_runs_later(make):
    cluster = make(nodes=1, cores=1)
    kind = {"queue": "besteffort", "types": ("besteffort", "idempotent"), "message": "R=1,W=1:0:0,J=B"}
    low = cluster.submit("sleep 1000", "/core=1,walltime=1", **kind)
    waits = cluster.submit("sleep 5", after=(low,))
    high = cluster.submit("sleep 20")
    cluster.run_until(high, JobState.TERMINATED)
    assert cluster.story(low) == KILLED
    assert cluster.events(low) == [
        "BESTEFFORT_KILL",
        "FRAG_JOB_REQUEST",
        "SEND_KILL_JOB",
        "SWITCH_INTO_ERROR_STATE",
        "RESUBMIT_JOB_AUTOMATICALLY",
    ]
    cluster.finish()
    copy = max(waits, high) + 1
    assert (cluster.job(copy).resubmit_of, cluster.story(copy)) == (low, NORMAL)
    assert cluster.job(copy).message == "R=1,W=1:0:0,J=B"
    assert cluster.job(waits).start >= cluster.job(copy).stop


def test_a_running_job_becomes_best_effort_and_ordinary_again(make):
    cluster = make(nodes=1, cores=1)
    job = cluster.submit("sleep 1000", "/core=1,walltime=1")
    waits = cluster.submit("sleep 20")
    never = waits + 1

    def switch(*numbers):
        return cluster.act(lambda tx: kill.switch_besteffort(tx, cluster.context, numbers, by="root", now=cluster.now))

    refused = switch(waits, never)
    assert [(answer.done, answer.kind) for answer in refused] == [(False, "JobNotRunning"), (False, "UnknownJob")]
    cluster.kill(waits)
    assert [answer.says for answer in switch(job)] == [f"Add besteffort type for the job {job}."]
    assert [answer.says for answer in switch(job)] == [f"Remove besteffort type for the job {job}."]
    second = cluster.submit("sleep 20")
    assert (cluster.job(job).types, cluster.job(second).state) == ((), JobState.WAITING)
    switch(job)
    cluster.finish()
    assert (cluster.story(job), cluster.story(second)) == (KILLED, NORMAL)
    assert cluster.events(job) == [
        "ADD_BESTEFFORT_JOB_TYPE",
        "DELETE_BESTEFFORT_JOB_TYPE",
        "ADD_BESTEFFORT_JOB_TYPE",
        "BESTEFFORT_KILL",
        "FRAG_JOB_REQUEST",
        "SEND_KILL_JOB",
        "SWITCH_INTO_ERROR_STATE",
    ]


@pytest.mark.manual(139, 195)
def test_a_best_effort_job_gets_its_checkpoint_signal_first(make):
    cluster = make(nodes=1, cores=1)
    low = cluster.submit("sleep 1000", queue="besteffort", types=("besteffort",), checkpoint=30)
    high = cluster.submit("sleep 20")
    assert cluster.nodes["node1"].runs[low, 1].checkpointed
    assert cluster.events(low) == ["BESTEFFORT_KILL", "CHECKPOINT"]
    cluster.finish()
    assert 30 <= cluster.job(low).stop - BEGIN <= 45
    assert cluster.story(high) == NORMAL


def test_a_plain_best_effort_job_is_not_copied(make):
    cluster = make(nodes=1, cores=1)
    low = cluster.submit("sleep 1000", queue="besteffort", types=("besteffort",))
    cluster.submit("sleep 20")
    cluster.finish()
    assert "RESUBMIT_JOB_AUTOMATICALLY" not in cluster.events(low)


@pytest.mark.manual(193)
@pytest.mark.parametrize(("seconds", "copies"), [(61, True), (30, False)])
def test_an_idempotent_job_is_copied_if_it_ran_for_a_minute(cluster, seconds, copies):
    job = cluster.submit(f"sleep {seconds} exit 99", types=("idempotent",))
    cluster.run_until(job, JobState.TERMINATED)
    assert ("RESUBMIT_JOB_AUTOMATICALLY" in cluster.events(job)) is copies


@pytest.mark.manual(75, 182)
def test_resources_taken_out_of_use_end_the_jobs_there(cluster):
    job = cluster.submit("sleep 1000")
    cluster.set_state("node1", NextState.ABSENT)
    assert cluster.story(job) == KILLED
    assert cluster.states() == {"node1": {"Absent"}, "node2": {"Alive"}}
    other = cluster.submit("sleep 10")
    assert cluster.placed(other) == ["node2"]


def priorities(cluster):
    return [one["scheduler_priority"] for one in cluster.resources()]


@pytest.mark.manual(109)
def test_best_effort_and_shared_jobs_count_in_scheduler_priority(make):
    cluster = make(cores=2)
    first = cluster.submit("sleep 100", types=("besteffort",), queue="besteffort")
    assert (cluster.placed(first), priorities(cluster)) == (["node1"], [6, 2, 0, 0])
    second = cluster.submit("sleep 100", types=("timesharing=*,*",))
    assert (cluster.placed(second), priorities(cluster)) == (["node2"], [6, 2, 60, 20])
    third = cluster.submit("sleep 300", types=("timesharing=*,*",))  # it could share a core, and need not
    assert (cluster.placed(third), priorities(cluster)) == (["node1"], [26, 62, 60, 20])
    with cluster.database.read() as tx:
        written = {attribute for (attribute,) in tx.exec_driver_sql("SELECT DISTINCT attribute FROM resource_logs")}
    assert "scheduler_priority" not in written
    cluster.pass_time(110)
    cluster.submit("sleep 1000")
    assert priorities(cluster) == [20, 60, 0, 0]
    cluster.finish()
    assert priorities(cluster) == [0, 0, 0, 0]


def test_scheduler_priority_is_counted_where_the_site_says(make):
    nowhere = make(scheduler_priority_hierarchy_order=())
    nowhere.submit("sleep 100", types=("besteffort",), queue="besteffort")
    assert set(priorities(nowhere)) == {0}
    cluster = make(cores=2, scheduler_priority_hierarchy_order=("colour", "type", "network_address"))
    cluster.submit("sleep 100", types=("besteffort",), queue="besteffort")
    assert priorities(cluster) == [10, 10, 4, 4]
    cluster.restart()
    cluster.submit("sleep 1")
    assert priorities(cluster) == [10, 10, 4, 4]
