"""A node behind ssh."""

import shlex
from collections.abc import Sequence

from oarlock.server.transports.way import Way

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
) -> Way:
    """Say how the loader's line runs on a node.

    `command` is OPENSSH_CMD as an argument list. Whatever stands in it comes first, so that a site's own option wins.
    """
    options = [option.format(connect=connect_seconds, alive=alive_seconds) for option in _OPTIONS]
    flags = [word for option in options for word in ("-o", option)]
    words = [*command, *flags, "-l", user, "--", node, "exec", shlex.quote(python), "-I", "-S", "-c"]
    return Way(tuple(words), quoted=True)
