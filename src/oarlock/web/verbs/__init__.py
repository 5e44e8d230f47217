"""All verbs; importing this registers them."""

from oarlock.web.verbs import acts, gantt, jobs, resources, site, submit, usage

__all__ = ["acts", "gantt", "jobs", "resources", "site", "submit", "usage"]
