"""What tests with real programs share."""

import socket


def free_port() -> int:
    """Give a port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
