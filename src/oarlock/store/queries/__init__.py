"""Every query: a folder a subject, a module a table or question."""
