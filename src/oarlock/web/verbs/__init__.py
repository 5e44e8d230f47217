"""All verbs; importing this registers them."""

from oarlock.web.verbs import (
    gantt,
    history,
    job_actions,
    jobs,
    limits,
    metrics,
    resources,
    rules,
    sessions,
    site,
    submit,
    walltime,
)

__all__ = [
    "gantt",
    "history",
    "job_actions",
    "jobs",
    "limits",
    "metrics",
    "resources",
    "rules",
    "sessions",
    "site",
    "submit",
    "walltime",
]
