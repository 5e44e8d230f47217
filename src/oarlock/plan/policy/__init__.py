"""In which order a queue's jobs are looked at, and who may overtake whom."""
