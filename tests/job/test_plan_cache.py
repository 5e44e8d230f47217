"""Passes that follow each other keep what did not change, and find out when that was wrong."""

import logging

import pytest
from msgspec import structs

from oarlock.config import Config
from oarlock.job import plan_cache
from oarlock.job.plan_cache import CachedPlanner
from oarlock.job.run.starting import schedule
from oarlock.job.run.starting.apply import apply_decision
from oarlock.job.run.unit_of_work import StepContext
from oarlock.lang import request as requests
from oarlock.model.job import Job, JobState
from oarlock.model.limits import Maintenance
from oarlock.model.resource import ResourceOrder
from oarlock.plan.incremental.plan_cache import PlanCache
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.job import new_jobs
from oarlock.store.queries.planning import plans
from oarlock.store.queries.site import administration
from tests.clusters import NOW, add_nodes

CONFIG = Config(scheduler_job_security_time=0)
HOW = schedule.plan_settings(CONFIG)


@pytest.fixture
def tx(tx: Tx) -> Tx:
    add_nodes(tx, ["n0", "n1"], cores=1)
    return tx


def wait(tx: Tx, asked: str = "/core=1,walltime=0:1:40", count: int = 1) -> list[int]:
    job = Job(id=0, state=JobState.WAITING, user="ada", queue="default", submitted=NOW, command="true")
    return [one.id for one in new_jobs.add(tx, [new_jobs.NewJob(job, requests.parse([asked]))] * count)]


def keeper() -> CachedPlanner:
    return CachedPlanner(HOW, karma_window=CONFIG.karma_window)


def scratch(tx: Tx, now: int) -> schedule.Decision:
    return schedule.decide(schedule.read(tx, HOW, karma_window=CONFIG.karma_window, now=now), HOW, now=now)


def test_what_is_kept_decides_as_a_pass_from_scratch(tx: Tx):
    kept, site = keeper(), StepContext(CONFIG, b"key")
    for turn in range(4):
        wait(tx, count=3)
        whole = kept.whole(kept.read(tx, now=NOW + turn), now=NOW + turn)
        assert whole == scratch(tx, NOW + turn)
        starts = kept.starts(kept.read(tx, now=NOW + turn), now=NOW + turn)
        assert (starts.starts, starts.whole) == (whole.starts, False)
        assert set(starts.predictions) <= set(whole.predictions)
        apply_decision(tx, site, whole, {}, now=NOW + turn)


def test_where_limits_hold_every_pass_is_a_whole_one(tx: Tx):
    wait(tx, count=3)
    administration.add_maintenance(tx, Maintenance(0, "work", NOW + 50, NOW + 60, "", "root"))
    kept = keeper()
    assert kept.starts(kept.read(tx, now=NOW), now=NOW) == scratch(tx, NOW)


def test_a_kept_plan_that_fails_is_made_from_scratch_and_told(tx: Tx, monkeypatch, caplog):
    def fail(*_: object, **__: object) -> None:
        raise KeyError("lost")

    kept = keeper()
    wait(tx, count=3)
    kept.whole(kept.read(tx, now=NOW), now=NOW)
    monkeypatch.setattr(PlanCache, "_up_to_date", fail)
    assert kept.whole(kept.read(tx, now=NOW + 1), now=NOW + 1) == scratch(tx, NOW + 1)
    assert [one.message for one in caplog.records] == ["a cached plan failed, the pass starts from scratch"]


@pytest.mark.parametrize("wrong", [False, True])
def test_a_kept_plan_is_compared_now_and_then_and_not_used_if_it_is_wrong(tx: Tx, monkeypatch, caplog, wrong):
    caplog.set_level(logging.ERROR)
    kept = keeper()
    wait(tx, count=3)
    kept.whole(kept.read(tx, now=NOW), now=NOW)
    real = PlanCache.whole

    def forgetful(self: PlanCache, *seen: object, **more: object):
        plan = real(self, *seen, **more)
        return structs.replace(plan, placements=dict(list(plan.placements.items())[1:]), start=()) if wrong else plan

    monkeypatch.setattr(PlanCache, "whole", forgetful)
    soon, later = NOW + 1, NOW + plan_cache._TRUSTED_SECONDS
    assert (kept.whole(kept.read(tx, now=soon), now=soon) != scratch(tx, soon)) is wrong
    assert caplog.records == []
    assert kept.whole(kept.read(tx, now=later), now=later) == scratch(tx, later)
    assert [one.message for one in caplog.records] == ["a cached plan differs from one made from scratch"] * wrong


def test_only_what_changed_of_a_whole_plan_travels_and_is_written(tx: Tx):
    site = StepContext(CONFIG, b"key")
    wait(tx, "/core=2,walltime=0:1:40", count=3)
    apply_decision(tx, site, scratch(tx, NOW), {}, now=NOW)
    told = plans.read(tx)
    assert len(told) == 2
    [last] = wait(tx, "/core=2,walltime=0:1:40")
    decision = schedule.only_changes(scratch(tx, NOW), told)
    assert ([one.job_id for one in decision.predictions], decision.gone) == ([last], ())
    apply_decision(tx, site, decision, {}, now=NOW)
    whole = plans.read(tx)
    assert {number: whole[number] for number in told} == told
    assert len(whole) == 3
    empty = schedule.only_changes(structs.replace(decision, predictions=(), gone=None), whole)
    apply_decision(tx, site, empty, {}, now=NOW)
    assert (set(empty.gone or ()), plans.read(tx)) == (set(whole), {})


@pytest.mark.parametrize(("order", "later", "same"), [("", 59, True), ("", 60, False), ("last_job_date", 1, False)])
def test_the_end_of_a_job_makes_another_table_once_a_minute(tx: Tx, order: str, later: int, same: bool):
    how = structs.replace(HOW, order=(ResourceOrder(order), *HOW.order)) if order else HOW
    kept = CachedPlanner(how, karma_window=CONFIG.karma_window)
    before = kept.read(tx, now=NOW).snapshot.resources
    tx.exec_driver_sql(f"UPDATE resources SET last_job_date = {NOW} WHERE network_address = 'n0'")
    after = kept.read(tx, now=NOW + later).snapshot.resources
    assert (after is before, NOW in after.columns["last_job_date"]) == (same, not same)
    tx.exec_driver_sql("UPDATE resources SET state = 'Absent' WHERE network_address = 'n0'")
    assert "Absent" in kept.read(tx, now=NOW + later).snapshot.resources.columns["state"]
