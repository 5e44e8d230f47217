"""The vocabulary: what a job, a request, a resource, a plan, an event and a sample are.

Durations are whole seconds and instants whole epoch seconds, both plain `int`; intervals are half-open, [start, stop).
Nothing here knows a clock, a database, a socket, a process or a log.
"""
