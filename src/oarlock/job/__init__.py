"""The steps in the life of a job. Each step reads, decides, and writes in one transaction, and returns effects.

Reports come in (`run.reports`), effects go out (`run.effects`). The caller carries the effects out: the server on real
nodes, simulations and tests on simulated ones. No step reads a clock.
"""
