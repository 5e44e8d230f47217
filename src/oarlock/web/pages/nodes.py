"""The list of nodes, and the page of one."""

from typing import Any

import msgspec

from oarlock.insight.drawing.marks import sparkline_image
from oarlock.insight.drawing.time_plot import TimePlot
from oarlock.lang.limits import short
from oarlock.model.errors import UnknownNode
from oarlock.model.resource import OF_THE_SYSTEM, PROPERTY_ALIASES
from oarlock.web.pages.gantt import chart_of_node
from oarlock.web.pages.overview import runs_of
from oarlock.web.pages.parts.plots import OF_JOBS, OF_NODES, ask_series, plots_of, together
from oarlock.web.pages.parts.registry import action, page
from oarlock.web.pages.parts.view import Answer, Data, Redirect, View
from oarlock.web.verbs.cluster.overview import NodeNow, OverviewResponse
from oarlock.web.views import JobLine, ResourceView

_EVENTS = 50
_OF_NODE = 20
_POINTS, _SPARK_POINTS = 240, 32
_LINES = 7  # jobs that have a line of their own
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
    drawn, missing = await _plots(view, name)
    return view.page(
        "node.html",
        node=shown,
        runs=runs_of(shown, "user"),
        jobs=jobs.jobs,
        plots=drawn,
        chart=await chart_of_node(view, name),
        by_job=await _cores_by_job(view, jobs.jobs),
        no_plots=missing,
        events=(await view.ask("events.list", nodes=[name], limit=_OF_NODE)).events[::-1],
        properties=_properties(rows),
        is_drained=any(row["drain"] == "YES" for row in rows),
        may_act=view.may_change and view.secret is not None and view.caller is not None and view.caller.admin,
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
    drawn, _ = await _plots(view, view.parts["name"])
    return Data(msgspec.json.encode(drawn))


async def _plots(view: View, name: str) -> tuple[list[Any], str]:
    """Return the plots, and why there are none although there should be some."""
    series = await ask_series(view, "nodes.series", name=name, points=_POINTS, metrics=_METRICS)
    return ([], series) if isinstance(series, str) else (plots_of(OF_NODES, series), "")


async def _cores_by_job(view: View, jobs: list[JobLine]) -> TimePlot | None:
    """Return the cores at work of the jobs that run here, a line each; those of others are left out."""
    by_job: dict[str, TimePlot] = {}
    for job in [job for job in jobs if job.start and view.advises(job.owner, job.project)][:_LINES]:
        series = await ask_series(view, "jobs.series", id=job.id, points=_POINTS // 2, metrics=["cpu_seconds_total"])
        if not isinstance(series, str):
            by_job |= {str(job.id): plot for plot in plots_of(OF_JOBS[:1], series)}
    return together("jobs", "Cores at work, by job", by_job)


@page("/nodes/{name}/spark.svg")
async def node_spark(view: View) -> Answer:
    """Send the load of a node as a small picture; empty where nothing was measured."""
    series = await ask_series(
        view, "nodes.series", name=view.parts["name"], points=_SPARK_POINTS, metrics=["load_1min"]
    )  # fmt: skip
    drawn = [] if isinstance(series, str) else plots_of(OF_NODES[:1], series)
    values: list[float | None] = drawn[0].lines[0].values if drawn else []
    highest = max((value for value in values if value is not None), default=0.0)
    return Data(sparkline_image(values, top=highest).encode(), "image/svg+xml")


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
