"""Verbs about the cluster and its site: resources, plan, overview, scheduler, limits, events, sources."""
