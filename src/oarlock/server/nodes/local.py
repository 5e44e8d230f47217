"""A node on this machine: the node program behind a pipe."""

import sys

from oarlock.server.nodes.command import Way


def local(python: str = sys.executable) -> Way:
    """Say how the loader's line runs here."""
    return Way((python, "-I", "-S", "-c"), quoted=False)
