"""The ways to a compute node: behind a pipe here, or by ssh; the same program and the same words on both."""

from oarlock.job.news import Back, BadReport, Checkpointed, Exited, Hello, Lost, Missing, NodeEvent, Started
from oarlock.server.transports.channel import Channel
from oarlock.server.transports.local import local
from oarlock.server.transports.node import Doors, Node, Patience
from oarlock.server.transports.spread import Spread
from oarlock.server.transports.ssh import installed, ssh

__all__ = [
    "Back",
    "BadReport",
    "Channel",
    "Checkpointed",
    "Doors",
    "Exited",
    "Hello",
    "Lost",
    "Missing",
    "Node",
    "NodeEvent",
    "Patience",
    "Spread",
    "Started",
    "installed",
    "local",
    "ssh",
]
