"""Oarlock: run a cluster's jobs and show what each one really did."""

__version__ = "0.2.0.dev0"
