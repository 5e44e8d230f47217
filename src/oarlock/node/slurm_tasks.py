"""The tasks of a step (Slurm's `srun`): where each runs, what it is told, and how it ends.

A task on the first node is a child; those on other nodes are started by `oarsh`, which puts them into the job's group
there, so that they end with the job.
"""

from __future__ import annotations

import fcntl
import os
import shlex
import signal
import stat
import subprocess
import sys
import threading
import time
from typing import IO, Any, Callable

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


class BadStepFile(Exception):
    """The name of an output file has a letter behind % that means nothing."""


class StepFiles:
    """The output files of a step: one for all tasks, or with `%t` in its name one for each."""

    def __init__(self, output: str | None, error: str | None) -> None:
        self._output, self._error = output, error
        self._written: set[str] = set()

    def open(self, task: int, node: str, rank: int, step: int) -> tuple[IO[bytes] | None, IO[bytes] | int | None]:
        """Return output and error output of a task; None is where srun's own goes."""
        meanings = {"t": str(task), "n": str(rank), "j": os.environ["SLURM_JOB_ID"], "s": str(step), "N": node}
        meanings["J"] = f"{meanings['j']}.{step}"
        output = None if self._output is None else self._file(self._output, meanings)
        if self._error is None:
            return output, None if output is None else subprocess.STDOUT
        return output, self._file(self._error, meanings)

    def _file(self, pattern: str, meanings: dict[str, str]) -> IO[bytes]:
        name, rest = "", pattern
        while rest:
            text, percent, rest = rest.partition("%")
            name += text
            if percent:
                if rest[:1] not in {*meanings, "%"}:
                    raise BadStepFile(f"--output={pattern} cannot be translated.")
                name += meanings.get(rest[0], "%")
                rest = rest[1:]
        if name not in self._written:
            self._written.add(name)
            open(name, "wb").close()
        return open(name, "ab")


class StepCores:
    """The cores of a job that its steps hold, as locked files in a folder of the job's own; srun's end frees them.

    All steps begin on the first node of a job, so its files speak for all nodes.
    """

    def __init__(self, job: str) -> None:
        self._folder = f"{os.environ.get('TMPDIR') or '/tmp'}/slurm_steps.{os.getuid()}.{job}"  # noqa: S108
        self._held: list[int] = []

    def __enter__(self) -> StepCores:
        try:
            os.mkdir(self._folder, 0o700)
        except FileExistsError:
            status = os.lstat(self._folder)
            if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
                raise
        return self

    def __exit__(self, *_: object) -> None:
        self._free()

    def count_step(self) -> int:
        """Return the number of this step, counted from 0."""
        fd = os.open(f"{self._folder}/steps", os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            os.write(fd, b".")
            return os.fstat(fd).st_size - 1
        finally:
            os.close(fd)

    def take(self, cores: dict[str, int], places: list[tuple[str, int]], each: int) -> None:
        """Wait until the nodes of the tasks have so many free cores, and hold them."""
        needed: dict[str, int] = {}
        for node, _ in places:
            needed[node] = needed.get(node, 0) + each
        while not all(self._hold(node, cores[node], count) for node, count in needed.items()):
            self._free()
            time.sleep(0.05)

    def _hold(self, node: str, cores: int, count: int) -> bool:
        for core in range(cores):
            if count == 0:
                break
            fd = os.open(f"{self._folder}/{node}.{core}", os.O_RDWR | os.O_CREAT, 0o600)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(fd)
                continue
            self._held.append(fd)
            count -= 1
        return count == 0

    def _free(self) -> None:
        while self._held:
            os.close(self._held.pop())


class StepRun:
    """The tasks of one srun."""

    def __init__(
        self, command: list[str], places: list[tuple[str, int]], *, label: bool, kill: bool, files: StepFiles,
        fold: Callable[[list[str]], str],
    ) -> None:  # fmt: skip
        self._command, self._places, self._label, self._kill = command, places, label, kill
        self._files, self._fold, self.number = files, fold, 0
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
                    if stream is None:  # it goes to a file
                        continue
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
        output, errors = self._files.open(task, node, int(variables["SLURM_NODEID"]), self.number)
        streams: Any = {
            "stdin": None if task == 0 else subprocess.DEVNULL,
            "stdout": output or pipe,
            "stderr": errors or pipe,
        }
        try:
            if node == os.environ.get("SLURMD_NODENAME") and os.environ.get("SLURM_NODEID") == "0":
                # What a user runs in a job is the user's own.
                return subprocess.Popen(self._command, env={**os.environ, **variables}, **streams)  # noqa: S603
            text = remote_text(self._command, variables, dict(os.environ))
            return subprocess.Popen(["oarsh", node, text], **streams)  # noqa: S603, S607
        finally:
            for file in (output, errors):
                if file is not None and not isinstance(file, int):
                    file.close()

    def _variables(self, task: int, node: str, local: int) -> dict[str, str]:
        names = list(dict.fromkeys(name for name, _ in self._places))
        count = len(self._places)
        loads = [sum(name == node for name, _ in self._places) for node in names]
        ranks = [str(number) for number, (name, _) in enumerate(self._places) if name == node]
        return {
            "SLURMD_NODENAME": node, "SLURM_GTIDS": ",".join(ranks), "SLURM_STEP_ID": str(self.number),
            "SLURM_STEPID": str(self.number),
            "SLURM_PROCID": str(task), "SLURM_LOCALID": str(local), "SLURM_NODEID": str(names.index(node)),
            "SLURM_NTASKS": str(count), "SLURM_NPROCS": str(count), "SLURM_STEP_NUM_TASKS": str(count),
            "SLURM_STEP_NODELIST": self._fold(names), "SLURM_STEP_NUM_NODES": str(len(names)),
            "SLURM_STEP_TASKS_PER_NODE": _repeated(loads),
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


def _repeated(counts: list[int]) -> str:
    """Write counts as Slurm does: 2(x3),1."""
    runs: list[list[int]] = []
    for count in counts:
        if runs and runs[-1][0] == count:
            runs[-1][1] += 1
        else:
            runs.append([count, 1])
    return ",".join(f"{count}(x{times})" if times > 1 else str(count) for count, times in runs)


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
