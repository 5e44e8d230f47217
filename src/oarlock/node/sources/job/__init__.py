"""What is measured of a job: its cgroups and its processes."""
