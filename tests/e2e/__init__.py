"""Whole instances: a real server process, real nodes of this machine, real jobs of real accounts."""
