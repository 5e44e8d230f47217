"""The way of a sample: whose cgroup it is, and where its measurements go."""
