"""The states of nodes: checks, power saving, maintenance."""
