"""All verbs; importing this registers them."""

from oarlock.web.verbs import jobs, site

__all__ = ["jobs", "site"]
