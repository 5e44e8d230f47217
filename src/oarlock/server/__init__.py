"""The server: wiring, loops, and the ways to the nodes."""
