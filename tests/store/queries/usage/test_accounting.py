"""Accounts are the time of ended jobs, added once."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from oarlock.model.job import JobState
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.cluster import resources
from oarlock.store.queries.job import jobs
from oarlock.store.queries.usage import accounting
from oarlock.store.queries.usage.accounting import AccountingRow
from tests.clusters import add_nodes
from tests.store.cluster import add_job, run, step

DAY = 86400
S = JobState


def _cases() -> list[Any]:
    path = Path(__file__).parents[5] / "shared" / "data" / "oar-cases.json"
    if not path.exists():
        return []
    return [
        pytest.param(case, id=case["id"])
        for case in json.loads(path.read_text())["cases"]
        if case["kind"] == "accounting"
    ]


def _ran(tx: Tx, on: list[int], start: int, stop: int, *, walltime: str = "1", **fields: Any) -> int:
    job = run(tx, add_job(tx, f"/core=1,walltime={walltime}", submitted=0, **fields), on, at=start)
    step(tx, step(tx, job, S.FINISHING, at=stop), S.TERMINATED, at=stop)
    return job.id


@pytest.mark.parametrize("case", _cases() or [pytest.param(None, marks=pytest.mark.skip("../shared/data is not here"))])
def test_sums_are_those_of_other_oar_servers(tx: Tx, case: dict[str, Any]):
    asked = case["input"]
    cores = add_nodes(tx, ["a"], cores=max(job["resources"] for job in asked["jobs"]))
    for job in asked["jobs"]:
        walltime = f"0:0:{job['walltime']}"
        _ran(
            tx,
            cores[: job["resources"]],
            job["start"],
            job["stop"],
            walltime=walltime,
            user=job["user"],
            project=job["project"],
        )
    accounting.update_accounts(tx, window=asked["window"])
    by_user: dict[str, Counter[str]] = {"USED": Counter(), "ASKED": Counter()}
    by_project: dict[str, Any] = {"USED": {}, "ASKED": {}}
    for row in accounting.listed(tx):
        by_user[row.kind][row.user] += row.consumption
        by_project[row.kind].setdefault(row.project, Counter())[row.user] += row.consumption
    assert case["expected"] in (by_user, by_project)


@pytest.mark.manual(78, 165, 199)
def test_a_job_is_split_at_the_windows_and_counted_once(tx: Tx):
    cores = add_nodes(tx, ["a"], cores=3)
    number = _ran(tx, cores, DAY - 10, DAY + 20, project="p")
    expected = [
        AccountingRow(0, DAY - 1, "ada", "p", "default", "ASKED", 30),
        AccountingRow(0, DAY - 1, "ada", "p", "default", "USED", 30),
        AccountingRow(DAY, 2 * DAY - 1, "ada", "p", "default", "ASKED", 3 * 3590),
        AccountingRow(DAY, 2 * DAY - 1, "ada", "p", "default", "USED", 60),
    ]
    assert accounting.update_accounts(tx, window=DAY) == 1
    assert accounting.listed(tx) == expected
    assert jobs.get(tx, number).accounted
    assert accounting.update_accounts(tx, window=DAY) == 0
    assert accounting.listed(tx) == expected
    _ran(tx, cores[:1], DAY + 5, DAY + 6, project="p")
    accounting.update_accounts(tx, window=DAY)
    assert [row.consumption for row in accounting.listed(tx, since=DAY)] == [3 * 3590 + 3600, 61]
    assert accounting.listed(tx, until=DAY) == expected[:2]
    assert accounting.listed(tx, user="bob") == []


def test_jobs_that_did_not_compute_count_nothing(tx: Tx):
    [licence] = resources.add(tx, [{"type": "licence"}], at=0)
    cores = add_nodes(tx, ["a"])
    step(tx, add_job(tx, submitted=0), S.ERROR, at=50)  # never started
    _ran(tx, [licence], 10, 20)
    _ran(tx, cores, 10, 10)  # no time at all
    add_job(tx)  # not over
    assert accounting.update_accounts(tx, window=DAY) == 3
    assert accounting.listed(tx) == []
    assert accounting.update_accounts(tx, window=DAY) == 0


def test_resources_of_other_types_count_beside_those_that_compute(tx: Tx):
    [licence] = resources.add(tx, [{"type": "licence"}], at=0)
    cores = add_nodes(tx, ["a"])
    _ran(tx, [licence, *cores], 10, 20)
    accounting.update_accounts(tx, window=DAY)
    assert [row.consumption for row in accounting.listed(tx) if row.kind == "USED"] == [30]


@pytest.mark.manual(79)
def test_accounts_can_be_made_again_from_the_jobs(tx: Tx):
    cores = add_nodes(tx, ["a"])
    for start in range(0, 5 * DAY, 40_000):
        _ran(tx, cores, start + 1, start + 30_000, user=f"u{start % 3}")
    while accounting.update_accounts(tx, window=DAY, most=2):
        pass
    before = accounting.listed(tx)
    accounting.reinitialize(tx)
    assert accounting.listed(tx) == []
    accounting.update_accounts(tx, window=DAY)
    assert accounting.listed(tx) == before


def test_what_a_job_adds_is_noted_with_the_new_sums(tx: Tx):
    cores = add_nodes(tx, ["a"], cores=2)
    first = _ran(tx, cores, 100, 110, user="ada")
    second = _ran(tx, cores[:1], 200, 230, user="ada")
    accounting.update_accounts(tx, window=DAY, ids=[first])
    bookings: list[accounting.Booking] = []
    assert accounting.update_accounts(tx, window=DAY, bookings=bookings) == 1
    row = AccountingRow(0, DAY - 1, "ada", "default", "default", "USED", 50)
    assert bookings == [
        accounting.Booking(second, row, created=False),
        accounting.Booking(second, row._replace(kind="ASKED", consumption=2 * 3600 + 3600), created=False),
    ]
    assert {booking.account for booking in bookings} == set(accounting.listed(tx))


@pytest.mark.manual(80)
def test_old_windows_can_be_forgotten(tx: Tx):
    cores = add_nodes(tx, ["a"])
    _ran(tx, cores, 10, 20)
    _ran(tx, cores, DAY + 10, DAY + 20)
    accounting.update_accounts(tx, window=DAY)
    assert accounting.delete_before(tx, DAY) == 2
    assert {row.window_start for row in accounting.listed(tx)} == {DAY}
