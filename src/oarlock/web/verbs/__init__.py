"""All verbs; importing this registers them."""

from oarlock.web.verbs import (
    acts,
    audit,
    events,
    gantt,
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
    "acts",
    "audit",
    "events",
    "gantt",
    "jobs",
    "maintenance",
    "quotas",
    "resources",
    "site",
    "submit",
    "unknown",
    "usage",
]
