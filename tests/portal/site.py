"""A made-up cluster for the portal: nodes in every state, jobs in every state, measured, at one still instant."""

import math
import pwd
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from oarlock.job.reactor.passes import PassRecord
from oarlock.model.event import Event, EventType
from oarlock.model.job import Job, JobState
from oarlock.model.resource import ResourceState
from oarlock.model.summary import NodeMeasured, SummaryDetail
from oarlock.node.measure.wire import encode_sample
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.cluster import events, properties, resources
from oarlock.store.queries.job import new_jobs
from oarlock.store.queries.usage import summaries
from oarlock.store.queries.usage.summaries import Summary
from tests.portal.measured import measure_past
from tests.store.cluster import add_job, choice, run, step
from tests.store.cluster import new as new_job
from tests.web.nodeless_server import Running, alone

NOW = 1_794_939_725
"""A Tuesday evening."""

OWNER, OTHERS = "nobody", ("daemon", "games", "backup", "www-data")
NODES, CORES = 24, 32
NAMES = ("cfd-coarse", "train-unet", "<b>md</b> & co", "qc-scan", "render", "align", "sweep-0.1", "post")


@contextmanager
def made_up_site(path: Path, *, measured: bool = True, **settings: Any) -> Iterator[Running]:
    """Serve the cluster; every page has something to show."""
    settings = {"cluster_name": "gofree", "job_min_uid": 1, "admins": ("root",)} | settings
    with alone(path, **settings) as running:
        running.core.clock.at = NOW
        jobs = running.core.database.write(_fill)
        running.core.database.write(lambda tx: _summarise(tx, [*jobs["running"], *jobs["over"]]))
        running.core.database.write(lambda tx: _predict(tx, [*jobs["waiting"], *jobs["over"]]))
        running.core.passes = [
            PassRecord(NOW - 40 * n, 0.004 + n % 5 / 100, n % 3 == 0, n % 4, 0) for n in range(30, 0, -1)
        ]
        running.core.hopeless[jobs["hopeless"][0].id] = "Needs 99 nodes; the cluster has 24."
        if measured:
            running.core.database.write(lambda tx: measure_past(tx, jobs["over"], now=NOW))
            _measure(running, jobs["running"])
        yield running


def _fill(tx: Tx) -> dict[str, list[Job]]:
    draw = Random(18)
    properties.add(tx, "core", int)
    properties.add(tx, "gpudevice", int)
    properties.add(tx, "cpu_model", str)
    rows = [
        {
            "network_address": f"node-{node:02}", "core": node * CORES + core, "cpuset": core,
            "cpu_model": "zen4" if node > 18 else "icelake",
            "gpudevice": core // 16 if node > 20 else None,
        }
        for node in range(1, NODES + 1)
        for core in range(CORES)
    ]  # fmt: skip
    ids = resources.add(tx, rows, at=NOW - 86_400)
    by_node = {f"node-{node:02}": ids[(node - 1) * CORES : node * CORES] for node in range(1, NODES + 1)}
    _states(tx, by_node)
    return {
        "running": _running(tx, by_node, draw),
        **_waiting(tx, draw),
        "over": _over(tx, by_node, draw),
        "array": _array(tx, by_node),
    }


def _states(tx: Tx, by_node: dict[str, list[int]]) -> None:
    for node, state in (("node-05", "Suspected"), ("node-09", "Absent"), ("node-10", "Absent"), ("node-14", "Dead")):
        resources.set_state(tx, by_node[node], ResourceState(state), at=NOW - 9000)
    sleeping = ",".join(str(number) for number in by_node["node-10"])
    tx.exec_driver_sql(f"UPDATE resources SET cm_availability = 2147483647 WHERE resource_id IN ({sleeping})")
    drained = ",".join(str(number) for number in by_node["node-17"])
    tx.exec_driver_sql(f"UPDATE resources SET drain = 'YES' WHERE resource_id IN ({drained})")
    said = [
        ("node-14", EventType.LOG_SUSPECTED, 86_000, "bios does not answer"),
        ("node-09", EventType.LOG_SUSPECTED, 9_000, "taken out by root"),
        ("node-05", EventType.LOG_SUSPECTED, 180, "ssh: connect to host node-05: timed out"),
    ]
    events.add(tx, [Event(kind, NOW - ago, text, None, (node,)) for node, kind, ago, text in said])


def _running(tx: Tx, by_node: dict[str, list[int]], draw: Random) -> list[Job]:
    usable = [node for node in by_node if node not in {"node-05", "node-09", "node-10", "node-14"}]
    jobs = []
    for place, node in enumerate(usable):
        left = by_node[node][: draw.choice([32, 32, 32, 24, 16, 4])]
        while left and place % 5 != 3:
            cores = min(len(left), draw.choice([4, 8, 16, 32]))
            held, left = left[:cores], left[cores:]
            at = NOW - draw.randint(600, 30_000)
            user = OWNER if len(jobs) % 4 == 0 else draw.choice(OTHERS)
            job = _new(tx, user, cores, 12, at - draw.randint(20, 5000), draw, number=len(jobs))
            jobs.append(run(tx, job, held, at=at))
    return jobs


def _new(tx: Tx, user: str, cores: int, hours: int, at: int, draw: Random, *, number: int = 0, **more: Any) -> Job:
    name = NAMES[number % len(NAMES)]
    return add_job(
        tx, f"/network_address=1/core={cores},walltime={hours}", user=user, uid=pwd.getpwnam(user).pw_uid,
        name=name, project=draw.choice(("vision", "climate", "default")), submitted=at,
        command=f"./{name.split('-')[0]}.sh --seed {number}", directory=f"/home/{user}", **more,
    )  # fmt: skip


def _waiting(tx: Tx, draw: Random) -> dict[str, list[Job]]:
    waiting = [_new(tx, draw.choice((OWNER, *OTHERS)), 16, 6, NOW - 300 * n, draw, number=n) for n in range(30)]
    held = _new(tx, OWNER, 4, 1, NOW - 4000, draw, number=3)
    step(tx, held, JobState.HOLD, at=NOW - 3900, why=f"held by {OWNER}")
    hopeless = _new(tx, "daemon", 32, 24, NOW - 60_000, draw, number=5)
    starts = {choice(tx, job): NOW + 900 * (place + 1) for place, job in enumerate(waiting[:24])}
    free = tx.exec_driver_sql("SELECT min(resource_id) FROM resources WHERE network_address = 'node-12'").scalar_one()
    for place, (number, start) in enumerate(starts.items()):
        tx.exec_driver_sql(f"INSERT INTO gantt_jobs_predictions_visu VALUES ({number}, {start})")
        for resource in range(free + place % 2 * 16, free + place % 2 * 16 + 16):
            tx.exec_driver_sql(f"INSERT INTO gantt_jobs_resources_visu VALUES ({number}, {resource})")
    return {"waiting": waiting, "hopeless": [hopeless], "held": [held]}


def _over(tx: Tx, by_node: dict[str, list[int]], draw: Random) -> list[Job]:
    over = []
    for n in range(20):
        at = NOW - 40_000 - 4000 * n
        job = _new(tx, OWNER if n % 2 else "daemon", 8, 2, at, draw, number=n)
        job = run(tx, job, by_node["node-20"][:8], at=at + 60)
        job = step(tx, job, JobState.FINISHING, at=at + 3000)
        ended = step(tx, job, JobState.ERROR if n % 6 == 5 else JobState.TERMINATED, at=at + 3010)
        numbers = f"start_time = {at + 60}, stop_time = {at + 3000}, exit_code = {256 if n % 6 == 5 else 0}"
        tx.exec_driver_sql(f"UPDATE jobs SET {numbers} WHERE job_id = {job.id}")
        tx.exec_driver_sql(
            f"UPDATE assigned_resources SET assigned_resource_index = 'LOG' WHERE moldable_job_id = {job.assigned}"
        )
        over.append(ended)
    return over


def _array(tx: Tx, by_node: dict[str, list[int]]) -> list[Job]:
    """Add an array of eight tasks that are over; the fourth ran four times as long as the others."""
    new = [new_job("/core=1,walltime=2", user=OWNER, uid=pwd.getpwnam(OWNER).pw_uid, name="sweep", array_index=n,
                   submitted=NOW - 30_000) for n in range(1, 9)]  # fmt: skip
    tasks = []
    for place, job in enumerate(new_jobs.add(tx, new)):
        start, ran = NOW - 29_000, 4000 if place == 3 else 1000 + place
        job = run(tx, job, by_node["node-21"][place : place + 1], at=start)
        for state in (JobState.FINISHING, JobState.TERMINATED):
            job = step(tx, job, state, at=start + ran)
        tx.exec_driver_sql(
            f"UPDATE jobs SET start_time = {start}, stop_time = {start + ran}, exit_code = 0 WHERE job_id = {job.id}"
        )
        tx.exec_driver_sql(
            f"UPDATE assigned_resources SET assigned_resource_index = 'LOG' WHERE moldable_job_id = {job.assigned}"
        )
        tasks.append(job)
    return tasks


def _predict(tx: Tx, jobs: list[Job]) -> None:
    """Store first predictions: those that started did so within some minutes of them."""
    for place, job in enumerate(jobs):
        [(start,)] = tx.exec_driver_sql(f"SELECT start_time FROM jobs WHERE job_id = {job.id}").all()
        predicted = start - 100 * (place % 7) + 120 if start else NOW + 900 * (place + 1)
        tx.exec_driver_sql(f"INSERT INTO start_predictions VALUES ({job.id}, {job.submitted}, {predicted})")


def _summarise(tx: Tx, jobs: list[Job]) -> None:
    """Store what the samples of these jobs say, as the collector does every few minutes."""
    rows = []
    for job in jobs:
        node, cores = _place(tx, job)
        [(start, stop)] = tx.exec_driver_sql(f"SELECT start_time, stop_time FROM jobs WHERE job_id = {job.id}").all()
        ran = float((stop or NOW) - start)
        values = _sample(job, cores, start + ran)
        measured = NodeMeasured(
            since=float(start), until=start + ran, samples=int(ran / 60), seconds=ran, cores=float(cores),
            node_cores=CORES, cpu_seconds=values["cpu_seconds_total"], cpu_most_cores=float(cores),
            memory_asked_bytes=values["memory_limit_bytes"],
            memory_own_mean_bytes=values["memory_anonymous_bytes"],
            memory_own_most_bytes=values["memory_anonymous_bytes"], read_bytes=values["read_bytes_total"],
            written_bytes=values["written_bytes_total"], processes_most=values["tasks"],
        )  # fmt: skip
        rows.append(
            Summary(
                job_id=job.id, date=NOW, run_seconds=ran, walltime=12 * 3600, core_seconds=cores * ran,
                cpu_seconds=measured.cpu_seconds, memory_asked_bytes=int(measured.memory_asked_bytes or 0),
                memory_own_peak_bytes=int(measured.memory_own_most_bytes or 0), energy_joules=45.0 * cores * ran / 8,
                samples=measured.samples, coverage=1.0,
                detail=msgspec.json.encode(SummaryDetail(measured={"1": {node: measured}})).decode(),
            )
        )  # fmt: skip
    summaries.save(tx, rows)


def _measure(running: Running, jobs: list[Job]) -> None:
    """Put samples of the last minutes into the collector and into the server's memory."""
    core = running.core
    with core.database.read() as tx:
        held = {job.id: _place(tx, job) for job in jobs}
    for minute in [*range(60, 2, -4), 1, 0]:
        at = float(NOW - 60 * minute)
        by_node: dict[str, dict[int, dict[str, float]]] = {}
        for job in jobs:
            node, cores = held[job.id]
            if at > job.start:
                by_node.setdefault(node, {})[job.id] = _sample(job, cores, at)
        for node, values in by_node.items():
            data = encode_sample(at, _machine(at), values)
            core.collector.collector.take(node, data, set(values), at=at)
            if minute < 2:
                core.live.take(node, data, set(values), at=at)
        if minute == 1:
            core.live.look(now=at)


def _place(tx: Tx, job: Job) -> tuple[str, int]:
    [(node, cores)] = tx.exec_driver_sql(
        "SELECT network_address, count(*) FROM resources JOIN assigned_resources USING (resource_id)"
        f" WHERE moldable_job_id = {job.assigned} GROUP BY network_address"
    ).all()
    return node, cores


def _machine(at: float) -> dict[str, float]:
    wave = 0.5 + 0.3 * math.sin(at / 900)
    return {
        "meminfo_mem_total_bytes": 256e9, "meminfo_mem_available_bytes": 256e9 * wave, "load_1min": 30 * wave,
        'cpu_seconds_total{mode="user"}': at * 20, 'power_watts{meter="ipmi"}': 300 + 150 * wave,
    }  # fmt: skip


def _sample(job: Job, cores: int, at: float) -> dict[str, float]:
    """Return what a job used: every third one does little, memory grows and then stays."""
    share = 0.12 if job.id % 3 == 1 else 0.95
    ran = at - job.start
    busy = share * cores * (ran + 40 * math.sin(ran / 300))
    memory = min(2e9 * cores, 2e6 * ran) * (0.4 if job.id % 3 else 0.9)
    return {
        "cpus": float(cores), "cpu_seconds_total": busy, "memory_usage_bytes": memory * 1.1,
        "memory_peak_bytes": memory * 1.2, "memory_limit_bytes": 4e9 * cores, "memory_anonymous_bytes": memory,
        "memory_cache_bytes": memory * 0.1, "read_bytes_total": 4e6 * ran, "written_bytes_total": 5e5 * ran,
        "tasks": float(cores + 2),
    }  # fmt: skip
