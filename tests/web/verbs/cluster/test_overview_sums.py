"""The overview beside `GET /resources`, `GET /jobs` and the energy ledger: the same sums at the same instant."""

import os

import pytest

from oarlock.node.measure.wire import encode_sample
from oarlock.server.collecting.bookkeeping import EnergyBooker
from oarlock.server.collecting.messages import BookedEnergy
from tests.clusters import add_nodes
from tests.store.cluster import add_job, run
from tests.web.nodeless_server import NOW, alone

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be several users")

WATTS, CORES, PERIOD, SAMPLES = 200.0, 4, 10, 7
SECONDS = PERIOD * (SAMPLES - 1)
BUSY = {1: 0.5, 2: 2.0}  # CPUs in use by each job
HELD = {1: 1, 2: 2}


def _machine(age):
    idle = {f'core_cpu_seconds_total{{core="{core}",mode="user"}}': 0.0 for core in range(CORES)}
    return {'power_watts{meter="redfish"}': WATTS, 'cpu_seconds_total{mode="user"}': 2.5 * age, **idle}


def _sample(core, at, age):
    jobs = {job: {"cpus": float(HELD[job]), "cpu_seconds_total": BUSY[job] * age} for job in BUSY}
    data = encode_sample(at, _machine(age), jobs)
    core.collector.collector.take("n1", data, set(jobs), at=at)
    core.live.take("n1", data, set(jobs), at=at)


def test_the_overviews_watts_are_what_the_ledger_books_meanwhile(sqlite_path):
    with alone(sqlite_path, job_min_uid=1) as api:
        core, begin = api.core, float(NOW - SECONDS)
        cores = core.database.write(lambda tx: add_nodes(tx, ["n1"], cores=CORES, at=NOW - SECONDS))
        for place in (cores[:1], cores[1:3]):
            core.database.write(lambda tx, place=place: run(tx, add_job(tx), place, at=NOW - SECONDS))
        core.collector.collector.begin_energy({}, now=begin)
        for number in range(SAMPLES):
            _sample(core, begin + PERIOD * number, float(PERIOD * number))
        booked = core.collector.collector.energy.hand_over()
        EnergyBooker(core.database).take(BookedEnergy(list(booked.items())))
        core.database.write(lambda _: None)  # the writer takes changes in their order
        root = api.client_of("root")
        shown = root.get("/overview").body
        [ledger] = root.get("/energy?by=node").body["rows"]
        by_job = {row["group"]["job"]: row["joules"] for row in root.get("/energy?by=job").body["rows"]}
        resources = root.get("/resources").body["resources"]
        listed = root.get("/jobs?states=Running").body["jobs"]
    power, meter = shown["power"], ledger["meter"]
    assert (power["watts"], power["nodes"]) == (WATTS, 1)
    assert power["watts"] * SECONDS == pytest.approx(meter["joules"])
    assert (power["working"] + power["idle"]) * SECONDS == pytest.approx(ledger["joules"])
    assert (power["free"] + power["down"]) * SECONDS == pytest.approx(meter["idle_joules"])
    assert by_job == pytest.approx({job: WATTS / CORES * held * SECONDS for job, held in HELD.items()})
    assert power["working"] == pytest.approx(WATTS / CORES * sum(BUSY.values()))
    assert shown["cores"]["total"] == len(resources) == CORES
    assert shown["cores"]["held"] == sum(HELD.values())
    assert sum(queue["running"] for queue in shown["queues"]) == len(listed) == len(HELD)
