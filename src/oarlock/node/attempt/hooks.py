"""Prologue and epilogue: scripts of the site around a job, each in a group of its own, each with a deadline."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import NamedTuple

from oarlock.node.attempt import site_script
from oarlock.node.attempt.site_script import ScriptProblem
from oarlock.node.cgroup.drivers import CgroupDriver, CgroupError
from oarlock.node.wire.channel import Body
from oarlock.node.wire.messages import EXIT, TIMEOUT, UNUSABLE, CgroupLimits, Launch

_KILL_AFTER = 10.0  # seconds between TERM and KILL
_EMPTY_SECONDS = 60.0

Wait = Callable[[int, float], "int | None"]
"""Waits so many seconds for a process; gives its status, or `None`."""


class HookContext(NamedTuple):
    """Which script runs, and for which job."""

    word: str  # `prologue` or `epilogue`
    path: str
    launch: Launch
    node: str
    node_file: str

    def arguments(self) -> list[str]:
        """OAR's four: job, user, node file, walltime."""
        launch = self.launch
        return [str(launch.job), launch.user, self.node_file, str(launch.walltime)]

    def body(self) -> Body:
        """The job as JSON, without what is the user's own business."""
        fields = {**self.launch.body(), "hook": self.word, "node": self.node}
        return {name: value for name, value in fields.items() if name not in {"secret", "environment", "command"}}


def run(context: HookContext, driver: CgroupDriver, wait: Wait) -> ScriptProblem | None:
    """Run a script to its end or its deadline; return what went wrong, if anything did."""
    job, path, seconds = context.launch.job, context.path, context.launch.hooks.timeout
    variables = {"OARLOCK_JOB_ID": str(job), "OARLOCK_HOOK": context.word}
    try:
        group = driver.create(f"{context.word}.{job}", CgroupLimits())
        pid = site_script.start(path, context.arguments(), context.body(), variables, group.join)
    except site_script.UntrustedScript as error:
        return ScriptProblem(str(error), UNUSABLE)
    except (CgroupError, OSError) as error:
        return ScriptProblem(f"{path}: {error}", "")
    status = wait(pid, seconds)
    if status is None:
        group.signal(signal.SIGTERM)
        wait(pid, _KILL_AFTER)
    group.kill()
    if group.wait_empty(_EMPTY_SECONDS):
        group.remove()
    if status is None:
        return ScriptProblem(f"{path} did not end within {seconds} s", TIMEOUT)
    return ScriptProblem(f"{path} ended with {site_script.describe_exit(status)}", EXIT) if status else None
