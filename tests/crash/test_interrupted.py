"""What is interrupted at any point leaves a database that is as it was, or as it was to become; never half of it."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.interrupted import ALL, OnPostgresql
from tests.databases import Postgres

LONG = {"first start", "repair", "take-over", "dump"}


@pytest.fixture
def words(name: str, request: pytest.FixtureRequest) -> Iterator[list[str]]:
    """The address of a PostgreSQL database, for what is about one."""
    if not issubclass(ALL[name], OnPostgresql):
        yield []
        return
    postgres: Postgres = request.getfixturevalue("postgres")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{postgres.programs}:{os.environ['PATH']}")
        yield [address := postgres.make(template="template0")]
    postgres.drop(address)


@pytest.mark.parametrize(
    ("name", "step"),
    [
        *(pytest.param(one, 1, id=one, marks=pytest.mark.soak if one in LONG else ()) for one in ALL),
        pytest.param("take-over", 6, id="take-over, some points"),
    ],
)
def test_wherever_it_is_interrupted_the_database_is_whole(name: str, step: int, words: list[str], tmp_path: Path):
    # A process of its own, that has one thread: it forks for each point.
    command = [sys.executable, "-m", "tests.crash.interrupted", name, str(tmp_path), str(step), *words]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=400)
    assert ran.returncode == 0, ran.stderr
    assert int(ran.stdout) >= 4
