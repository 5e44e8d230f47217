"""What would have happened: traces of past jobs, replayed by the real planner under other policies."""
