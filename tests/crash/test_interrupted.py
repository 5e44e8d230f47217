"""What is interrupted at any point leaves a database that is as it was, or as it was to become; never half of it."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.crash.interrupted import ALL

LONG = {"first start", "repair"}


@pytest.mark.parametrize("name", [pytest.param(one, marks=pytest.mark.soak if one in LONG else ()) for one in ALL])
def test_wherever_it_is_interrupted_the_database_is_whole(name: str, tmp_path: Path):
    # A process of its own, that has one thread: it forks for each point.
    command = [sys.executable, "-m", "tests.crash.interrupted", name, str(tmp_path)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    assert ran.returncode == 0, ran.stderr
    assert int(ran.stdout) >= 4
