"""Files of the kernel that are read again and again: kept open, read with `pread`, told apart when they end."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Mapping
from typing import NoReturn

Values = dict[str, float]
"""What was read of one job or of the node: series (see `metrics.series`) → value. What is absent was not read."""

_ENDED = frozenset({errno.ENODEV, errno.ENOENT, errno.ESRCH})
_PAGE_SURELY_LAST = 2048
_LIST_BYTES = 8192


class Ended(Exception):
    """What was measured is over: its cgroup or its process is gone. The normal end, not an error."""


def is_end(error: OSError) -> bool:
    """Whether an error on a kept file only says that its cgroup (ENODEV, ENOENT) or process (ESRCH) is gone."""
    return error.errno in _ENDED


def open_kept(directory: str, name: str) -> int | None:
    """Open a file to be read again and again; None where the kernel or our rights do not offer it."""
    try:
        return os.open(f"{directory}/{name}", os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, PermissionError):
        return None


def open_in(directories: Mapping[str, str], controller: str, name: str) -> int | None:
    """Open a file of one controller's directory; None where the job has no such directory or file."""
    directory = directories.get(controller)
    return None if directory is None else open_kept(directory, name)


def close_all(*descriptors: int | None) -> None:
    """Close what was opened; what was not there is passed over."""
    for descriptor in descriptors:
        if descriptor is not None:
            os.close(descriptor)


def read_list(descriptor: int) -> bytes:
    """Read a file of many records (`cgroup.procs`, `/proc/net/dev`) to its end.

    The kernel hands such files out in pages; a first piece under half a page was all there is.
    """
    data = os.pread(descriptor, _LIST_BYTES, 0)
    if len(data) < _PAGE_SURELY_LAST:
        return data
    pieces, at = [data], len(data)
    while data:
        data = os.pread(descriptor, _LIST_BYTES, at)
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


def listed(directory: str) -> list[str]:
    """Give the sorted names in a directory; none when it is not there."""
    try:
        return sorted(os.listdir(directory))
    except OSError:
        return []


def reraise(error: OSError) -> NoReturn:
    """Turn the errors that mean an end into `Ended`; pass on all others."""
    if is_end(error):
        raise Ended from error
    raise error


def allow_many_files() -> int:
    """Raise this process's limit of open files as far as it may go; give the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard
