"""File descriptors: as many as the system allows, and a share of them that connections never take."""

import contextlib
import resource
from typing import NamedTuple

MOST = 65_536
"""Upper bound: more are of no use, and some systems allow a thousand times as many."""

_LIMITS_AT_START = resource.getrlimit(resource.RLIMIT_NOFILE)


class ConnectionShares(NamedTuple):
    """How many connections there may be in all, and how many of them at the port: the rest is the socket's."""

    most: int
    most_at_port: int


def limit() -> int:
    """Return how many this process may have."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def raise_limit() -> None:
    """Raise the soft limit of this process as far as the hard limit allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST if hard == resource.RLIM_INFINITY else min(hard, MOST)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def lower_again(pid: int) -> None:
    """Set the limits of a child to those this process was started with: jobs inherit them, not the server's."""
    with contextlib.suppress(OSError):  # it has ended already
        resource.prlimit(pid, resource.RLIMIT_NOFILE, _LIMITS_AT_START)


def connection_shares(count: int) -> ConnectionShares:
    """Divide descriptors: half are left to nodes, the database and programs, an eighth to the socket alone."""
    most = MOST // 2 if count == resource.RLIM_INFINITY else count // 2
    return ConnectionShares(most, most * 3 // 4)
