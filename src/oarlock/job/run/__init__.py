"""From a waiting job to its end: schedule, launch, watch, finish."""
