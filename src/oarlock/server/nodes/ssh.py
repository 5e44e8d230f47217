"""A node behind ssh."""

import shlex
from collections.abc import Sequence

from oarlock.server.nodes.command import NodeCommand

ACCOUNT = "oarlock"
"""Who we are on nodes where the program was installed."""

_OPTIONS = (
    "BatchMode=yes",  # never ask anybody anything
    "StrictHostKeyChecking=yes",  # a host key that changed is for an administrator to look at
    "ConnectTimeout={connect}",
    "ServerAliveInterval={alive}",
    "ServerAliveCountMax=2",
    "ClearAllForwardings=yes",
    "RequestTTY=no",
)


def ssh(
    node: str,
    *,
    command: Sequence[str] = ("ssh",),
    user: str = "root",
    python: str = "python3",
    connect_seconds: int = 10,
    alive_seconds: int = 15,
) -> NodeCommand:
    """Return how the loader's line runs on a node.

    `command` is OPENSSH_CMD as an argument list. Whatever stands in it comes first, so that a site's own option wins.
    """
    words = _words(node, command, user, connect_seconds, alive_seconds)
    return NodeCommand((*words, "exec", shlex.quote(python), "-I", "-S", "-c"), quoted=True)


def installed(
    node: str,
    *,
    command: Sequence[str] = ("ssh",),
    user: str = ACCOUNT,
    connect_seconds: int = 10,
    alive_seconds: int = 15,
) -> NodeCommand:
    """Return how a node program is started that a site installed: sshd there runs it, whatever we ask for."""
    words = _words(node, command, user, connect_seconds, alive_seconds)
    return NodeCommand((*words, "oarlock-node"), quoted=True, installed=True)


def _words(node: str, command: Sequence[str], user: str, connect: int, alive: int) -> tuple[str, ...]:
    options = [option.format(connect=connect, alive=alive) for option in _OPTIONS]
    flags = [word for option in options for word in ("-o", option)]
    return *command, *flags, "-l", user, "--", node
