"""The search: a number is a job; a name is a node, a user, a project or the name of jobs."""

from urllib.parse import quote, urlencode

from oarlock.model.errors import NotFound
from oarlock.model.job import JobState
from oarlock.web.pages.parts.registry import page
from oarlock.web.pages.parts.view import Answer, Redirect, View

_LONGEST = 100
_DIGITS = 18


@page("/search")
async def search(view: View) -> Answer:
    """Lead to what was searched for, or say that there is no such thing."""
    text = view.query.get("q", "").strip()[:_LONGEST]
    await view.ask("queues.list")  # refuses whoever is not signed in
    if not text:
        return Redirect("/jobs")
    if text.isascii() and text.isdigit() and len(text) <= _DIGITS:
        return Redirect(f"/jobs/{int(text)}")
    site = await view.ask("overview")
    names = [node.name for node in site.nodes]
    if text in names:
        return Redirect(f"/nodes/{quote(text, safe='')}")
    for name in ("user", "project", "name"):
        if (await view.ask("jobs.list", states=list(JobState), limit=1, order="-id", **{name: text})).jobs:
            return Redirect(f"/jobs?{urlencode({name: text, 'show': 'all'})}")
    alike = [name for name in names if text.lower() in name.lower()]
    return view.page("search.html", status=NotFound.http_status if not alike else 200, text=text, nodes=alike[:50])
