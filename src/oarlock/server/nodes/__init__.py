"""Clients of compute nodes: behind a pipe here, or by ssh; the same program and messages on both."""

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
from oarlock.server.nodes.command import installed, local, ssh
from oarlock.server.nodes.connection_slots import ConnectionSlots, Timeouts
from oarlock.server.nodes.node import NodeClient

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
    "Started",
    "Timeouts",
    "installed",
    "local",
    "ssh",
]
