"""Summaries: what nodes reported and samples said of jobs, by attempt and node, and the sums of days."""

import json
import random
from typing import Any

import pytest

from oarlock.job import summaries as summarising
from oarlock.model.job import JobState
from oarlock.model.summary import (
    DayUsage,
    EnergyOfJob,
    MeasuredJob,
    NodeMeasured,
    UsageTotals,
    parse_detail,
    totals,
)
from oarlock.node.wire.messages import EXITED, FAILED, Report
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.job import jobs, scripts
from oarlock.store.queries.usage import energy, software, summaries
from oarlock.store.queries.usage.energy import BookedDay, MeteredDay
from oarlock.store.queries.usage.software import SoftwareQuestion, SoftwareSums
from oarlock.store.queries.usage.summaries import Summary
from tests.clusters import NOW, add_nodes
from tests.store.cluster import add_job, run, step

DAY = summarising.DAY
MIDNIGHT = (NOW // DAY + 1) * DAY


def _report(job: int, attempt: int, node: str, ran: float, **counters: float) -> Report:
    outcome = EXITED if attempt > 1 else FAILED
    return Report(job, attempt, node, "boot", outcome, 0, ran=ran, counters=counters)


def test_a_second_attempt_on_the_same_node_does_not_replace_the_first(tx: Tx):
    job = add_job(tx).id
    first = _report(job, 1, "n1", 10.0, cpu_seconds_total=5.0, memory_peak_bytes=900.0, read_bytes_total=7.0, cpus=2.0)
    summarising.keep_reports(tx, [first], now=NOW)
    later = {"cpu_seconds_total": 30.0, "memory_peak_bytes": 400.0, "cpus": 4.0, "memory_limit_bytes": 500.0}
    second = [_report(job, 2, node, 20.0, **later) for node in ("n1", "n2")]
    summarising.keep_reports(tx, second, now=NOW + 1)
    summarising.keep_reports(tx, [second[0]], now=NOW + 2)  # told again
    [kept] = summaries.of_jobs(tx, [job])
    assert (kept.cpu_seconds, kept.memory_peak_bytes, kept.read_bytes, kept.written_bytes) == (65.0, 900, 7, None)
    assert totals(parse_detail(kept.detail)) == UsageTotals(
        nodes=("n1", "n2"),
        seconds=30.0,
        cpus=8,
        cpu_seconds=65.0,
        cpu_seconds_offered=2 * 10.0 + 2 * 4 * 20.0,
        memory_peak_bytes=900,
        memory_limit_bytes=1000,
        read_bytes=7,
        coverage=0.0,
    )


def test_a_report_that_comes_again_keeps_what_samples_had_added(tx: Tx):
    job = add_job(tx).id
    summarising.keep_reports(
        tx, [_report(job, 2, "n1", 10.0, cpu_seconds_total=5.0, memory_own_peak_bytes=7.0)], now=NOW
    )
    summarising.keep_reports(tx, [_report(job, 2, "n1", 10.0, cpu_seconds_total=5.0)], now=NOW)
    [kept] = summaries.of_jobs(tx, [job])
    assert totals(parse_detail(kept.detail)).memory_own_peak_bytes == 7


def test_counters_from_before_attempts_had_numbers_still_count(tx: Tx):
    job = add_job(tx).id
    summaries.save(
        tx, [Summary(job_id=job, date=NOW, detail=json.dumps({"nodes": {"n1": {"cpu_seconds_total": 5.0}}}))]
    )
    summarising.keep_reports(tx, [_report(job, 2, "n1", 1.0, cpu_seconds_total=2.0)], now=NOW)
    assert [row.cpu_seconds for row in summaries.of_jobs(tx, [job])] == [7.0]


def _measured(**fields: Any) -> MeasuredJob:
    """One attempt on n1 with samples since a minute before midnight."""
    node = NodeMeasured(since=MIDNIGHT - 60, until=MIDNIGHT + 60, samples=13, seconds=120, cores=2, **fields)
    days = {
        MIDNIGHT - DAY: DayUsage(core_busy_seconds=50, memory_asked_byte_seconds=600, memory_used_byte_seconds=300),
        MIDNIGHT: DayUsage(core_busy_seconds=70, memory_asked_byte_seconds=600, memory_used_byte_seconds=60),
    }
    return MeasuredJob(nodes={"1": {"n1": node}}, days=days)


def _running(tx: Tx) -> int:
    """A job of ada's for moon that began 100 s before midnight on two cores."""
    cores = add_nodes(tx, ["n1"])
    return run(tx, add_job(tx, user="ada", project="moon"), cores[:2], at=MIDNIGHT - 100).id


def _end(tx: Tx, job: int, at: int) -> None:
    for state in (JobState.FINISHING, JobState.TERMINATED):
        step(tx, jobs.get(tx, job), state, at=at)


def _sums(tx: Tx) -> dict[int, DayUsage]:
    rows = summaries.usage_by(tx, ["day", "user", "project", "queue"], since=0, until=2**40, most=100)
    assert {row.group[1:] for row in rows} == {("ada", "moon", "default")}
    return {int(row.group[0]): row.usage for row in rows}


def test_a_day_has_what_was_measured_in_it_and_the_cores_that_were_held(tx: Tx):
    job = _running(tx)
    measured = _measured(cpu_seconds=120.0)
    for now in (MIDNIGHT + 60, MIDNIGHT + 60):  # handed over again: counts once
        summarising.keep_measured(tx, {job: measured, 999: measured}, now=now)
    assert _sums(tx) == {
        MIDNIGHT - DAY: DayUsage(
            jobs=1, core_seconds=200, core_busy_seconds=50, memory_asked_byte_seconds=600, memory_used_byte_seconds=300
        ),
        MIDNIGHT: DayUsage(
            core_seconds=120, core_busy_seconds=70, memory_asked_byte_seconds=600, memory_used_byte_seconds=60
        ),
    }


def test_what_only_the_last_report_knows_belongs_to_the_day_of_the_end(tx: Tx):
    job = _running(tx)
    summarising.keep_measured(tx, {job: _measured(cpu_seconds=120.0)}, now=MIDNIGHT + 60)
    _end(tx, job, MIDNIGHT + 80)
    summarising.keep_reports(tx, [_report(job, 1, "n1", 180.0, cpu_seconds_total=130.0, cpus=2.0)], now=MIDNIGHT + 80)
    assert [summarising.book(tx, now=MIDNIGHT + 90) for _ in range(2)] == [1, 0]
    usage = _sums(tx)[MIDNIGHT]
    assert (usage.core_seconds, usage.core_busy_seconds) == (160, 80)
    [row] = summaries.of_jobs(tx, [job])
    assert (row.run_seconds, row.core_seconds, row.cpu_seconds, row.booked) == (180, 360, 130, 1)
    # The last samples come after the report: nothing is lost, nothing counts twice.
    summarising.keep_measured(tx, {job: _measured(cpu_seconds=120.0)}, now=MIDNIGHT + 100)
    assert _sums(tx)[MIDNIGHT] == usage


def test_a_job_that_was_never_sampled_is_in_the_sums(tx: Tx):
    job = _running(tx)
    _end(tx, job, MIDNIGHT - 98)
    summarising.keep_reports(tx, [_report(job, 1, "n1", 2.0, cpu_seconds_total=1.0, cpus=2.0)], now=MIDNIGHT - 98)
    summarising.book(tx, now=MIDNIGHT)
    assert _sums(tx) == {MIDNIGHT - DAY: DayUsage(jobs=1, core_seconds=4, core_busy_seconds=1)}


def test_energy_comes_from_the_ledger_with_its_method_and_coverage(tx: Tx):
    job = _running(tx)
    days = [MeteredDay("n1", MIDNIGHT, method, 9000, 0, 0, 30.0, 1) for method in ("controller", "rapl")]
    energy.book(tx, [BookedDay(day, {job: 2250}, {job: 30.0}) for day in days])
    for _ in range(2):
        summarising.keep_measured(tx, {job: _measured(cpu_seconds=120.0)}, now=MIDNIGHT + 60)
    [row] = summaries.of_jobs(tx, [job])
    assert row.energy_joules == 4.5
    assert parse_detail(row.detail).energy == EnergyOfJob(methods=("controller", "rapl"), seconds=60.0)
    assert {day: usage.energy_joules for day, usage in _sums(tx).items()} == {MIDNIGHT - DAY: 0, MIDNIGHT: 4.5}


def test_a_log_that_was_lost_does_not_take_back_what_was_booked(tx: Tx):
    job = _running(tx)
    summarising.keep_measured(tx, {job: _measured(cpu_seconds=120.0)}, now=MIDNIGHT + 60)
    before = _sums(tx)[MIDNIGHT].memory_used_byte_seconds
    begun_again = MeasuredJob(nodes={"1": {"n1": NodeMeasured(since=MIDNIGHT + 70, samples=1, cores=2)}})
    summarising.keep_measured(tx, {job: begun_again}, now=MIDNIGHT + 80)
    assert _sums(tx)[MIDNIGHT].memory_used_byte_seconds == before
    assert summaries.of_jobs(tx, [job])[0].samples == 13


def test_sums_of_days_are_those_of_the_summaries_whatever_comes_when(tx: Tx):
    """Reports, samples and bookings in any order: the sums are what the summaries of the jobs say."""
    dice = random.Random(5)
    cores = add_nodes(tx, ["n1"])
    numbers = [run(tx, add_job(tx, user="ada"), cores[:1], at=MIDNIGHT - 100).id for _ in range(4)]
    for turn in range(60):
        job, now = dice.choice(numbers), MIDNIGHT + turn * 7
        match dice.randrange(3):
            case 0:
                node = NodeMeasured(since=MIDNIGHT - 90, until=now, samples=turn + 1, seconds=turn, cores=1,
                                    cpu_seconds=turn)  # fmt: skip
                days = {MIDNIGHT: DayUsage(core_busy_seconds=turn, gpu_seconds=turn / 3)}
                summarising.keep_measured(tx, {job: MeasuredJob(nodes={"1": {"n1": node}}, days=days)}, now=now)
            case 1:
                report = _report(job, dice.randrange(1, 3), "n1", turn, cpu_seconds_total=turn / 2, cpus=1.0)
                summarising.keep_reports(tx, [report], now=now)
            case _:
                summarising.book(tx, now=now)
    summarising.book(tx, now=MIDNIGHT + 1000)
    of_jobs = [parse_detail(row.detail).days for row in summaries.of_jobs(tx, numbers)]
    [sums] = summaries.usage_by(tx, [], since=0, until=2**40, most=1)
    for name in DayUsage.__struct_fields__:
        expected = sum(getattr(usage, name) for days in of_jobs for usage in days.values())
        assert getattr(sums.usage, name) == pytest.approx(expected), name
    assert sums.usage.jobs == len(of_jobs)


def test_what_a_job_ran_is_counted_once_when_it_is_over(tx: Tx):
    job = _running(tx)
    [started] = jobs.get_many(tx, [job])
    scripts.keep_submitted(tx, [(started.array_id, "module load gcc/12\n./solver\n")], now=NOW)
    measured = _measured(cpu_seconds=200.0, executable_cpu_seconds={"solver": 150.0, "python3": 50.0})
    summarising.keep_measured(tx, {job: measured}, now=MIDNIGHT + 60)
    assert _software(tx) == {}, "it still runs"
    for state in (JobState.FINISHING, JobState.TERMINATED):
        started = step(tx, started, state, at=MIDNIGHT + 60)
    for _ in range(2):  # handed over twice
        summarising.keep_measured(tx, {job: measured}, now=MIDNIGHT + 60)
    [kept] = summaries.of_jobs(tx, [job])
    held, used = kept.core_seconds, kept.cpu_seconds
    assert _software(tx) == {
        ("executable", "python3"): SoftwareSums(1, held / 4, used / 4),
        ("executable", "solver"): SoftwareSums(1, held * 3 / 4, used * 3 / 4),
        ("module", "gcc/12"): SoftwareSums(1, held, used),
    }
    better = _measured(cpu_seconds=200.0, executable_cpu_seconds={"solver": 200.0})
    summarising.keep_measured(tx, {job: better}, now=MIDNIGHT + 90)
    assert _software(tx) == {
        ("executable", "solver"): SoftwareSums(1, held, used),
        ("module", "gcc/12"): SoftwareSums(1, held, used),
    }


def _software(tx: Tx) -> dict[tuple[str, str], SoftwareSums]:
    question = SoftwareQuestion(MIDNIGHT - DAY, MIDNIGHT + DAY)
    return {(total.kind, total.name): total.sums for total in software.most_used(tx, question, most=10)}
