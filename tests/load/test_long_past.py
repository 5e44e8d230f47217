"""A real server on a database with a past of a million jobs, and more: its start, live jobs, a Gantt chart of a day."""

import os
import statistics
import time
from collections.abc import Callable, Iterator

import psycopg
import pytest

from bench.history import fill_with_past
from oarlock.client import Client, RequestRefused
from oarlock.model.job import FINAL
from oarlock.simulate.cluster import BEGIN
from tests.bed import needs_root
from tests.e2e.instance import Instance, instance
from tests.e2e.terminal import seen_as

pytestmark = [needs_root, pytest.mark.soak, pytest.mark.timeout(3000)]

_PAST = int(os.environ.get("PAST_JOBS", "1000000"))
_LIVE = 300
_LOOKS = 20
DAY = 86_400


@pytest.fixture(params=["sqlite", "postgresql"])
def addresses(request: pytest.FixtureRequest) -> Iterator[list[str]]:
    """Where two databases are; nothing for those of state directories."""
    if request.param == "sqlite":
        yield ["", ""]
        return
    postgres = request.getfixturevalue("postgres")
    urls = [postgres.make(template="oarlock_template") for _ in range(2)]
    yield urls
    for url in urls:
        postgres.drop(url)


def test_a_long_past_slows_nothing_that_looks_at_live_jobs(workspace, two_users, addresses, capsys):
    for name in ("empty", "past"):
        (workspace / name).mkdir()
        (workspace / name).chmod(0o755)
    with instance(workspace / "empty", two_users[0], "empty", nodes=8, address=addresses[0]) as site:
        alone = _figures(site)
    with instance(workspace / "past", two_users[0], "past", nodes=8, address=addresses[1]) as site:
        begin = time.monotonic()
        fill_with_past(site.database, _PAST)
        filled = time.monotonic() - begin
        if addresses[1]:
            with psycopg.connect(addresses[1], autocommit=True) as connection:
                connection.execute("VACUUM ANALYZE")  # as its own daemon does within minutes; in tests there is none
        beside = _figures(site)
    with capsys.disabled():
        database = "PostgreSQL" if addresses[1] else "SQLite"
        print(f"\n{database}, {_PAST} past jobs (made in {filled:.0f} s), load {os.getloadavg()[0]:.1f}")
        for name, value in beside.items():
            print(f"  {name}: {value:.4f} s, with an empty database {alone[name]:.4f} s")
    assert beside["start"] < alone["start"] + 5
    assert beside["a chart of the day"] < 5
    for name, noise in ((f"{_LIVE} jobs", 0.5), ("live jobs", 0.005), ("one job", 0.005)):
        assert beside[name] < 1.2 * alone[name] + noise, name


def _figures(site: Instance) -> dict[str, float]:
    """Start a server; run jobs; look at them."""
    begin = time.monotonic()
    site.serve()
    client = Client(str(site.state / "server.sock"))
    client.jobs()
    started = time.monotonic() - begin
    with seen_as(site.user):
        begin = time.monotonic()
        ids = [
            number
            for _ in range(_LIVE // 10)
            for number in client.submit(
                {"resources": ["/core=1,walltime=1"], "command": "true", "directory": "/tmp", "array": [""] * 10}
            )["job_ids"]
        ]
    site.until(lambda: all(site.job(number).state in FINAL for number in reversed(ids)), seconds=300)
    ran = time.monotonic() - begin
    looks = {
        "a chart of the day": _chart_of_the_past(client),
        "live jobs": _median(lambda: client.jobs(states="Waiting,Running")),
        "one job": _median(lambda: client.jobs(ids=str(ids[-1]))),
    }
    site.stop()
    return {"start": started, f"{_LIVE} jobs": ran, **looks}


def _chart_of_the_past(client: Client) -> float:
    """Ask for the chart of the day with all past jobs; return how long the refusal of too many takes."""
    begin = time.monotonic()
    says = ""
    try:
        client.gantt(BEGIN - DAY, BEGIN + DAY)
    except RequestRefused as refused:
        says = str(refused)
    assert says in {"", "More than 20000 jobs are in that time; no more are shown."}
    return time.monotonic() - begin


def _median(look: Callable[[], object]) -> float:
    spent = []
    for _ in range(_LOOKS):
        begin = time.perf_counter()
        look()
        spent.append(time.perf_counter() - begin)
    return statistics.median(spent)
