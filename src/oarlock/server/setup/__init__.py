"""Setup: what a machine needs to be a server, a login host or a node. Standard library only."""
