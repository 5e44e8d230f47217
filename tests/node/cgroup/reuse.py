"""Runs in a process namespace of its own: a process of a job ends, and its number goes to somebody else's.

Says whether a signal for the job left the other process alone, and whether another process of the job got it.
"""

import os
import signal
import sys
from pathlib import Path
from typing import NamedTuple

from oarlock.node.cgroup import drivers, signals
from oarlock.node.cgroup.base import CgroupMounts
from oarlock.node.cgroup.drivers import detect
from oarlock.node.wire.messages import CgroupLimits

LAST = Path("/proc/sys/kernel/ns_last_pid")


class Paused(NamedTuple):
    """A process that waits for signals, and what it says."""

    pid: int
    says: int

    def lives(self):
        """Ask it. The kernel hands out signals by their number: one that ends it comes before this one."""
        os.kill(self.pid, signal.SIGRTMIN)
        return os.read(self.says, 1) == b"!"

    def end(self):
        os.kill(self.pid, signal.SIGKILL)
        return os.waitpid(self.pid, 0)


def paused(join=lambda: None):
    """Fork a process that waits for signals, in a group or outside all of them."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGRTMIN, lambda *_: os.write(writing, b"!"))
        join()
        os.write(writing, b"!")
        while True:
            signal.pause()
    os.close(writing)
    os.read(reading, 1)
    return Paused(pid, reading)


def lists_then_replaces(group, first, others):
    """Make a listing of a group; after the first one its process is gone, and another one has its number."""

    def listed():
        found = group.pids()
        if not others:
            assert found == [first.pid]
            first.end()
            LAST.write_text(str(first.pid - 1))
            others.append(paused())
        return found

    return listed


def main(kind, node):
    mounts = drivers.mounted()
    driver = detect(node, mounts if kind == "tree" else CgroupMounts(mounts.v1, None))
    group = driver.create("ada_1", CgroupLimits())
    first, others = paused(group.join), []
    signals.send(signal.SIGTERM, lists_then_replaces(group, first, others))
    [other] = others
    assert other.pid == first.pid
    print("spared" if other.lives() else "killed")
    other.end()
    again = paused(group.join)
    group.signal(signal.SIGTERM)
    print("lost" if again.lives() else "arrived")
    os.waitpid(again.pid, 0)
    group.remove()
    driver.leave()


if __name__ == "__main__":
    main(*sys.argv[1:])
