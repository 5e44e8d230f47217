"""The way of a job: a step a module, each of them one transaction."""
