"""The collector in a process of its own: what nodes measure is logged and read there."""
