"""The tasks of a step (Slurm's `srun`): where each runs, what it is told, and how it ends.

A task on the first node is a child; those on other nodes are started by `oarsh`, which puts them into the job's group
there, so that they end with the job.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import threading
from typing import IO, Any

_NOT_OURS = ("OAR_", "SLURM_", "PWD", "OLDPWD", "SHLVL", "HOSTNAME", "TMPDIR", "_")
_POSIX_NAME = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_")


class TasksDoNotFit(Exception):
    """There are more tasks than the job has room for."""


def count_cores(lines: list[str]) -> dict[str, int]:
    """Return how many cores the job has on each node, the first node first."""
    cores: dict[str, int] = {}
    for name in lines:
        cores[name] = cores.get(name, 0) + 1
    return cores


def place_tasks(cores: dict[str, int], tasks: int, each: int, nodes: int, most: int) -> list[tuple[str, int]]:
    """Return the node of each task and its number there: evenly over the nodes, those of a node together."""
    names = list(cores)
    if nodes > len(names):
        raise TasksDoNotFit(f"The job has {len(names)} nodes, not {nodes}.")
    names = names[: nodes or min(len(names), tasks)]
    room = {name: min(cores[name] // each, most or tasks) for name in names}
    if sum(room.values()) < tasks:
        raise TasksDoNotFit(f"{tasks} tasks of {each} cores do not fit: there is room for {sum(room.values())}.")
    given = dict.fromkeys(names, 0)
    while tasks:
        for name in names:
            if tasks and given[name] < room[name]:
                given[name] += 1
                tasks -= 1
    return [(name, local) for name in names for local in range(given[name])]


class StepRun:
    """The tasks of one srun."""

    def __init__(self, command: list[str], places: list[tuple[str, int]], *, label: bool, kill: bool) -> None:
        self._command, self._places, self._label, self._kill = command, places, label, kill
        self._processes: list[subprocess.Popen[bytes]] = []
        self._writing = threading.Lock()

    def run(self) -> int:
        """Start all tasks and wait for them; return the highest exit code."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._pass_on)
        threads = []
        for task in range(len(self._places)):
            process = self._start(task)
            self._processes.append(process)
            if self._label:
                for stream, sink in ((process.stdout, sys.stdout), (process.stderr, sys.stderr)):
                    threads.append(threading.Thread(target=self._copy, args=(task, stream, sink.fileno())))
                    threads[-1].start()
        codes = [self._wait(process) for process in self._processes]
        for thread in threads:
            thread.join()
        return max(codes)

    def _start(self, task: int) -> subprocess.Popen[bytes]:
        node, local = self._places[task]
        variables = self._variables(task, node, local)
        pipe = subprocess.PIPE if self._label else None
        streams: Any = {"stdin": None if task == 0 else subprocess.DEVNULL, "stdout": pipe, "stderr": pipe}
        if node == os.environ["SLURM_JOB_NODELIST"].partition(",")[0] and os.environ.get("SLURM_NODEID") == "0":
            # What a user runs in a job is the user's own.
            return subprocess.Popen(self._command, env={**os.environ, **variables}, **streams)  # noqa: S603
        text = remote_text(self._command, variables, dict(os.environ))
        return subprocess.Popen(["oarsh", node, text], **streams)  # noqa: S603, S607

    def _variables(self, task: int, node: str, local: int) -> dict[str, str]:
        names = list(dict.fromkeys(name for name, _ in self._places))
        count = len(self._places)
        return {
            "SLURM_PROCID": str(task), "SLURM_LOCALID": str(local), "SLURM_NODEID": str(names.index(node)),
            "SLURM_NTASKS": str(count), "SLURM_NPROCS": str(count), "SLURM_STEP_NUM_TASKS": str(count),
            "SLURM_STEP_NODELIST": ",".join(names), "SLURM_STEP_NUM_NODES": str(len(names)),
        }  # fmt: skip

    def _wait(self, process: subprocess.Popen[bytes]) -> int:
        code = process.wait()
        if code and self._kill:
            self._pass_on(signal.SIGTERM, None)
        return code if code >= 0 else 128 - code

    def _pass_on(self, number: int, _: object) -> None:
        for process in self._processes:
            if process.poll() is None:
                process.send_signal(number)

    def _copy(self, task: int, stream: IO[bytes], sink: int) -> None:
        for line in stream:
            with self._writing:  # a line at a time: those of tasks do not mix
                os.write(sink, f"{task}: ".encode() + line)


def remote_text(command: list[str], variables: dict[str, str], environment: dict[str, str]) -> str:
    """Return the shell text that runs a task on another node: same directory, same variables."""
    passed = {
        name: value
        for name, value in environment.items()
        if _POSIX_NAME.issuperset(name) and not name[0].isdigit() and not name.startswith(_NOT_OURS[:2])
        and name not in _NOT_OURS
    }  # fmt: skip
    slurm = {name: value for name, value in environment.items() if name.startswith("SLURM_")}
    exports = [f"export {name}={shlex.quote(value)}" for name, value in {**passed, **slurm, **variables}.items()]
    return "; ".join([*exports, f"cd {shlex.quote(os.getcwd())} && exec {shlex.join(command)}"])
