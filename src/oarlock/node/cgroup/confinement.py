"""Make, empty and remove the cgroup of a job, or what the site's own program makes in its place."""

from __future__ import annotations

from oarlock.node.cgroup.drivers import CgroupDriver, CgroupError, JobCgroup
from oarlock.node.cgroup.site import SiteCgroup
from oarlock.node.wire.messages import CgroupLimits, Launch

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
