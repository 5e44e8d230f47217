"""The listening sockets and their connections."""
