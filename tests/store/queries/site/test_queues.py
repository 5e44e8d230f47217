"""Queues and quotas."""

import pytest

from oarlock.model.errors import QueueExists, QueueInUse, UnknownQueue
from oarlock.model.job import JobState
from oarlock.model.snapshot import Queue, QuotaRule
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.site import administration
from tests.store.cluster import add_job, step


def _states(tx: Tx) -> dict[str, bool]:
    return {queue.name: queue.active for queue in administration.all_queues(tx)}


def test_queues_are_listed_by_decreasing_priority(tx: Tx):
    administration.add_queue(tx, Queue("night", 5, "oar_sched_gantt_with_timesharing", active=False))
    assert [(queue.name, queue.priority, queue.active) for queue in administration.all_queues(tx)] == [
        ("admin", 10, True),
        ("night", 5, False),
        ("default", 2, True),
        ("besteffort", 0, True),
    ]


def test_a_queue_is_not_added_twice(tx: Tx):
    with pytest.raises(QueueExists, match="already a queue `admin`"):
        administration.add_queue(tx, Queue("admin", 3, "x"))


def test_a_queue_is_removed_when_no_job_is_left_in_it(tx: Tx):
    job = add_job(tx, queue="admin")
    with pytest.raises(QueueInUse, match="1 jobs are still in queue `admin`"):
        administration.remove_queue(tx, "admin")
    step(tx, job, JobState.ERROR)
    administration.remove_queue(tx, "admin")
    assert list(_states(tx)) == ["default", "besteffort"]
    with pytest.raises(UnknownQueue):
        administration.remove_queue(tx, "admin")


def test_queues_are_stopped_and_started(tx: Tx):
    administration.stop_queues(tx, ["default"])
    assert _states(tx) == {"admin": True, "default": False, "besteffort": True}
    administration.stop_queues(tx)
    assert _states(tx) == {"admin": False, "default": False, "besteffort": False}
    administration.start_queues(tx, ["admin", "default"])
    assert _states(tx) == {"admin": True, "default": True, "besteffort": False}
    with pytest.raises(UnknownQueue, match="no queue `day`"):
        administration.start_queues(tx, ["besteffort", "day"])
    assert _states(tx)["besteffort"] is False
    administration.start_queues(tx)
    assert all(_states(tx).values())


def test_quotas_are_replaced_as_a_whole_and_keep_their_order(tx: Tx):
    rules = [QuotaRule("*", "*", "*", "/", 100, 10, 3600), QuotaRule("default", "p", "deploy", "ada", jobs=1)]
    administration.put_quotas(tx, dict(enumerate(rules)))
    assert administration.all_quotas(tx) == rules
    administration.put_quotas(tx, dict(enumerate(rules[1:])))
    assert administration.all_quotas(tx) == rules[1:]
