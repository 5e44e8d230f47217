"""Programs of the site that fail: whose fault it is, what stops, and how it goes on."""

import pytest

from oarlock.job import explain, queue_states
from oarlock.job.run.reports import NodeReachable
from oarlock.model.event import EventType
from oarlock.model.job import JobState
from oarlock.simulate.cluster import BEGIN
from oarlock.store.queries.cluster import events
from oarlock.store.queries.site import administration
from tests.scenarios.cluster import Cluster

_HELD = "R=1,W=1:0:0,J=B (held: PROLOGUE_ERROR on purpose; `oarresume 1` tries again)"
_PATH = "/etc/oarlock/prologue"


@pytest.fixture
def cluster(database):
    return Cluster(database, prologue_exec_file=_PATH)


def _fail(cluster, word):
    for node in cluster.nodes.values():
        node.fails = word


def _start_queues(cluster):
    cluster.context.programs.forget()
    cluster.database.write(lambda tx: queue_states.start(tx, None, by="root", now=BEGIN))
    cluster.request_pass()
    cluster.settle()


def _active(cluster):
    with cluster.database.read() as tx:
        return {queue.name: queue.active for queue in administration.all_queues(tx)}["default"]


def _stops(cluster):
    """The events that tell of stopped queues: what they say, and whether somebody still has to look."""
    with cluster.database.read() as tx:
        noted = events.after(tx, 0, [EventType.QUEUES_STOPPED], most=100)
    return [(one.event.description, one.to_check) for one in noted]


def _all_alive(cluster):
    return set.union(*cluster.states().values()) == {"Alive"}


def test_a_prologue_that_refuses_a_job_holds_it_with_the_reason(cluster):
    _fail(cluster, "PROLOGUE_ERROR:exit")
    job = cluster.submit(message="R=1,W=1:0:0,J=B")
    assert (cluster.job(job).state, cluster.job(job).message) == ("Hold", _HELD)
    assert cluster.story(job) == ["Waiting", "toLaunch", "Launching", "Waiting", "Hold"]
    assert cluster.events(job) == ["PROLOGUE_ERROR", "HOLD_WAITING_JOB"]
    assert (_all_alive(cluster), _active(cluster)) == (True, True)
    _fail(cluster, "")
    cluster.resume(job)
    assert cluster.job(job).message == "R=1,W=1:0:0,J=B"
    cluster.finish()
    assert cluster.story(job)[-1] == "Terminated"


def test_a_prologue_that_fails_for_two_users_in_a_row_stops_the_queues(cluster):
    _fail(cluster, "PROLOGUE_ERROR:exit")
    mine, theirs = cluster.submit(), cluster.submit(user="bob")
    assert (_all_alive(cluster), _active(cluster)) == (True, False)
    assert [cluster.job(job).state for job in (mine, theirs)] == ["Waiting", "Waiting"]
    [(says, to_check)] = _stops(cluster)
    assert says.startswith("PROLOGUE_ERROR on purpose. No job starts any more in queues ")
    assert (says.endswith("`oarnotify -E` starts them again"), to_check) == (True, True)
    with cluster.database.read() as tx:
        assert explain.why(tx, cluster.context.config, theirs, now=BEGIN).says == f"queue `default` is stopped: {says}"
    _fail(cluster, "")
    _start_queues(cluster)
    cluster.finish()
    assert [cluster.story(job)[-1] for job in (mine, theirs)] == ["Terminated", "Terminated"]
    assert _stops(cluster) == [(says, False)]


def test_a_success_in_between_means_that_the_program_works(cluster):
    _fail(cluster, "PROLOGUE_ERROR:exit")
    cluster.submit()
    _fail(cluster, "")
    cluster.submit("sleep 1", user="carl")
    _fail(cluster, "PROLOGUE_ERROR:exit")
    other = cluster.submit(user="bob")
    assert (cluster.job(other).state, _active(cluster)) == ("Hold", True)


def test_a_node_where_alone_the_prologue_fails_is_suspected(cluster):
    cluster.nodes["node1"].fails = "PROLOGUE_ERROR:exit"
    for user in ("ada", "bob", "carl"):
        assert cluster.states()["node1"] == {"Alive"}
        cluster.submit(asked="{network_address = 'node1'}/core=1,walltime=1", user=user)
        cluster.submit("sleep 1", asked="{network_address = 'node2'}/core=1,walltime=1", user="dora")
        cluster.pass_time(5)
    assert (cluster.states()["node1"], _active(cluster)) == ({"Suspected"}, True)


@pytest.mark.parametrize("event", ["PROLOGUE_ERROR", "CPUSET_ERROR"])
def test_a_program_that_cannot_be_run_stops_the_queues(cluster, event):
    _fail(cluster, f"{event}:unusable")
    job = cluster.submit()
    for _ in range(4):
        _start_queues(cluster)
    assert (cluster.job(job).state, _all_alive(cluster), _active(cluster)) == ("Waiting", True, False)
    assert len(cluster.attempts(job)) == 5
    _fail(cluster, "")
    _start_queues(cluster)
    cluster.finish()
    assert cluster.story(job)[-1] == "Terminated"


def test_a_hanging_prologue_is_its_nodes_fault_until_two_users_meet(cluster):
    _fail(cluster, "PROLOGUE_ERROR:timeout")
    job = cluster.submit()
    assert (cluster.states()["node1"], cluster.states()["node2"]) == ({"Suspected"}, {"Suspected"})
    assert cluster.events(job) == ["PROLOGUE_ERROR", "PROLOGUE_ERROR"]


def test_a_node_without_a_sites_program_stops_the_queues(cluster):
    hello = cluster.nodes["node1"].greeting()
    lacking = type(hello)(**{**_fields(hello), "unusable": {_PATH: f"{_PATH} cannot be opened"}})
    for _ in range(2):
        cluster.receive([NodeReachable("node1", lacking)])
        cluster.settle()
    assert (_active(cluster), _all_alive(cluster)) == (False, True)
    [(says, _)] = _stops(cluster)
    assert says.startswith(f"PROLOGUE_EXEC_FILE on node1: {_PATH} cannot be opened. No job starts any more")


def _fields(record):
    return {name: getattr(record, name) for name in type(record).__slots__}


def _open_events(cluster):
    with cluster.database.read() as tx:
        return [str(one.event.type) for one in events.to_check(tx)]


def test_what_was_asked_of_jobs_is_checked_off_when_it_is_done(cluster):
    held = cluster.submit(state=JobState.HOLD)
    cluster.resume(held)
    assert _open_events(cluster) == []
    running = cluster.submit("sleep 500")
    cluster.hold(running, running=True)
    cluster.resume(running)
    cluster.hold(running, running=True)
    cluster.pass_time(20)
    cluster.kill(running)
    cluster.pass_time(60)
    assert (cluster.story(running)[-1], _open_events(cluster)) == ("Error", [])


def test_a_failed_server_prologue_is_checked_off_at_the_restart(database):
    cluster = Cluster(database, server_prologue_exec_file=_PATH)
    cluster.scripts["prologue"] = EventType.SERVER_PROLOGUE_EXIT_CODE_ERROR
    cluster.submit()
    assert _open_events(cluster) == ["QUEUES_STOPPED"]
    _start_queues(cluster)
    assert _open_events(cluster) == []


def test_stopped_and_started_queues_are_noted_with_the_name(cluster):
    def write(step, names):
        cluster.database.write(lambda tx: step(tx, names, by="root", now=BEGIN))

    write(queue_states.stop, ["default"])
    write(queue_states.stop, ["default"])
    [(says, to_check)] = _stops(cluster)
    assert (says, to_check) == ("queue default stopped by root; `oarnotify -e default` starts it again", True)
    write(queue_states.start, None)
    with cluster.database.read() as tx:
        [started] = events.after(tx, 0, [EventType.QUEUES_STARTED], most=10)
    assert (started.event.description, _stops(cluster)[0][1]) == ("queue default started by root", False)
