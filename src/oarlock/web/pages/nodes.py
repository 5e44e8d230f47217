"""The list of nodes, and the page of one."""

import asyncio
from typing import Any

import msgspec

from oarlock.lang.limits import short
from oarlock.measure.collect.series import SeriesView
from oarlock.model.errors import OarlockError, UnknownNode
from oarlock.model.resource import OF_THE_SYSTEM, PROPERTY_ALIASES
from oarlock.web.pages.overview import runs_of
from oarlock.web.pages.plots import OF_NODES, plots_of
from oarlock.web.pages.registry import action, page
from oarlock.web.pages.view import Answer, Data, Redirect, View
from oarlock.web.verbs.overview import NodeNow, OverviewResponse
from oarlock.web.views import ResourceView

_EVENTS = 50
_OF_NODE = 20
_POINTS = 240
_CURVE_SECONDS = 2.0
_METRICS = [metric for kind in OF_NODES for metric in kind.metrics]


@page("/nodes", nav="Nodes", place=40)
async def nodes(view: View) -> Answer:
    """List the nodes, and what happened to them."""
    site: OverviewResponse = await view.ask("overview", where=view.query.get("where"))
    state = view.query.get("state", "")
    states = sorted({node.state for node in site.nodes})
    shown = [node for node in site.nodes if state in ("", node.state)]
    events = (await view.ask("events.list", limit=_EVENTS)).events[::-1]
    return view.page(
        "nodes.html", nodes=shown, state=state, states=states, events=events, where=view.query.get("where", ""),
        total=len(site.nodes),
    )  # fmt: skip


@page("/nodes/{name}")
async def node(view: View) -> Answer:
    """Show a node: its jobs, curves, events and properties."""
    name = view.parts["name"]
    rows = (await view.ask("resources.list", nodes=[name])).resources
    shown = await _now(view, name)
    jobs = await view.ask("jobs.list", node=name, limit=_OF_NODE, order="-id")
    return view.page(
        "node.html",
        node=shown,
        runs=runs_of(shown, "user"),
        jobs=jobs.jobs,
        plots=await _plots(view, name),
        events=(await view.ask("events.list", nodes=[name], limit=_OF_NODE)).events[::-1],
        properties=_properties(rows),
        is_drained=any(row["drain"] == "YES" for row in rows),
        may_act=view.secret is not None and view.caller is not None and view.caller.admin,
    )


async def _now(view: View, name: str) -> NodeNow:
    site: OverviewResponse = await view.ask("overview")
    shown = next((node for node in site.nodes if node.name == name), None)
    if shown is None:
        raise UnknownNode(f"There is no node `{short(name)}`.", hint="The list of nodes leads to each.")
    return shown


@page("/nodes/{name}/plots.json")
async def node_plots(view: View) -> Answer:
    """Send the curves for the script that draws them."""
    return Data(msgspec.json.encode(await _plots(view, view.parts["name"])))


async def _plots(view: View, name: str) -> list[Any]:
    try:
        async with asyncio.timeout(_CURVE_SECONDS):
            series: SeriesView = await view.ask("nodes.series", name=name, points=_POINTS, metrics=_METRICS)
    except (OarlockError, TimeoutError):
        return []
    return plots_of(OF_NODES, series)


def _properties(rows: list[ResourceView]) -> list[tuple[str, str]]:
    """Return the site's properties of a node's resources; where they differ, all values of them."""
    hidden = {*OF_THE_SYSTEM, *PROPERTY_ALIASES, "resource_id", "network_address"}
    columns = [name for name in (rows[0] if rows else {}) if name not in hidden]
    values = {name: sorted({str(row[name]) for row in rows if row[name] is not None}) for name in columns}
    return [(name, _joined(texts)) for name, texts in values.items() if texts]


def _joined(texts: list[str]) -> str:
    numbers = sorted(int(text) for text in texts if text.isdigit())
    if len(numbers) == len(texts) > 2 and numbers == list(range(numbers[0], numbers[-1] + 1)):
        return f"{numbers[0]}–{numbers[-1]}"
    return ", ".join(texts[:8]) + (" …" if len(texts) > 8 else "")


@action("/nodes/{name}/drain")
async def drain(view: View) -> Answer:
    """Put no new job on a node, or allow it again."""
    wished = "NO" if view.field("end") else "YES"
    await view.change("resources.properties", nodes=[view.parts["name"]], properties={"drain": wished})
    return Redirect(f"/nodes/{view.parts['name']}")
