"""Oarlock: run a cluster's jobs and show what each one really did."""

__version__ = "0.1.0"
