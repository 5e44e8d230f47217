"""What jobs used, as their nodes reported it."""

import json

from oarlock.job.run import final_usage
from oarlock.job.run.final_usage import UsageTotals
from oarlock.node.wire.messages import EXITED, FAILED, Report
from oarlock.store.engine.tx import Tx
from oarlock.store.queries import accounting
from oarlock.store.queries.accounting import Summary
from tests.clusters import NOW
from tests.store.cluster import add_job


def _report(job: int, attempt: int, node: str, ran: float, **counters: float) -> Report:
    outcome = EXITED if attempt > 1 else FAILED
    return Report(job, attempt, node, "boot", outcome, 0, ran=ran, counters=counters)


def test_a_second_attempt_on_the_same_node_does_not_replace_the_first(tx: Tx):
    job = add_job(tx).id
    first = _report(job, 1, "n1", 10.0, cpu_seconds_total=5.0, memory_peak_bytes=900.0, read_bytes_total=7.0, cpus=2.0)
    final_usage.keep(tx, [first], now=NOW)
    later = {"cpu_seconds_total": 30.0, "memory_peak_bytes": 400.0, "cpus": 4.0, "memory_limit_bytes": 500.0}
    second = [_report(job, 2, node, 20.0, **later) for node in ("n1", "n2")]
    final_usage.keep(tx, second, now=NOW + 1)
    final_usage.keep(tx, [second[0]], now=NOW + 2)  # told again
    [kept] = accounting.summaries_of(tx, [job])
    assert (kept.cpu_seconds, kept.memory_peak_bytes, kept.read_bytes, kept.written_bytes) == (65.0, 900, 7, None)
    assert final_usage.totals(final_usage.attempts(kept.detail)) == UsageTotals(
        nodes=("n1", "n2"),
        seconds=30.0,
        cpus=8,
        cpu_seconds=65.0,
        cpu_seconds_offered=2 * 10.0 + 2 * 4 * 20.0,
        memory_peak_bytes=900,
        memory_limit_bytes=1000,
        read_bytes=7,
    )


def test_a_report_that_comes_again_keeps_what_samples_had_added(tx: Tx):
    job = add_job(tx).id
    final_usage.keep(tx, [_report(job, 2, "n1", 10.0, cpu_seconds_total=5.0, memory_own_peak_bytes=7.0)], now=NOW)
    final_usage.keep(tx, [_report(job, 2, "n1", 10.0, cpu_seconds_total=5.0)], now=NOW)
    [kept] = accounting.summaries_of(tx, [job])
    assert final_usage.totals(final_usage.attempts(kept.detail)).memory_own_peak_bytes == 7


def test_counters_from_before_attempts_had_numbers_still_count(tx: Tx):
    job = add_job(tx).id
    accounting.save_summaries(
        tx, [Summary(job_id=job, date=NOW, detail=json.dumps({"nodes": {"n1": {"cpu_seconds_total": 5.0}}}))]
    )
    final_usage.keep(tx, [_report(job, 2, "n1", 1.0, cpu_seconds_total=2.0)], now=NOW)
    assert [row.cpu_seconds for row in accounting.summaries_of(tx, [job])] == [7.0]
