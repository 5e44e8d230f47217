"""The site's sensor: a program on the nodes that adds values to what is recorded of a job (OARMONITOR_SENSOR_FILE).

It runs as root in a group of its own and with a deadline, once each time that the server asks. What it prints is
returned as it is; the server reads the values out of it.
"""

from __future__ import annotations

import os
import re
from typing import NamedTuple

from oarlock.node.attempt import site_script
from oarlock.node.attempt.user.notice import remove_group, wait_ended
from oarlock.node.cgroup.base import CgroupDriver, CgroupError
from oarlock.node.wire.channel import Body
from oarlock.node.wire.messages import BAD, UNUSABLE, CgroupLimits, NodeRequestRefused, NodeSettings, why_not_permitted

SECONDS = 10
"""How long a sensor may take, at most."""

_LONGEST = 16 << 10  # bytes that are read of what it prints
_LIMITS = CgroupLimits(memory=256 << 20, pids=64)
_GROUP = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


class SensorRequest(NamedTuple):
    """Which program runs for which job. `cpuset` is the name of the job's group, as OAR's own sensor gets it."""

    path: str
    job: int
    cpuset: str
    seconds: int = SECONDS


def read(body: Body, settings: NodeSettings) -> SensorRequest:
    """Parse a request, or raise `NodeRequestRefused`: also for a program that this node was not installed with."""
    path, job, cpuset, seconds = (body.get(name) for name in SensorRequest._fields)
    numbers = type(job) is int and type(seconds) is int and 0 < seconds <= SECONDS
    if not numbers or not isinstance(path, str) or not isinstance(cpuset, str) or not _GROUP.fullmatch(cpuset):
        raise NodeRequestRefused(BAD, "the request for a sensor cannot be read")
    if settings.programs is not None and path not in settings.programs:
        raise NodeRequestRefused(UNUSABLE, why_not_permitted(path))
    return SensorRequest(path, int(str(job)), cpuset, int(str(seconds)))


def run(request: SensorRequest, node: str, driver: CgroupDriver, wake: int) -> Body:
    """Run the program to its end or its deadline; return what it printed, and what went wrong (`says`)."""
    out = os.memfd_create("values")
    try:
        group = driver.create(f"sensor.{request.job}.{os.getpid()}", _LIMITS)
        arguments, variables = [str(request.job), request.cpuset], {"OARLOCK_JOB_ID": str(request.job)}
        try:
            pid = site_script.start(
                request.path, arguments, {**request._asdict(), "node": node}, variables, group.join, out
            )
            status = wait_ended(pid, wake, request.seconds)
        finally:
            remove_group(group)
        if status is None:
            os.waitpid(pid, 0)
        text = os.pread(out, _LONGEST, 0).decode(errors="replace")
    except site_script.UntrustedScript as error:
        return {"out": "", "says": str(error)}
    except (CgroupError, OSError) as error:
        return {"out": "", "says": f"{request.path}: {error}"}
    finally:
        os.close(out)
    return {"out": text, "says": _problem(request, status)}


def _problem(request: SensorRequest, status: int | None) -> str:
    if status is None:
        return f"{request.path} did not end within {request.seconds} s"
    return f"{request.path} ended with {site_script.describe_exit(status)}" if status else ""
