"""Make, empty and remove the cgroup of a job, or what a site's own program makes in its place.

That program gets `init`, `freeze`, `thaw` or `clean` as its only argument and the job as JSON on stdin. `init` prints
one JSON object: `join` lists the files that a process writes its number to, `path` is what OAR_CPUSET shall be. Before
a shell or command of `oarsh` and `oarsub -C` begins it gets `enter` and the number of that process.
"""

from __future__ import annotations

import json
import os
import select
import signal
import time
from collections.abc import Collection

from oarlock.node.attempt import site_script
from oarlock.node.cgroup.base import CgroupDriver, CgroupError, JobCgroup, join_cgroup, processes, wait_until
from oarlock.node.cgroup.signals import send
from oarlock.node.sources.files import Values
from oarlock.node.wire.channel import Body
from oarlock.node.wire.messages import CgroupLimits, Launch

_LONGEST = 1 << 16


class ManagerUnusable(CgroupError):
    """The site's program is missing, others could have written it, or it cannot be executed."""


class SiteCgroup:
    """A job in the group that the site's program made. We cannot leave it again, so `return_files` is empty."""

    return_files: tuple[str, ...] = ()

    def __init__(self, launch: Launch, node: str) -> None:
        self._launch, self._node = launch, node
        made = self._call("init")
        self.procs_files = tuple(str(path) for path in made.get("join", []))
        self.path = str(made.get("path", ""))

    def _call(self, verb: str, *more: str) -> Body:
        about: Body = {"limits": self._launch.limits._asdict()}
        return _object(_call_program(self._launch.hooks.manager, (verb, *more), self._launch, self._node, about))

    def join(self) -> None:
        join_cgroup(self.procs_files)

    def enter(self) -> None:
        """Put the calling process in, and let the site's program do its part."""
        self.join()
        self._call("enter", str(os.getpid()))

    def pids(self) -> list[int]:
        return sorted({pid for path in self.procs_files for pid in processes(os.path.dirname(path))})

    def signal(self, number: int, pids: Collection[int] | None = None) -> None:
        send(number, self.pids, pids)

    def freeze(self) -> None:
        self._call("freeze")

    def thaw(self) -> None:
        self._call("thaw")

    def kill(self) -> None:
        send(signal.SIGKILL, self.pids)

    def wait_empty(self, seconds: float) -> bool:
        def emptied() -> bool:
            self.kill()
            return not self.pids()

        return wait_until(emptied, seconds)

    def counters(self) -> Values:
        return {}

    def remove(self) -> None:
        self._call("clean")


def join_as_session(group: JobCgroup) -> None:
    """Put the calling process, which is to be a session, into the group of a job; a site's own program is called."""
    if isinstance(group, SiteCgroup):
        group.enter()
    else:
        group.join()


def suspend_by_program(launch: Launch, node: str, group: JobCgroup, verb: str) -> None:
    """Have the site's own program suspend or resume a job; raise `CgroupError` if it does not."""
    about: Body = {"path": group.path, "pids": group.pids()}
    _call_program(launch.hooks.suspend, (verb,), launch, node, about)


def _call_program(program: str, arguments: tuple[str, ...], launch: Launch, node: str, about: Body) -> bytes:
    """Run a program to its end and return what it prints; a refusal or too long a wait is an error."""
    verb = arguments[0]
    job = {"job": launch.job, "user": launch.user, "name": launch.cpuset, "node": node, **about, "action": verb}
    out, into = os.pipe()
    try:
        pid = _start(program, arguments, job, into)
        text = _read(out, pid, launch.hooks.timeout)
    finally:
        os.close(out)
    status = os.waitpid(pid, 0)[1]
    if status != 0:
        raise CgroupError(f"{program} {verb} ended with {site_script.describe_exit(status)}")
    return text


def _start(program: str, arguments: tuple[str, ...], job: Body, into: int) -> int:
    try:
        return site_script.start(program, list(arguments), job, {}, lambda: None, into)
    except site_script.UntrustedScript as error:
        raise ManagerUnusable(str(error)) from error
    finally:
        os.close(into)


def _read(out: int, pid: int, seconds: float) -> bytes:
    """Read until the program closes its end; kill its session when time is over."""
    end, text = time.monotonic() + seconds, b""
    while True:
        ready, _, _ = select.select([out], [], [], max(0.0, end - time.monotonic()))
        if not ready or len(text) > _LONGEST:
            # It leads a session of its own, so that whatever it started dies with it.
            os.killpg(pid, signal.SIGKILL)
            return b""
        part = os.read(out, _LONGEST)
        if not part:
            return text
        text += part


def _object(text: bytes) -> Body:
    if not text.strip():
        return {}
    try:
        value = json.loads(text)
    except ValueError as error:
        raise CgroupError(f"the site's program printed {text[:60]!r}, which is not JSON") from error
    return value if isinstance(value, dict) else {}


_EMPTY_SECONDS = 10.0
_PATIENCE_SECONDS = 60.0


def make_cgroup(launch: Launch, driver: CgroupDriver, node: str) -> JobCgroup:
    """Make the group of a job, with its limits."""
    if launch.hooks.manager:
        return SiteCgroup(launch, node)
    return driver.create(launch.cpuset, launch.limits)


def drop_undenied_devices(launch: Launch, driver: CgroupDriver) -> Launch:
    """Drop denied devices that nothing enforces here: CUDA still counts them, so GPU numbers must not shift."""
    if launch.hooks.manager or "devices" in driver.missing:
        return launch._replace(limits=launch.limits._replace(deny_devices=()))
    return launch


def kill_and_wait(group: JobCgroup) -> bool:
    """Kill what is in a group and wait for its end; return whether nothing is left."""
    group.kill()
    return group.wait_empty(_PATIENCE_SECONDS)


def end_leftovers(launch: Launch, driver: CgroupDriver, node: str) -> None:
    """End what is left of a job: creating its group again empties it; the site's program returns the old group."""
    if not launch.hooks.manager:
        driver.create(launch.cpuset, CgroupLimits()).remove()
        return
    group = SiteCgroup(launch, node)
    if not group.wait_empty(_EMPTY_SECONDS):
        raise CgroupError(f"processes are left in {group.path}: {group.pids()[:5]}")
    group.remove()
