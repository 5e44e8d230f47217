"""Processes of a job, from /proc: memory, threads by state, open files, I/O, CPU time by executable.

What a process did is kept when it ends, so that these counters never fall. The kernel adds the work of a child to
its parent when the parent has waited for it; work that was seen at the child already is not counted again there.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache

from oarlock.node.sources.files import Values, close_all, is_end, open_all, open_briefly, read_list, read_once
from oarlock.node.sources.probe import Probe, ProbedJob, series

STATES = {
    "R": "running", "S": "sleeping", "D": "disk-sleep", "Z": "zombie", "T": "stopped", "t": "tracing-stop",
    "X": "dead", "x": "dead", "I": "idle", "K": "wake-kill", "W": "waking", "P": "parked",
}  # fmt: skip
"""The words that portals know for the kernel's letters."""
UNKNOWN = "unknown"

BATCH_SCRIPT = b"slurm_script"
"""What the kernel calls the script of a Slurm job, whatever interprets it: the name of its file."""
_ZOMBIE = "Z"

MOST_EXECUTABLES = 64
OTHERS = "others"
"""The executable that stands for all after the first so many of a job."""

IO_METRICS = (
    "read_characters_bytes_total", "written_characters_bytes_total", "read_calls_total", "write_calls_total",
    "read_bytes_total", "written_bytes_total",
)  # fmt: skip
"""In the order of the lines of /proc/PID/io."""

_STAT_BYTES, _IO_BYTES = 1024, 512
_NOTHING = (0,) * (2 + len(IO_METRICS))
_OWN, _CHILDREN, _IO = 0, 1, 2  # where CPU ticks of its own, of waited-for children, and I/O stand in a `Work`

Work = Sequence[int]
"""What a process did so far: ticks of its own, ticks of its children, then the values of `IO_METRICS`."""


class ProcessSource:
    """All that /proc knows of a job's processes. `scratch` names the file systems whose use is to be told."""

    name = "processes"
    controllers: frozenset[str] = frozenset()

    def __init__(self, proc: str = "/proc", scratch: Sequence[str] = ("/scratch",)) -> None:
        self.proc = proc
        self.scratch = tuple(f"{path.rstrip('/')}/" for path in scratch)
        self.user_hz = os.sysconf("SC_CLK_TCK")
        self.page_bytes = os.sysconf("SC_PAGE_SIZE")

    def open(self, job: ProbedJob) -> Probe | None:
        """Every job may have processes, sooner or later."""
        return JobProcesses(self, job)


class ProcessStat:
    """One line of /proc/PID/stat."""

    __slots__ = ("children", "name", "own", "pages", "parent", "state", "threads")

    def __init__(self, text: bytes) -> None:
        begin, end = text.index(b"(") + 1, text.rindex(b")")  # a name may hold brackets and spaces
        fields = text[end + 2 :].split(None, 22)
        self.name = text[begin:end]
        self.state = chr(fields[0][0])
        self.parent = int(fields[1])
        self.own = int(fields[11]) + int(fields[12])
        self.children = int(fields[13]) + int(fields[14])
        self.threads = int(fields[17])
        self.pages = int(fields[21])


def io_values(text: bytes) -> list[int]:
    """Read /proc/PID/io into the values of `IO_METRICS`."""
    return [int(word) for word in text.split()[1:12:2]]


class Process:
    """One process and what it did."""

    __slots__ = ("_io", "_owed", "_stat", "done", "exe", "is_work", "name", "parent", "pid")

    def __init__(self, proc: str, pid: int) -> None:
        self.pid = pid
        self.parent = 0
        self.name = b""
        self.exe = ""
        self.is_work = True  # of the user: neither root's, nor the script that a resource manager made of a job
        self.done: Work = _NOTHING
        self._owed = list(_NOTHING)
        self._stat, self._io = open_all((f"{proc}/{pid}", "stat"), (f"{proc}/{pid}", "io"))

    def read(self, proc: str) -> ProcessStat | None:
        """Read its state; None when it is gone. `exe` follows when it executes another program."""
        if self._stat is None:
            return None
        try:
            stat = ProcessStat(os.pread(self._stat, _STAT_BYTES, 0))
        except OSError as error:
            if is_end(error):
                return None
            raise
        self.parent = stat.parent
        if stat.name != self.name:
            self.name = stat.name
            self.exe = executable(proc, self.pid, stat.name)
            self.is_work = stat.name != BATCH_SCRIPT and not is_roots(proc, self.pid)
        return stat

    def io(self) -> list[int] | None:
        """Read its I/O; None where we may not."""
        if self._io is None:
            return None
        try:
            return io_values(os.pread(self._io, _IO_BYTES, 0))
        except OSError:
            return None

    def advance(self, done: Work) -> list[int]:
        """Update the work done; return what is new, less what was already counted for its ended children."""
        if done == self.done:
            return []
        fresh = []
        for at, (now, before) in enumerate(zip(done, self.done)):
            growth = max(0, now - before)
            inherited = min(self._owed[at], growth)
            self._owed[at] -= inherited
            fresh.append(growth - inherited)
        self.done = done
        return fresh

    def inherit(self, child: Process) -> None:
        """Remember an ended child's work: the kernel is going to add it here."""
        self._owed[_CHILDREN] += child.done[_OWN] + child.done[_CHILDREN]
        for at in range(_IO, len(self._owed)):
            self._owed[at] += child.done[at]

    def close(self) -> None:
        """Close its files."""
        close_all(self._stat, self._io)


class JobProcesses(Probe):
    """All processes of one job."""

    __slots__ = ("_by_exe", "_directories", "_fds", "_io_totals", "_job", "_pids", "_processes",
                 "_source")  # fmt: skip
    beats = True
    costly = True

    def __init__(self, source: ProcessSource, job: ProbedJob) -> None:
        self._source, self._job = source, job
        self._directories: Sequence[str] = ()
        self._fds: list[int] = []
        self._pids = b""
        self._processes: dict[int, Process] = {}
        self._by_exe: Counter[str] = Counter()
        self._io_totals: list[int] | None = None

    def beat(self) -> bytes:
        """Read which processes there are."""
        if self._job.process_directories is not self._directories:
            directories = self._job.process_directories
            opened = open_all(*((directory, "cgroup.procs") for directory in directories))
            close_all(*self._fds)
            self._fds, self._directories = [fd for fd in opened if fd is not None], directories
        self._pids = b"".join([_pids_in(fd, own=at == 0) for at, fd in enumerate(self._fds)])
        return self._pids

    def read(self, values: Values, *, thorough: bool) -> None:  # noqa: ARG002
        """Read every process."""
        self._meet_and_part({int(pid) for pid in self._pids.split()})
        states: dict[str, int] = {"running": 0}
        work: dict[str, int] = {"running": 0}
        threads: dict[str, int] = {}
        pages = working = 0
        for process in list(self._processes.values()):
            stat = process.read(self._source.proc)
            if stat is None:
                self._part(process)
                continue
            pages += stat.pages
            exe = self._called(process.exe)
            threads[exe] = threads.get(exe, 0) + stat.threads
            counts = process.is_work and stat.state != _ZOMBIE
            working += counts
            for state in self._thread_states(process.pid, stat):
                states[state] = states.get(state, 0) + 1
                if counts:
                    work[state] = work.get(state, 0) + 1
            self._account(process, stat, exe)
        values["processes"] = len(self._processes)
        values["resident_bytes"] = pages * self._source.page_bytes
        values["user_processes"] = working
        values.update([(_state_series("threads", state), count) for state, count in states.items()])
        values.update([(_state_series("user_threads", state), count) for state, count in work.items()])
        values.update([(_exe_series("process_threads", exe), count) for exe, count in threads.items()])
        self._put_totals(values)

    def read_costly(self, values: Values) -> None:
        """Follow the links to the files that are open."""
        values.update(links(self._source.proc, self._processes, self._source.scratch))

    def close(self) -> None:
        """Close every file of every process."""
        close_all(*self._fds)
        for process in self._processes.values():
            process.close()

    def _meet_and_part(self, pids: set[int]) -> None:
        for pid in self._processes.keys() - pids:
            self._part(self._processes[pid])
        for pid in pids - self._processes.keys():
            self._processes[pid] = Process(self._source.proc, pid)

    def _part(self, process: Process) -> None:
        del self._processes[process.pid]
        process.close()
        parent = self._processes.get(process.parent)
        if parent:
            parent.inherit(process)

    def _called(self, exe: str) -> str:
        """Return the name of an executable in the series; `OTHERS` beyond a limit, as jobs can make many names."""
        return exe if exe in self._by_exe or len(self._by_exe) < MOST_EXECUTABLES else OTHERS

    def _account(self, process: Process, stat: ProcessStat, exe: str) -> None:
        io = process.io()
        if io is not None and self._io_totals is None:
            self._io_totals = [0] * len(IO_METRICS)
        fresh = process.advance([stat.own, stat.children, *(io or process.done[_IO:])])
        if fresh:
            self._by_exe[exe] += fresh[_OWN] + fresh[_CHILDREN]
            if self._io_totals is not None:
                self._io_totals = [total + more for total, more in zip(self._io_totals, fresh[_IO:])]
        else:
            self._by_exe.setdefault(exe, 0)

    def _thread_states(self, pid: int, stat: ProcessStat) -> list[str]:
        return [STATES.get(stat.state, UNKNOWN)] if stat.threads == 1 else thread_states(self._source.proc, pid)

    def _put_totals(self, values: Values) -> None:
        for exe, ticks in self._by_exe.items():
            values[_exe_series("process_cpu_seconds_total", exe)] = ticks / self._source.user_hz
        if self._io_totals is not None:
            values.update(zip(IO_METRICS, self._io_totals))


@lru_cache(maxsize=1024)
def _state_series(name: str, state: str) -> str:
    return series(name, state=state)


@lru_cache(maxsize=4096)
def _exe_series(name: str, exe: str) -> str:
    return series(name, exe=exe)


def _pids_in(fd: int, *, own: bool) -> bytes:
    """Read a `cgroup.procs`. A step's directory may vanish while its job goes on; the job's own is its end."""
    try:
        return read_list(fd)
    except OSError as error:
        if own or not is_end(error):
            raise
        return b""


def executable(proc: str, pid: int, name: bytes) -> str:
    """Return the base name of a process's executable; the kernel's short name where we may not look."""
    try:
        return os.path.basename(os.readlink(f"{proc}/{pid}/exe").removesuffix(" (deleted)"))
    except OSError:
        return os.fsdecode(name)


def is_roots(proc: str, pid: int) -> bool:
    """Return whether a process is root's, by its real uid; false if it is gone or may not be read."""
    status = read_once(f"{proc}/{pid}/status")
    _, _, rest = (status or "").partition("\nUid:")
    return rest.split(None, 1)[:1] == ["0"]


def thread_states(proc: str, pid: int) -> list[str]:
    """Return the state of each thread; of those still there, when the process ends meanwhile."""
    states = []
    try:
        for thread in os.listdir(f"{proc}/{pid}/task"):
            fd = os.open(f"{proc}/{pid}/task/{thread}/stat", os.O_RDONLY | os.O_CLOEXEC)
            try:
                states.append(STATES.get(ProcessStat(os.pread(fd, _STAT_BYTES, 0)).state, UNKNOWN))
            finally:
                os.close(fd)
    except OSError as error:
        if not is_end(error):
            raise
    return states


def links(proc: str, pids: Iterable[int], scratch: tuple[str, ...]) -> Values:
    """Count the distinct files that processes have open, and check whether one is on scratch.

    Nothing is given when no process lets us look.
    """
    paths: set[str] = set()
    hidden = seen = 0
    for pid in pids:
        try:
            names = os.listdir(f"{proc}/{pid}/fd")
        except OSError:
            hidden += 1
            continue
        seen += 1
        paths.update([_target(f"{proc}/{pid}/fd/{name}") for name in names])
    if hidden and not seen:
        return {}
    paths = {path for path in paths if path.startswith("/") and not path.startswith("/dev/")}
    return {"open_files": len(paths), "uses_scratch": float(any(path.startswith(scratch) for path in paths))}


def owner(directories: Sequence[str], proc: str = "/proc") -> int | None:
    """Return the user of the first process that is not root's, for layouts whose paths do not say it."""
    for directory in directories:
        fd = open_briefly(directory, "cgroup.procs")
        if fd is None:
            continue
        try:
            for pid in _pids_in(fd, own=False).split():
                uid = _uid(f"{proc}/{int(pid)}")
                if uid:
                    return uid
        finally:
            os.close(fd)
    return None


def _uid(path: str) -> int | None:
    try:
        return os.stat(path).st_uid
    except OSError:
        return None


def _target(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""
