"""How the node program is started: here behind a pipe, or on a node by ssh."""

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass

ACCOUNT = "oarlock"
"""The account on nodes where the program was installed."""

_OPTIONS = (
    "BatchMode=yes",  # never prompt
    "StrictHostKeyChecking=yes",  # a host key that changed is for an administrator to look at
    "ConnectTimeout={connect}",
    "ServerAliveInterval={alive}",
    "ServerAliveCountMax=2",
    "ClearAllForwardings=yes",
    "RequestTTY=no",
)


@dataclass(frozen=True, slots=True)
class NodeCommand:
    """A command to which the loader's line is appended; `quoted` where a shell at the other end reads it.

    `installed`: the command starts a node program that is there already, and no line is appended.
    """

    command: tuple[str, ...]
    quoted: bool
    installed: bool = False

    def arguments(self, line: str) -> list[str]:
        """Return the whole argument list. The line has no single quote, so that quoting is the same in every shell."""
        if self.installed:
            return [*self.command]
        return [*self.command, f"'{line}'" if self.quoted else line]


def local(python: str = sys.executable) -> NodeCommand:
    """Return the command for a node on this machine."""
    return NodeCommand((python, "-I", "-S", "-c"), quoted=False)


def ssh(
    node: str,
    *,
    command: Sequence[str] = ("ssh",),
    user: str = "root",
    python: str = "python3",
    connect_seconds: int = 10,
    alive_seconds: int = 15,
) -> NodeCommand:
    """Return the command for a node behind ssh.

    `command` is OPENSSH_CMD as an argument list. Whatever stands in it comes first, so that a site's own option wins.
    """
    words = _ssh_words(node, command, user, connect_seconds, alive_seconds)
    return NodeCommand((*words, "exec", shlex.quote(python), "-I", "-S", "-c"), quoted=True)


def installed(
    node: str,
    *,
    command: Sequence[str] = ("ssh",),
    user: str = ACCOUNT,
    connect_seconds: int = 10,
    alive_seconds: int = 15,
) -> NodeCommand:
    """Return the command for a node with an installed program: its sshd runs that, whatever we ask for."""
    words = _ssh_words(node, command, user, connect_seconds, alive_seconds)
    return NodeCommand((*words, "oarlock-node"), quoted=True, installed=True)


def by_root_program(command: Sequence[str]) -> NodeCommand:
    """Return the command for nodes of this machine where the server is not root's: an installed program, as by ssh."""
    return NodeCommand(tuple(command), quoted=False, installed=True)


def _ssh_words(node: str, command: Sequence[str], user: str, connect: int, alive: int) -> tuple[str, ...]:
    options = [option.format(connect=connect, alive=alive) for option in _OPTIONS]
    flags = [word for option in options for word in ("-o", option)]
    return *command, *flags, "-l", user, "--", node
