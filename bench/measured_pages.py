"""Pages of measured jobs: what a plot costs the server, and how long a PDF takes."""

import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.harness import figure
from bench.pages import cost
from oarlock.node.measure.wire import encode_sample
from oarlock.store.engine.opening import open_database
from tests.portal.site import NOW, OWNER, made_up_site
from tests.web.nodeless_server import Client, Running

_RAN, _OVER = 25, 75  # jobs of the owner in the made-up cluster: the first has run for eight hours
_HOURS, _PERIOD = 8, 10
_TIMES = 7
_LEAST_BYTES = 3_000  # of an answer that has curves, compressed


@figure("page.plot", unit="CPU ms", target=150)
def plot() -> float:
    """Send the curves of all plots of a job that has run for eight hours, sampled every ten seconds."""
    with _site(measured=False) as running:
        _sample(running)
        return cost(running.client_of(OWNER), f"/jobs/{_RAN}/plots.json", least=_LEAST_BYTES)


@figure("page.pdf", unit="s", target=0.3)
def pdf() -> float:
    """Make the report of a job as PDF, from the question to the last byte."""
    with _site() as running:
        client = running.client_of(OWNER)
        return statistics.median([_seconds(client, f"/api/v1/jobs/{_OVER}/report.pdf") for _ in range(_TIMES)])


@figure("page.pdf-first", unit="s", target=0.6)
def first_pdf() -> float:
    """Make the first PDF of a server, which loads typst and its fonts."""
    with _site() as running:
        return _seconds(running.client_of(OWNER), f"/api/v1/jobs/{_OVER}/report.pdf")


def _seconds(client: Client, path: str) -> float:
    with client.connected() as connection:
        begin = time.perf_counter()
        connection.request("GET", path)
        reply = connection.getresponse()
        content = reply.read()
        if not content.startswith(b"%PDF-"):
            raise ValueError(f"{path}: {reply.status} {content[:200]!r}")
        return time.perf_counter() - begin


def _sample(running: Running) -> None:
    core = running.core
    for at in range(NOW - _HOURS * 3600, NOW, _PERIOD):
        age = float(at - NOW + _HOURS * 3600)
        values = {
            "cpus": 16.0, "cpu_seconds_total": 12.0 * age, "memory_anonymous_bytes": 4e9 + 1e5 * age,
            "memory_cache_bytes": 1e9, "memory_limit_bytes": 64e9, "read_bytes_total": 3e6 * age,
            "written_bytes_total": 1e6 * age, "tasks": 18.0,
        }  # fmt: skip
        core.collector.collector.take("node-16", encode_sample(float(at), {}, {_RAN: values}), {_RAN}, at=float(at))


@contextmanager
def _site(*, measured: bool = True) -> Iterator[Running]:
    with tempfile.TemporaryDirectory(prefix="oarlock-bench-") as folder:
        path = Path(folder) / "oarlock.db"
        with open_database(path, create=True, marker=Path(folder) / "oarlock.db.created"):
            pass
        with made_up_site(path, measured=measured) as running:
            yield running
