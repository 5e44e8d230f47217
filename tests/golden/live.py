"""A live instance like the one whose answers were recorded: four nodes of two processors of four cores, two users."""

import contextlib
import json
import os
import pwd
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oarlock.lang import request as requests
from oarlock.model.job import Job, JobState
from oarlock.store.queries.cluster import properties, resources
from oarlock.store.queries.job import new_jobs
from oarlock.store.tables import jobs as jobs_table
from tests import bed
from tests.e2e.instance import SOURCE, Instance

FIRST_JOB = 100_001
"""Where job numbers begin: no number of a resource or of a recorded job looks like one of ours."""

SETTINGS = {
    "ADMINS": "root", "COSYSTEM_HOSTNAME": "127.0.0.1", "DEPLOY_HOSTNAME": "127.0.0.1",
    "WALLTIME_CHANGE_ENABLED": "yes", "WALLTIME_MAX_INCREASE": "7200",
}  # fmt: skip

_MEMORY = {1: 16, 2: 32, 3: 48, 4: 64}


@dataclass(frozen=True)
class Ran:
    """How a command ended, and what it printed."""

    code: int
    out: str
    err: str


class Site(Instance):
    """The recorded cluster on pretended nodes, its server in a process, commands as real accounts over the socket."""

    def __init__(self, workspace: Path, users: tuple[str, str], nodes: list[str], address: str = "") -> None:
        super().__init__(workspace, users[0], nodes, more=SETTINGS, address=address)
        self.users = {"alice": users[0], "bob": users[1], "root": "root"}
        self._runner = subprocess.Popen(
            [sys.executable, Path(__file__).with_name("runner.py")],
            env={**os.environ, "PYTHONPATH": str(SOURCE)},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def _add(self, tx: Any, cores: int) -> None:
        for name, kind in (("host", str), ("core", int), ("mem", int), ("cputype", str)):
            properties.add(tx, name, kind)
        resources.add(tx, self._rows(), at=int(time.time()))
        tx.info.setdefault("next ids", {})[jobs_table.c.job_id] = FIRST_JOB - 1
        before = Job(id=0, state=JobState.ERROR, user=self.user, queue="default", directory="/", submitted=1, stop=1)
        new_jobs.add(tx, [new_jobs.NewJob(before, requests.parse(["/core=1,walltime=1"]))])

    def _rows(self) -> list[dict[str, object]]:
        """Return the resources of the cluster."""
        return [
            {
                "network_address": name, "host": name, "cpuset": core, "core": 8 * at + core + 1,
                "cpu": 2 * at + core // 4 + 1, "mem": _MEMORY[at + 1], "cputype": "epyc" if at > 1 else "xeon",
            }
            for at, name in enumerate(self.nodes) for core in range(8)
        ]  # fmt: skip

    def run(self, user: str, command: str, *words: str, stdin: str = "", **variables: str) -> Ran:
        """Run a command as somebody."""
        account = pwd.getpwnam(self.users[user])
        environment = {
            "PATH": os.environ["PATH"], "TZ": "UTC", "OARLOCK_SERVER": str(self.state / "server.sock"),
            "HOME": str(self.home), "LANG": "C.UTF-8", **variables,
        }  # fmt: skip
        request = {
            "uid": account.pw_uid, "gid": account.pw_gid, "command": command, "words": words,
            "directory": str(self.home), "environment": environment, "input": stdin,
        }  # fmt: skip
        assert self._runner.stdin is not None
        assert self._runner.stdout is not None
        self._runner.stdin.write(json.dumps(request) + "\n")
        self._runner.stdin.flush()
        return Ran(**json.loads(self._runner.stdout.readline()))

    def until_state(self, job: int, *states: JobState) -> None:
        """Wait until a job is in one of these states."""
        self.until(lambda: self.job(job).state in states)

    def until_answers(self) -> None:
        """Wait until the server takes requests."""
        self.until(lambda: (self.state / "server.sock").exists() and self.run("root", "oarstat").code == 0)

    def close(self) -> None:
        """End the runner and the instance."""
        with self._runner:
            assert self._runner.stdin is not None
            self._runner.stdin.close()
        super().close()


def names() -> tuple[str, str]:
    """Return two account names as long as `alice` and `bob`, so that columns keep their widths."""
    number, digits = os.getpid() % 1296, "0123456789abcdefghijklmnopqrstuvwxyz"
    two = digits[number // 36] + digits[number % 36]
    return f"gol{two}", f"g{two}"


@contextlib.contextmanager
def site(address: str = "", *, kind: type[Site] = Site, nodes: int = 4) -> Iterator[Any]:
    """Start an instance, and end it with everything that it left."""
    with bed.open_directory() as workspace, bed.accounts(names=names()) as users:
        made = kind(workspace, users, [f"g{os.getpid()}n{n}" for n in range(1, nodes + 1)], address)
        try:
            made.start()
            made.until_answers()
            yield made
        finally:
            made.close()
