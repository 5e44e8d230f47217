"""How long the rules that are shipped take to look at a submission, and how long an array takes to be stored."""

import asyncio
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

from bench.harness import figure
from oarlock.config import Config
from oarlock.job.admission import admit, submit
from oarlock.job.admission.feasibility import ClusterResourcesCache
from oarlock.job.admission.payload import from_fields
from oarlock.job.admission.rules import load
from oarlock.lang.rules import RuleContext
from oarlock.model.resource import Value
from oarlock.store.engine.opening import open_database
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.cluster import properties, resources
from oarlock.store.queries.job import new_jobs

_NOW = 1_900_000_000
_CONFIG = Config()
_TEXTS = ["type", "network_address", "besteffort", "deploy", "drain", "desktop_computing", "state"]
_KNOWN = RuleContext(properties={**dict.fromkeys(_TEXTS, str), "core": int, "resource_id": int, "mem": int})
_BODIES: list[dict[str, Any]] = [
    {"command": "sleep 1"},
    {"command": "./run", "resources": ["/nodes=2/core=4,walltime=2:00:00"], "name": "run", "project": "p"},
    {"command": "./run", "resources": ["core=1"], "types": ["besteffort"], "properties": "mem > 64"},
    {"interactive": True, "resources": ["nodes=1,walltime=24"]},
]
_ROUNDS, _TURNS = 50, 5


@figure("submit.admit", unit="µs a submission", target=300, better="lower")
def through_the_rules() -> float:
    """Apply the shipped rules to usual submissions; the best turn counts."""
    return min(_turn() for _ in range(_TURNS)) * 1e6


def _turn() -> float:
    book = load(None)
    submissions = [
        submit.read(from_fields(body), user="ada", uid=1000, groups=["users"], config=_CONFIG, now=_NOW)
        for body in _BODIES
    ]

    async def all_of_them() -> None:
        for _ in range(_ROUNDS):
            for asked in submissions:
                await admit.admit(book, asked, _KNOWN, config=_CONFIG, now=_NOW)

    before = time.process_time()
    asyncio.run(all_of_them())
    return (time.process_time() - before) / _ROUNDS / len(_BODIES)


@figure("submit.array", unit="CPU s for 10,000 jobs", target=1.5, better="lower")
def an_array() -> float:
    """Store an array of 10,000 jobs in SQLite, durably, on a cluster of 1,024 resources: in slices, as the server."""
    with tempfile.TemporaryDirectory() as folder, open_database(Path(folder) / "oarlock.db", create=True) as database:
        database.write(_cluster)
        existing = ClusterResourcesCache(_CONFIG.scheduler_resource_order)
        body = {"command": "./run", "array": [str(n) for n in range(10_000)]}

        def begin(tx: Tx) -> submit.LargeArray:
            known = RuleContext(properties=existing.now(tx).types)
            admitted = asyncio.run(admit.admit(load(None), asked, known, config=_CONFIG, now=_NOW))
            submission = submit.AdmittedSubmission(admitted, "a")
            large = submit.begin_large(tx, submission, cluster=existing.now(tx), config=_CONFIG, now=_NOW)
            if not isinstance(large, submit.LargeArray):
                raise TypeError(large)
            return large

        before = time.process_time()
        asked = submit.read(from_fields(body), user="ada", uid=1000, groups=["users"], config=_CONFIG, now=_NOW)
        large = database.write(begin)
        for places in large.slices:
            database.write(partial(new_jobs.add_array_slice, incoming=large.incoming, places=places))
        database.write(lambda tx: submit.finish_large(tx, large, now=_NOW))
        return time.process_time() - before


def _cluster(tx: Tx) -> None:
    properties.add(tx, "core", int)
    rows: list[dict[str, Value]] = [
        {"network_address": f"node{core // 32}", "core": core, "cpuset": core % 32} for core in range(1024)
    ]
    resources.add(tx, rows, at=_NOW)
