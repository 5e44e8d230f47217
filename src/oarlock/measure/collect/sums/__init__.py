"""Sums over the rows of a job while they are logged: its summary, and the energy of nodes."""
