"""Pages for people: one module a page, importing this registers them; what they are made of is in `parts`."""

from oarlock.web.pages import (
    admin,
    compare,
    facilities,
    gantt,
    job,
    jobs,
    mails,
    nodes,
    overview,
    scheduler,
    search,
    sessions,
    shares,
    usage,
)

__all__ = [
    "admin",
    "compare",
    "facilities",
    "gantt",
    "job",
    "jobs",
    "mails",
    "nodes",
    "overview",
    "scheduler",
    "search",
    "sessions",
    "shares",
    "usage",
]
