"""The ways to a compute node: behind a pipe here, or by ssh; the same program and the same words on both."""

from oarlock.job.run.reports import (
    AttemptMissing,
    BadReport,
    Checkpointed,
    ConnectionLost,
    Exited,
    Hello,
    NodeReachable,
    NodeReport,
    Started,
)
from oarlock.server.nodes.channel import NodeChannel
from oarlock.server.nodes.local import local
from oarlock.server.nodes.node import ConnectionSlots, NodeClient, Timeouts
from oarlock.server.nodes.spread import Spread
from oarlock.server.nodes.ssh import installed, ssh

__all__ = [
    "AttemptMissing",
    "BadReport",
    "Checkpointed",
    "ConnectionLost",
    "ConnectionSlots",
    "Exited",
    "Hello",
    "NodeChannel",
    "NodeClient",
    "NodeReachable",
    "NodeReport",
    "Spread",
    "Started",
    "Timeouts",
    "installed",
    "local",
    "ssh",
]
