"""The overview: the cluster in one look."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from oarlock.insight.drawing.marks import colour_of
from oarlock.insight.drawing.squares import Run
from oarlock.web.pages.jobs import states_of
from oarlock.web.pages.parts.registry import page
from oarlock.web.pages.parts.view import Answer, Live, Rendered, View
from oarlock.web.verbs.cluster.overview import CoreCounts, NodeNow, OverviewResponse
from oarlock.web.views import JobLine

COLOURINGS = ("state", "use", "user")
_EVENTS = 6
_MY_JOBS = 8
_LEGEND_USERS = 12


@page("/", nav="Overview", place=10)
async def overview(view: View) -> Answer:
    """Show tiles, nodes, queues, events and one's own jobs."""
    return view.page("overview.html", **await _of_site(view), **await _of_caller(view))


@page("/live/overview")
async def live_site(view: View) -> Answer:
    """Send the tiles, nodes, queues and events anew when something changed."""
    site = await _of_site(view)  # refused here, before anything is sent

    async def parts() -> dict[str, Rendered]:
        return {"site": view.page("overview_site.html", **await _of_site(view))}

    seen_by = "" if view.caller is None else view.sight or "users"
    return Live(("overview", seen_by, site["colouring"], site["where"]), parts)


@page("/live/my-jobs")
async def live_jobs(view: View) -> Answer:
    """Send one's own jobs anew when something changed."""
    await view.ask("queues.list")  # somebody who is not signed in is refused before anything is sent

    async def parts() -> dict[str, Rendered]:
        return {"mine": view.page("overview_mine.html", **await _of_caller(view))}

    return Live(("my jobs", view.user), parts)


async def _of_site(view: View) -> dict[str, Any]:
    wished = view.query.get("by", "")
    colouring = wished if wished in COLOURINGS and view.caller is not None else COLOURINGS[0]
    site: OverviewResponse = await view.ask("overview", where=view.query.get("where"))
    return {
        "site": site,
        "colouring": colouring,
        "where": view.query.get("where", ""),
        "core_parts": core_parts(site.cores),
        "squares": [(node, runs_of(node, colouring)) for node in site.nodes],
        "holders": _holders(site.nodes) if colouring == "user" else [],
        "events": None if view.caller is None else (await view.ask("events.list", limit=_EVENTS)).events[::-1],
    }


async def _of_caller(view: View) -> dict[str, Any]:
    if view.caller is None:
        return {"jobs": None, "efficiency": {}}
    jobs: list[JobLine] = []
    for shown in ("running", "waiting"):
        listed = await view.ask("jobs.list", user=view.user, limit=_MY_JOBS, order="-id", states=states_of(shown))
        jobs += listed.jobs
    jobs = jobs[:_MY_JOBS]
    used = (await view.ask("jobs.efficiency", ids=[job.id for job in jobs])).jobs if jobs else []
    return {"jobs": jobs, "efficiency": {row.job_id: row for row in used}}


def core_parts(cores: CoreCounts) -> list[tuple[str, float]]:
    """Return the parts of the meter of cores, from the left: working, held idle, down."""
    total = cores.total or 1
    working = cores.held if cores.working is None else min(cores.working, cores.held)
    return [("busy", working / total), ("idle", (cores.held - working) / total), ("down", cores.down / total)]


def runs_of(node: NodeNow, colouring: str) -> list[Run]:
    """Return the squares of a node, equal ones together."""
    rest = node.cores - node.held
    ending: list[Run] = [("drain" if node.state == "drain" else "free", rest)] if rest > 0 else []
    if colouring == "user" and node.users is not None:
        return [(colour_of(user), count) for user, count in sorted(node.users.items())] + ending
    working = node.held if node.working is None else min(round(node.working), node.held)
    runs: list[Run] = [("busy", working), ("idle", node.held - working)]
    return [run for run in runs if run[1] > 0] + ending


def _holders(nodes: Sequence[NodeNow]) -> list[tuple[str, int]]:
    counted: Counter[str] = Counter()
    for node in nodes:
        counted.update(node.users or {})
    return counted.most_common(_LEGEND_USERS)
