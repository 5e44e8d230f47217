"""Scheduling policies: the order of a queue's jobs, reservations of dates, backfilling."""
