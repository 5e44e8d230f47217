"""Administration: notices to all, roles, sources and whether they answer, admission rules tried on last week, audit."""

from typing import Any

from oarlock.web.pages.parts.registry import action, page
from oarlock.web.pages.parts.view import Answer, Redirect, View

_AUDITED, _MOST_AUDITED = 50, 1000


@page("/admin", nav="Administration", place=80, admin=True)
async def admin(view: View) -> Answer:
    """Show what administrators look after."""
    return await _page(view)


@action("/admin/rules")
async def try_rule(view: View) -> Answer:
    """Show what a text of rules would have done to the jobs of last week; nothing is stored."""
    text = view.field("rule").replace("\r\n", "\n")
    return await _page(view, rule=text, tried=await view.ask("rules.dry-run", rule=text))


async def _page(view: View, **more: Any) -> Answer:
    limit = view.number("limit", _AUDITED, most=_MOST_AUDITED)
    by, job, check = view.query.get("by", ""), view.query.get("job", ""), view.query.get("check") == "1"
    roles = await view.ask("roles.show")  # refuses whoever is no administrator, before anything else is read
    audit = await view.ask("audit.list", by=by, job=job, limit=limit, check=check)
    values: dict[str, Any] = {
        "roles": roles,
        "notices": (await view.ask("notices.list")).notices,
        "sources": (await view.ask("sources.health")).sources,
        "rules": (await view.ask("rules.list")).rules,
        "audit": list(reversed(audit.changes)),
        "broken": audit.broken,
        "checked": check,
        "by": by,
        "job": job,
        "rule": "",
        "tried": None,
    }
    return view.page("admin.html", **(values | more))


@action("/admin/notices")
async def tell(view: View) -> Answer:
    """Add a notice to all, or take one away."""
    if view.field("remove"):
        await view.change("notices.remove", id=view.field("remove"))
    else:
        await view.change("notices.add", says=view.field("says"), hours=view.field("hours", "24"))
    return Redirect("/admin")
