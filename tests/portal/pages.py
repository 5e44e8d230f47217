"""Addresses of all pages of the made-up site; a new page adds its line here. Some are for administrators."""

PAGES = [
    "/",
    "/?by=user",
    "/?by=use&where=cpu_model%3D%27zen4%27",
    "/gantt",
    "/gantt?cores=4&hours=1&open=node-01&zone=Europe/Paris",
    "/jobs",
    "/jobs?show=over&order=user",
    "/jobs/1",
    "/jobs/41",
    "/jobs/75",
    "/arrays/92",
    "/compare?ids=75,77,79",
    "/nodes",
    "/nodes/node-01",
    "/users/nobody?days=30",
    "/projects/vision",
    "/energy",
    "/software?days=30",
    "/scheduler",
    "/me",
]

STAFF_PAGES = [
    "/software?kind=module",
    "/waste",
    "/waste?days=30&order=energy",
    "/admin",
    "/admin?check=1",
    "/users/daemon",
]
