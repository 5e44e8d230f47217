"""Databases that each release made, with jobs of every kind: upgraded, and checked as good, doubtful or broken."""

import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from sqlalchemy import text

from oarlock.config import Config
from oarlock.job.check.finding import exit_code
from oarlock.job.check.run import check
from oarlock.model.errors import DatabaseRefused
from oarlock.server import check as checks
from oarlock.store import migrations
from oarlock.store.engine import engines
from oarlock.store.engine.opening import open_database, parse_address
from tests.releases import RELEASES, Release

# Run by the release's own code.
LIVE = """
import sys
from oarlock.store.engine.opening import open_database
from tests.scenarios.cluster import Cluster
with open_database(sys.argv[1], create=True) as database:
    cluster = Cluster(database)
    done = cluster.submit("sleep 10")
    cluster.kill(cluster.submit("sleep 500"))
    cluster.submit("sleep 5", after=(done,))
    cluster.finish()
    cluster.submit("sleep 900", "/core=4,walltime=1", types=("besteffort",), queue="besteffort")
    cluster.pass_time(60)
    cluster.submit("sleep 5", "/core=4,walltime=0:1:0")
    cluster.finish()
    cluster.hold(cluster.submit("sleep 5000", "/core=1,walltime=1:30:0"), running=True)
    cluster.submit("sleep 5000", "/core=1,walltime=1:30:0")
    cluster.submit("sleep 5000", "/core=4,walltime=1:30:0")
    cluster.pass_time(60)
"""
STATES = {"Error": 2, "Running": 1, "Suspended": 1, "Terminated": 3, "Waiting": 1}
SPOILED = {
    "valid": ("", 0, set()),
    "warn": ("INSERT INTO quotas (position, user_name, jobs) VALUES (1, 'ada', 0)", 1, {16}),
    "invalid": ("UPDATE jobs SET submission_time = start_time + 1 WHERE job_id = 1", 2, {9}),
}


@pytest.fixture(scope="module", params=RELEASES, ids=lambda release: release.version)
def source(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source of a release."""
    release: Release = request.param
    release.require_commit()
    return release.unpack_source(tmp_path_factory.mktemp("release"))


def live(source: Path, address: str) -> None:
    """Let the release make a database, and jobs live in it."""
    paths = {**os.environ, "PYTHONPATH": f"{source / 'src'}:{source}"}
    command = [sys.executable, "-c", LIVE, address]
    lived = subprocess.run(command, cwd=source, env=paths, capture_output=True, text=True, timeout=60)
    assert lived.returncode == 0, lived.stderr


@cache
def made(source: Path) -> Path:
    """Make an SQLite database of the release, once."""
    live(source, str(source / "oarlock.db"))
    return source / "oarlock.db"


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.soak)])
def address(request: pytest.FixtureRequest, source: Path, tmp_path: Path) -> str:
    """A database of the release that the test may spoil."""
    if request.param == "sqlite":
        for file in source.glob(f"{made(source).name}*"):  # with the log that was not copied into it yet
            shutil.copy(file, tmp_path)
        return str(tmp_path / made(source).name)
    url: str = request.getfixturevalue("postgres").make(template="template0")
    live(source, url)
    return url


def change(address: str, statement: str) -> None:
    """Change a database as it is, whatever its form."""
    engine = engines.writer(parse_address(address))
    with engine.begin() as tx:
        assert tx.execute(text(statement)).rowcount == 1
    engine.dispose()


@pytest.mark.parametrize("kind", SPOILED)
def test_a_database_of_each_release_is_upgraded_and_judged(kind: str, address: str):
    spoil, code, invariants = SPOILED[kind]
    if spoil:
        change(address, spoil)
    if Path(address).is_file():  # an older form is not checked: its tables are not those that the check knows
        with pytest.raises(DatabaseRefused, match=f"this version checks form `{migrations.REVISIONS[-1]}`"):
            checks.check(Path(address).parent, Config(), progress=lambda *_: None)
    with open_database(address) as database, database.read() as tx:
        states = dict(tuple(row) for row in tx.execute(text("SELECT state, count(*) FROM jobs GROUP BY state")))
        findings = check(tx, Config(), thorough=True)
    assert (states, exit_code(findings), {finding.invariant for finding in findings}) == (STATES, code, invariants)
