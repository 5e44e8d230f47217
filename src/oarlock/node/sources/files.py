"""Files of the kernel: kept open and read with `pread`, the small grammars they share, and where cgroups are mounted.

A text that does not follow its grammar is a ValueError.
"""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import NamedTuple

Values = dict[str, float]
"""What was read of one job or of the node: series (see `metrics.series`) → value. What is absent was not read."""

_ENDED = frozenset({errno.ENODEV, errno.ENOENT, errno.ESRCH})
_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE})

RESERVED = 64
"""Descriptors that no kept file takes: what is opened for a moment (a directory, a setting) needs them."""
_FEW, _MANY = 448, 65536  # bytes; objects up to 512 bytes come from Python's small-object allocator

U64_MOST = (1 << 64) - 1
_UNLIMITED_V1 = range(1 << 62, 1 << 63)
"""A v1 memory limit in here is none: it reads as the largest whole page below 2^63, and page sizes differ."""

UNIFIED = "unified"
"""The name under which a job's version 2 directory stands among those of the version 1 controllers."""

MEASURED = frozenset({"cpuacct", "cpu", "cpuset", "memory", "blkio", "pids", "devices", "perf_event", UNIFIED})
"""Controllers whose files some source reads."""


class CgroupGone(Exception):
    """What was measured is over: its cgroup or its process is gone. The normal end, not an error."""


def is_end(error: OSError) -> bool:
    """Return whether an error on a kept file only means that its cgroup (ENODEV, ENOENT) or process (ESRCH) is gone."""
    return error.errno in _ENDED


def is_exhausted(error: OSError) -> bool:
    """Return whether an error means that there are no more descriptors."""
    return error.errno in _EXHAUSTED


def open_briefly(directory: str, name: str) -> int | None:
    """Open a file that is closed in a moment; None where the kernel or our rights do not offer it."""
    try:
        return os.open(f"{directory}/{name}", os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, PermissionError):
        return None


def open_kept(directory: str, name: str) -> int | None:
    """Open a file to be read again and again; None where the kernel or our rights do not offer it."""
    fd = open_briefly(directory, name)
    return None if fd is None else kept(fd)


def kept(fd: int) -> int:
    """Return a descriptor that is to be kept open; close it and raise EMFILE if it is one of the reserved ones.

    The kernel gives the lowest free number, so a number near the limit says that nearly all are taken.
    """
    if fd >= resource.getrlimit(resource.RLIMIT_NOFILE)[0] - RESERVED:
        os.close(fd)
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
    return fd


def open_all(*files: tuple[str | None, str]) -> list[int | None]:
    """Open files (directory, name) to be read again and again; none of them stays open where descriptors run out."""
    opened: list[int | None] = []
    try:
        for directory, name in files:
            opened.append(None if directory is None else open_kept(directory, name))
    except OSError:
        close_all(*opened)
        raise
    return opened


def open_in(directories: Mapping[str, str], controller: str, name: str) -> int | None:
    """Open a file of one controller's directory; None where the job has no such directory or file."""
    directory = directories.get(controller)
    return None if directory is None else open_kept(directory, name)


def read_seldom(directories: Mapping[str, str], controller: str, name: str) -> bytes | None:
    """Open, read and close a file that seldom changes: kept open it would cost a descriptor a job.

    None where the job has no such file; a directory that is gone is the end of the job, as it is for kept files.
    """
    directory = directories.get(controller)
    fd = None if directory is None else open_briefly(directory, name)
    if fd is None:
        return None
    try:
        return read_record(fd, _FEW)
    finally:
        os.close(fd)


def close_all(*descriptors: int | None) -> None:
    """Close what was opened; what was not there is passed over."""
    for descriptor in descriptors:
        if descriptor is not None:
            os.close(descriptor)


def read_record(descriptor: int, size: int) -> bytes:
    """Read a file that the kernel writes as one piece (`memory.stat`), however much longer than `size` it is."""
    data = os.pread(descriptor, size, 0)
    return data if len(data) < size else read_record(descriptor, size * 4)


def read_list(descriptor: int) -> bytes:
    """Read a file of many records (`cgroup.procs`, `/proc/net/dev`) to its end; the kernel hands it out in pieces."""
    data = os.pread(descriptor, _FEW, 0)
    if len(data) < _FEW:
        return data
    pieces, at = [data], len(data)
    while data:
        data = os.pread(descriptor, _MANY, at)
        pieces.append(data)
        at += len(data)
    return b"".join(pieces)


def read_once(path: str) -> str | None:
    """Read a small text file that is not kept open; None when it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read().decode("utf-8", "replace")
    except OSError:
        return None


def list_directory(directory: str) -> list[str]:
    """Return the sorted names in a directory; none when it is not there."""
    try:
        return sorted(os.listdir(directory))
    except OSError:
        return []


def allow_many_files(wanted: int = 1 << 18) -> int:
    """Raise this process's limit of open files as far as allowed, up to `wanted`; return the limit.

    A job costs some twenty files, so a thousand jobs are over what many systems allow without asking.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for limit in (max(wanted, hard), hard):
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(wanted, limit)), limit))
            break
        except (OSError, ValueError):
            continue  # beyond the hard limit only root may go
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def limit(text: bytes) -> int | None:
    """Read a limit: a whole number, or None for the word `max` and for v1's largest value."""
    word = text.strip()
    if word == b"max":
        return None
    value = int(word) if word.isdigit() else -1
    if not 0 <= value <= U64_MOST:
        raise ValueError(f"{text!r} is neither a whole number of 64 bits nor `max`")
    return None if value in _UNLIMITED_V1 else value


def cpu_list(text: bytes) -> list[int]:
    """Read a list of CPUs such as `0-1,3,5`; empty text is an empty list."""
    cpus: list[int] = []
    for part in text.decode("ascii").strip().split(","):
        if not part:
            continue
        first, dash, last = part.partition("-")
        if not first.isdigit() or (dash and not last.isdigit()):
            raise ValueError(f"{part!r} is not a CPU or a range of CPUs")
        cpus.extend(range(int(first), int(last if dash else first) + 1))
    return cpus


def word_values(text: bytes) -> dict[bytes, int]:
    """Read lines of `word number`, as in `cpu.stat`."""
    words = text.split()
    return dict(zip(words[::2], map(int, words[1::2])))


class WordPositions:
    """Where wanted words stand in a file of `word number` lines, whose order a kernel never changes.

    Looking the places up once and picking by position costs a third of building a dict a job a sample.
    Words that this kernel does not print are left out.
    """

    __slots__ = ("_names", "_present_words", "_size", "_take", "_wanted")

    def __init__(self, wanted: Mapping[bytes, str]) -> None:
        self._wanted = wanted
        self._size = -1
        self._present_words: tuple[bytes, ...] = ()
        self._names: list[str] = []
        self._take: Callable[[list[bytes]], tuple[bytes, ...]] = tuple

    def pick(self, words: list[bytes], into: dict[str, float]) -> None:
        """Put the values of the wanted words into `into`."""
        if len(words) != self._size:
            self._learn(words)
        picked = self._take(words)
        if picked[::2] != self._present_words:  # another kernel's file after all
            self._learn(words)
            picked = self._take(words)
        into.update(zip(self._names, map(int, picked[1::2])))

    def _learn(self, words: list[bytes]) -> None:
        position = {word: at for at, word in enumerate(words[:-1]) if at % 2 == 0}
        self._present_words = tuple(word for word in self._wanted if word in position)
        self._names = [self._wanted[word] for word in self._present_words]
        places = [at for word in self._present_words for at in (position[word], position[word] + 1)]
        self._take = itemgetter(*places) if places else _nothing
        self._size = len(words)


def _nothing(words: list[bytes]) -> tuple[bytes, ...]:  # noqa: ARG001
    return ()


class Hierarchy(NamedTuple):
    """One mounted tree of cgroups: version 2 has a single one, version 1 one for each set of controllers."""

    root: str
    controllers: tuple[str, ...]


def parse_hierarchies(mountinfo: str, wanted: frozenset[str] | None = MEASURED) -> list[Hierarchy]:
    """Read `/proc/self/mountinfo`, with the wanted controllers or all. What is mounted twice (by OAR) counts once."""
    hierarchies: dict[str, Hierarchy] = {}
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.partition(" ")
        device, root = before.split()[2], before.split()[4]
        names = _controllers(kind, options.split()[-1] if options else "", wanted)
        if names:
            hierarchies.setdefault(device, Hierarchy(_unescape(root), names))
    return list(hierarchies.values())


def mounted_hierarchies(proc: str = "/proc") -> list[Hierarchy]:
    """Return the hierarchies that are mounted now, as this process sees them."""
    with open(f"{proc}/self/mountinfo") as file:
        return parse_hierarchies(file.read())


def _controllers(kind: str, options: str, wanted: frozenset[str] | None) -> tuple[str, ...]:
    if kind == "cgroup2":
        return (UNIFIED,)
    if kind != "cgroup":
        return ()
    return tuple(option for option in options.split(",") if wanted is None or option in wanted)


def _unescape(path: str) -> str:
    """Undo the octal escapes of a space, a tab, a newline and a backslash in a mount point."""
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        path = path.replace(code, character)
    return path
