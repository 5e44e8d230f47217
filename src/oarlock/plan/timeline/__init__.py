"""Who occupies what and when: timelines and the occupancy of the cluster over time."""
