"""The ways to a compute node: behind a pipe here, or by ssh; the same program and the same words on both."""

from oarlock.server.transports.channel import Channel, Hello
from oarlock.server.transports.local import local
from oarlock.server.transports.node import (
    Back,
    BadReport,
    Checkpointed,
    Doors,
    Exited,
    Lost,
    Missing,
    Node,
    NodeEvent,
    Patience,
    Started,
)
from oarlock.server.transports.spread import Spread
from oarlock.server.transports.ssh import ssh

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
    "local",
    "ssh",
]
