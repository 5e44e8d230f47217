"""What a node tells the server of itself when it connects."""

from __future__ import annotations

import os
import sys
import time

from oarlock.node.attempt import site_script
from oarlock.node.attempt.spool import HighestJob
from oarlock.node.cgroup.base import CgroupDriver, allowed_processes
from oarlock.node.wire.channel import PROTOCOL, Body
from oarlock.node.wire.messages import NodeSettings, why_not_permitted


def make_hello(settings: NodeSettings, driver: CgroupDriver, boot: str, highest: HighestJob) -> Body:
    """Describe the machine, how jobs are confined on it, and which programs of the site cannot be run."""
    return {
        "event": "hello",
        "protocol": PROTOCOL,
        "node": settings.node,
        "boot": boot,
        "cgroups": driver.kind,
        "missing": list(driver.missing),
        "cpus": len(os.sched_getaffinity(0)),
        "processes": allowed_processes(),
        "memory": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "python": ".".join(map(str, sys.version_info[:3])),
        "uid": os.geteuid(),
        "now": time.time(),
        "unusable": _unusable(settings),
        "instance": highest.before[0],
        "highest_job": highest.before[1],
    }


def _unusable(settings: NodeSettings) -> dict[str, str]:
    """Return the programs of the site that cannot be run here, with the reasons."""
    reasons: dict[str, str] = {}
    for path in settings.check:
        is_unknown = settings.programs is not None and path not in settings.programs
        problem = why_not_permitted(path) if is_unknown else site_script.why_unusable(path)
        if problem:
            reasons[path] = problem
    return reasons
