"""What the environment of a job's processes says of the job: its account, and its number where its cgroup has none.

A user can change the environment of a process. Whoever needs the word of the resource manager asks it (`--look-up`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from oarlock.node.measure.layout import CgroupIdentity
from oarlock.node.sources.files import open_briefly, read_list

_PROCESSES = 32
_BYTES = 1 << 20


class _Variables(NamedTuple):
    job: str
    account: str
    name: str = ""  # holds what stands for the number in the path of the cgroup


_OAR = _Variables("OAR_JOB_ID", "OAR_PROJECT_NAME")
_VARIABLES: Mapping[str, _Variables] = {
    "slurm": _Variables("SLURM_JOB_ID", "SLURM_JOB_ACCOUNT", "SLURM_JOB_SLUID"),
    "oar2": _OAR,
    "oar3": _OAR,
}


def identify(identity: CgroupIdentity, directories: Sequence[str], proc: str = "/proc") -> tuple[CgroupIdentity, bool]:
    """Add what a process's environment says to what the path says; false while a later look may find more.

    A process that does not execute the job's own program yet has the environment of whoever started it.
    """
    variables = _VARIABLES.get(identity.layout)
    if variables is None:
        return identity, True
    for pid in _processes(directories):
        try:
            environment = _environment(proc, pid)
        except PermissionError:
            return identity, True
        number = _value(environment, variables.job) or ""
        if number.isdigit():
            identified = identity._replace(account=_value(environment, variables.account) or "")
            is_named = not identity.job.isdigit() and _value(environment, variables.name) in {None, identity.job}
            return identified._replace(job=number) if is_named else identified, True
    return identity, False


def _processes(directories: Sequence[str]) -> Iterator[int]:
    count = 0
    for directory in directories:
        fd = open_briefly(directory, "cgroup.procs")
        if fd is None:
            continue
        try:
            pids = read_list(fd).split()
        except OSError:  # a step that ended meanwhile
            continue
        finally:
            os.close(fd)
        for pid in pids[: _PROCESSES - count]:
            yield int(pid)
            count += 1


def _environment(proc: str, pid: int) -> bytes:
    """Read a process's environment as it was when it began, a NUL before each variable; empty when it is gone."""
    try:
        with open(f"{proc}/{pid}/environ", "rb") as file:
            return b"\0" + file.read(_BYTES)
    except PermissionError:
        raise
    except OSError:
        return b""


def _value(environment: bytes, name: str) -> str | None:
    """Find one variable. An environment is long and two of its variables are wanted, so it is not taken apart."""
    if not name:
        return None
    start = f"\0{name}=".encode()
    at = environment.find(start)
    if at < 0:
        return None
    return environment[at + len(start) :].partition(b"\0")[0].decode("utf-8", "replace")
