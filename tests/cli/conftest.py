"""What the tests of commands share: a server with canned answers, and a way to run a command against it."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from oarlock.cli.commands import module_name
from tests import canned

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Ran:
    """How a command ended, and what it printed."""

    code: int
    out: str
    err: str


@pytest.fixture
def server(tmp_path):
    """A server that answers as it is told."""
    made, end = canned.unix(tmp_path)
    yield made
    end()


@pytest.fixture
def run(server, tmp_path):
    """Run a command in an empty folder, as a process of its own, against the canned server."""

    def ran(command, *words, cwd=None, stdin="", **variables):
        module = f"oarlock.cli.{command}" if command.startswith("slurm.") else module_name(command)
        code = f"import sys; from {module} import main; sys.exit(main())"
        environment = {
            "PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT / "src"),
            "TZ": "UTC", "OARLOCK_SERVER": server.address, **variables,
        }  # fmt: skip
        done = subprocess.run(
            [sys.executable, "-c", code, *words],
            env=environment, cwd=cwd or tmp_path, input=stdin, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        return Ran(done.returncode, done.stdout, done.stderr)

    return ran
