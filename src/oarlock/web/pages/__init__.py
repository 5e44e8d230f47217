"""Pages for people: one module a page, importing this registers them. CONTRIBUTING says how to add one."""

from oarlock.web.pages import gantt, job, jobs, nodes, overview, search, sessions, usage

__all__ = ["gantt", "job", "jobs", "nodes", "overview", "search", "sessions", "usage"]
