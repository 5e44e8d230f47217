"""What a command costs: whole processes against a server with canned answers, so that only the command is measured."""

import compileall
import os
import resource
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.harness import figure
from oarlock.cli.commands import module_name
from tests import canned
from tests.certificates import certificate

_SOURCE = Path(__file__).resolve().parent.parent / "src"
_TURNS = 30
_JOBS = 5000


@figure("cli.oarsub", unit="CPU ms", target=20)
def oarsub() -> float:
    """Submit a job; what `python -c pass` costs in the same environment is taken off."""
    told = {"job_ids": [1], "array_id": 1, "messages": ["[ADMISSION RULE] hello"], "state": "Waiting"}
    with _script("oarsub") as (script, server, environment):
        server.says(canned.ok({**told, "reservation": None}))
        words = [script, "-l", "/nodes=2/core=4,walltime=1:00:00", "-n", "job", "sleep", "300"]
        # In turns, so that a busy moment of the machine does not fall on one of them only.
        runs = [(_cpu(words, environment), _cpu([sys.executable, "-c", "pass"], environment)) for _ in range(_TURNS)]
    return 1000 * (min(whole for whole, _ in runs) - min(empty for _, empty in runs))


@figure("cli.oarsub.tls", unit="CPU ms more than at the socket", target=25)
def oarsub_tls() -> float:
    """Submit a job over TLS with a token; what the same costs at the socket is taken off."""
    told = {"job_ids": [1], "array_id": 1, "messages": [], "state": "Waiting", "reservation": None}
    with _script("oarsub") as (script, server, environment), tempfile.TemporaryDirectory() as folder:
        server.says(canned.ok(told))
        far, end = canned.tls(*certificate(Path(folder)))
        far.says(canned.ok(told))
        token = {"OARLOCK_CA": f"{folder}/cert.pem", "OARLOCK_TOKEN": "x"}
        elsewhere = {**environment, **token, "OARLOCK_SERVER": far.address}
        words = [script, "-l", "/nodes=2/core=4,walltime=1:00:00", "-n", "job", "sleep", "300"]
        try:
            runs = [(_cpu(words, elsewhere), _cpu(words, environment)) for _ in range(_TURNS)]
        finally:
            end()
    return 1000 * (min(over for over, _ in runs) - min(at for _, at in runs))


@figure("cli.oarstat", unit="CPU s", target=0.5)
def oarstat() -> float:
    """List 5,000 jobs: the CPU time of the whole command, which is all that it takes on a quiet machine."""
    with _script("oarstat") as (script, server, environment):
        server.says(canned.ok({"jobs": [_job(number) for number in range(1, _JOBS + 1)]}))
        return min(_cpu([script], environment) for _ in range(10))


@contextmanager
def _script(command: str) -> Iterator[tuple[str, canned.Canned, dict[str, str]]]:
    """Give a console script as pip installs it, and a server for it."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, command)
        script.write_text(
            f"#!{sys.executable}\nimport sys\nfrom {module_name(command)} import main\n"
            "if __name__ == '__main__':\n    sys.exit(main())\n"
        )
        script.chmod(0o755)
        server, end = canned.unix(Path(folder))
        environment = {**os.environ, "PYTHONPATH": str(_SOURCE), "OARLOCK_SERVER": server.address}
        # An installed package is compiled.
        compileall.compile_dir(_SOURCE / "oarlock", quiet=1)
        try:
            yield str(script), server, environment
        finally:
            end()


def _job(number: int) -> dict[str, Any]:
    """A job as a list has it."""
    return {
        "Job_Id": number, "state": "Waiting", "owner": "alice", "queue": "default", "name": None, "project": "default",
        "message": "R=32,W=0:10:0,J=B (Karma=0.000,quota_ok)", "submissionTime": 1794766964, "startTime": 0,
        "stopTime": 0, "scheduledStart": 1794767625, "walltime": 600, "types": [], "array_id": number,
        "exit_code": None,
    }  # fmt: skip


def _run(words: list[str], environment: dict[str, str]) -> None:
    nowhere = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
    pid = os.posix_spawn(words[0], words, environment, file_actions=nowhere)
    _, status = os.waitpid(pid, 0)
    if status:
        raise RuntimeError(f"{words[0]} ended with status {status}")


def _cpu(words: list[str], environment: dict[str, str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    _run(words, environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
