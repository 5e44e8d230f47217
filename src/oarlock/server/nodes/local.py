"""A node on this machine: the node program behind a pipe."""

import sys

from oarlock.server.nodes.command import NodeCommand


def local(python: str = sys.executable) -> NodeCommand:
    """Return how the loader's line runs here."""
    return NodeCommand((python, "-I", "-S", "-c"), quoted=False)
