"""Shells and commands that a user opens in a running job."""
