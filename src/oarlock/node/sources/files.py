"""Files of the kernel that are read again and again: kept open and read with `pread`."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Mapping

Values = dict[str, float]
"""What was read of one job or of the node: series (see `metrics.series`) → value. What is absent was not read."""

_ENDED = frozenset({errno.ENODEV, errno.ENOENT, errno.ESRCH})
_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE})

RESERVED = 64
"""Descriptors that no kept file takes: what is opened for a moment (a directory, a setting) needs them."""
_FEW, _MANY = 448, 65536  # bytes; objects up to 512 bytes come from Python's small-object allocator


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
