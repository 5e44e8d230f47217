"""How long it takes to read what a job asks for."""

import time

from bench.harness import figure
from oarlock.lang import request

USUAL = [
    "nodes=1",
    "nodes=4",
    "/nodes=2/core=4",
    "core=1",
    "core=16,walltime=2",
    "/nodes=4/cpu=1,walltime=2:00:00",
    "walltime=0:30",
    "/switch=1/nodes=4/core=8,walltime=12:00:00",
    "/host=1/gpu=2,walltime=4",
    "{gpu='YES'}/nodes=1",
    "{gpu='YES'}/nodes=1/core=4,walltime=8:00:00",
    "{mem > 64}/host=1+{mem < 48}/host=3,walltime=1:00:00",
    "{cputype = 'epyc' and mem >= 128}/nodes=2,walltime=24",
    "{network_address in ('node1','node2')}/nodes=1,walltime=2",
    "{host not like 'node1%'}/core=8,walltime=1",
    "/nodes=ALL/core=1,walltime=0:10",
    "resource_id=1",
    "/cpu=2/core=4,walltime=3:30",
    "nodes=BEST,walltime=1",
    "/nodes=10/cpu=3,walltime=2:15:00",
]
_ROUNDS = 100
_TURNS = 5


@figure("lang.parse", unit="µs a request", target=60, better="lower")
def parse() -> float:
    """Read usual requests; the best turn counts, since others use the machine as well."""
    return min(_turn() for _ in range(_TURNS)) * 1e6


def _turn() -> float:
    before = time.process_time()
    for _ in range(_ROUNDS):
        for text in USUAL:
            request.parse([text])
    return (time.process_time() - before) / _ROUNDS / len(USUAL)
