"""The way of a job, a step a module: each reads, decides, writes in one transaction, and says what is to be done.

News come in (`news`), instructions go out (`instructions`); whoever calls carries the instructions out: the server on
real nodes, tests and simulations on virtual ones. No step reads a clock.
"""
