"""All verbs; importing this registers them."""

from oarlock.web.verbs import (
    audit,
    events,
    gantt,
    job_actions,
    jobs,
    maintenance,
    quotas,
    resources,
    site,
    submit,
    unknown,
    usage,
)

__all__ = [
    "audit",
    "events",
    "gantt",
    "job_actions",
    "jobs",
    "maintenance",
    "quotas",
    "resources",
    "site",
    "submit",
    "unknown",
    "usage",
]
