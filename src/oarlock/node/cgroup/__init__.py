"""The confinement of a job: cgroups v1 and v2, process trees, a site's own program."""
