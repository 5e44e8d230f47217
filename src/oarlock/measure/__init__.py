"""From samples to outputs: the owner of each cgroup, the names of metrics, and where measurements are written."""
