"""All verbs; importing this registers them."""

from oarlock.web.verbs import acts, events, gantt, jobs, resources, site, submit, usage

__all__ = ["acts", "events", "gantt", "jobs", "resources", "site", "submit", "usage"]
