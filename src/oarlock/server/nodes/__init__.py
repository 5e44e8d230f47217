"""The ways to a compute node: behind a pipe here, or by ssh; the same program and the same words on both."""

from oarlock.job.run.reports import Back, BadReport, Checkpointed, Exited, Hello, Lost, Missing, NodeEvent, Started
from oarlock.server.nodes.channel import NodeChannel
from oarlock.server.nodes.local import local
from oarlock.server.nodes.node import ConnectionSlots, NodeClient, Timeouts
from oarlock.server.nodes.spread import Spread
from oarlock.server.nodes.ssh import installed, ssh

__all__ = [
    "Back",
    "BadReport",
    "Checkpointed",
    "ConnectionSlots",
    "Exited",
    "Hello",
    "Lost",
    "Missing",
    "NodeChannel",
    "NodeClient",
    "NodeEvent",
    "Spread",
    "Started",
    "Timeouts",
    "installed",
    "local",
    "ssh",
]
