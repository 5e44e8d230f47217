"""The page of a job: state and progress, why it waits or what was found, what it asked for and used, curves."""

import asyncio
from typing import Any

import msgspec

from oarlock.measure.collect.series import MOST_CURVES, USUAL_JOB
from oarlock.model.job import FINAL, JobState, describe_exit
from oarlock.web.pages.compare import compare_address, job_number
from oarlock.web.pages.parts.formats import rough, size
from oarlock.web.pages.parts.plots import OF_JOBS, OF_NODES_OF_JOBS, ask_series, plots_of
from oarlock.web.pages.parts.registry import page
from oarlock.web.pages.parts.view import Answer, Data, Live, Rendered, View
from oarlock.web.verbs.measurements.agents import ScriptResponse
from oarlock.web.verbs.measurements.reports import JobReportView
from oarlock.web.verbs.measurements.usage import UsageView
from oarlock.web.views import JobView, masked

_POINTS = 240
_BEFORE = 4
_RECENT = 5000  # among so many jobs of the user
_MEMBERS = 50
_LOOKED_AT, _NEIGHBOURS = 4, 12  # nodes, and jobs on them


@page("/jobs/{id}")
async def job(view: View) -> Answer:
    """Show a job."""
    return view.page("job.html", **await _values(view))


@page("/live/jobs/{id}")
async def live_job(view: View) -> Answer:
    """Send the head and the facts of a job anew when something changed."""
    number = _number(view)
    await view.ask("jobs.show", id=number)

    async def parts() -> dict[str, Rendered]:
        state = await _state(view)
        return {"job": view.page("job_state.html", **state), "why": view.page("job_why.html", **state)}

    return Live(("job", number, view.user), parts)


@page("/jobs/{id}/plots.json")
async def plots(view: View) -> Answer:
    """Send the curves for the script that draws them."""
    shown: JobView = await view.ask("jobs.show", id=_number(view))
    drawn, _ = await _plots(view, shown)
    return Data(msgspec.json.encode(drawn))


@page("/jobs/{id}/output")
async def output(view: View) -> Answer:
    """Show the end of what a job wrote."""
    stream = "stderr" if view.query.get("stream") == "stderr" else "stdout"
    shown = await view.ask("jobs.output", id=_number(view), stream=stream)
    return view.page("output.html", number=_number(view), output=shown, stream=stream)


def _number(view: View) -> int:
    return job_number(view.parts["id"])


async def _state(view: View) -> dict[str, Any]:
    shown: JobView = await view.ask("jobs.show", id=_number(view))
    waits = shown.state not in FINAL and not shown.start
    return {
        "job": shown,
        "why": await view.ask_if_allowed("jobs.why", id=shown.id) if waits else None,
        "prediction": await view.ask("jobs.prediction", id=shown.id),
        "instants": _instants(shown, view.now),
        "is_over": shown.state in FINAL,
        "ending": _ending(shown),
        "may_act": _may_act(view, shown),
        "advises": view.advises(shown.owner, shown.project),
        "results": {name: view.query.get(name, "")[:200] for name in ("done", "refused")},
    }


async def _values(view: View) -> dict[str, Any]:
    state = await _state(view)
    shown: JobView = state["job"]
    drawn, missing = await _plots(view, shown)
    return {
        **state,
        "report": await report_of(view, shown.id),
        "happened": await _happened(view, shown),
        "usage": await view.ask("jobs.usage", id=shown.id),
        "plots": drawn,
        "no_plots": missing,
        "before": (before := await _before(view, shown)),
        "comparison": compare_address([str(number) for number in (shown.id, *(run.id for run, _ in before[:3]))]),
        "members": await _members(view, shown),
        "factors": await view.ask("energy.factors"),
        "dependents": await _dependents(view, shown),
        "script": await _script(view, shown),
        "neighbours": await _neighbours(view, shown),
        "line": _hidden(shown.initial_request or shown.command),
        "command": _hidden(shown.command),
        "asked": shown.wanted_resources.replace('"', "").replace("-l ", ""),
        "has_curves": shown.start > 0,
        "shows_output": shown.command is not None and shown.start > 0 and view.may_change and _owns(view, shown),
    }


async def report_of(view: View, number: int) -> JobReportView | None:
    """Return the report of a job; None where nothing was measured, or it is not for this caller."""
    report: JobReportView | None = await view.ask_if_allowed("jobs.report", id=number)
    return report


async def _plots(view: View, shown: JobView) -> tuple[list[Any], str]:
    """Return the plots, and why there are none although there should be some; neither of somebody else's job."""
    if not shown.start:
        return [], ""
    metrics = drawn_metrics(len(shown.assigned_network_address))
    series = await ask_series(view, "jobs.series", id=shown.id, points=_POINTS, metrics=metrics)
    if isinstance(series, str):
        return ([], series) if series else (await _plots_of_nodes(view, shown), "")
    usage: UsageView = await view.ask("jobs.usage", id=shown.id)
    limits: dict[str, tuple[float, str]] = {}
    if usage.cpus:
        limits["cpu"] = float(usage.cpus), f"{usage.cpus} asked"
    if usage.memory_limit_bytes:
        limits["memory"] = float(usage.memory_limit_bytes), f"{size(usage.memory_limit_bytes)} asked"
    return [*plots_of(OF_JOBS, series, limits), *await _plots_of_nodes(view, shown)], ""


async def _plots_of_nodes(view: View, shown: JobView) -> list[Any]:
    """Return what disks and networks of a job's first nodes did, where others run it; of ours agents know its own."""
    if view.may_change or not view.advises(shown.owner, shown.project):
        return []
    metrics = [metric for kind in OF_NODES_OF_JOBS for metric in kind.metrics]
    until = shown.stop or view.now
    answers = await asyncio.gather(
        *(
            ask_series(view, "nodes.series", name=node, since=shown.start, until=until, points=_POINTS, metrics=metrics)
            for node in shown.assigned_network_address[:_LOOKED_AT]
        )
    )
    series = [answer for answer in answers if not isinstance(answer, str)]
    if not series:
        return []
    curves = [curve for answer in series for curve in answer.series]
    return plots_of(OF_NODES_OF_JOBS, msgspec.structs.replace(series[0], series=curves))


def drawn_metrics(nodes: int) -> list[str]:
    """Return the metrics that are drawn of a job on so many nodes: each has a curve a node, which are added up.

    None: all the usual ones. On very many nodes each has one curve of them together.
    """
    room = MOST_CURVES // max(nodes, 1)
    return list(USUAL_JOB[:room]) if 0 < room < len(USUAL_JOB) else []


async def _happened(view: View, shown: JobView) -> list[tuple[int, str, str]]:
    """Return states and events, the newest first: when, a word, and what there is to say of it."""
    story = (await view.ask("jobs.story", id=shown.id)).story
    lines = [(part.start, str(part.state), rough(part.stop - part.start) if part.stop else "") for part in story]
    for event in shown.events:
        hosts = f" ({', '.join(event.hosts)})" if event.hosts else ""
        lines.append((event.at, event.type, event.description + hosts))
    return sorted(lines, key=lambda line: line[0])[::-1]


async def _before(view: View, shown: JobView) -> list[Any]:
    """Return runs of the same name by the same user, the last ones before this."""
    if not shown.name:
        return []
    listed = await view.ask(
        "jobs.list",
        user=shown.owner,
        name=shown.name,
        states=list(FINAL),
        order="-id",
        limit=_BEFORE,
        after=shown.id,
        recent=_RECENT,
    )
    used = {row.job_id: row for row in (await view.ask("jobs.efficiency", ids=[row.id for row in listed.jobs])).jobs} \
        if listed.jobs else {}  # fmt: skip
    return [(row, used.get(row.id)) for row in listed.jobs]


async def _members(view: View, shown: JobView) -> list[Any]:
    """Return the members of the job's array, if it is one of several."""
    listed = await view.ask("jobs.list", array=shown.array_id, limit=_MEMBERS)
    return list(listed.jobs) if len(listed.jobs) > 1 else []


async def _dependents(view: View, shown: JobView) -> list[Any]:
    """Return the jobs that wait for this one, or waited for it, as far as the caller sees them."""
    listed = await view.ask("jobs.list", requires=shown.id, order="-id", limit=_MEMBERS)
    return list(listed.jobs)


async def _script(view: View, shown: JobView) -> str | None:
    """Return the script that was sent with the job, without what looks like a secret; None without one."""
    if shown.command is None:
        return None
    answer: ScriptResponse | None = await view.ask_if_allowed("jobs.script", id=shown.id)
    text = "" if answer is None else masked(answer.script)
    return text if text and text != masked(shown.command) else None


async def _neighbours(view: View, shown: JobView) -> list[Any]:
    """Return the other jobs that are on the nodes of a job now."""
    if not shown.start or shown.state in FINAL:
        return []
    others: dict[int, Any] = {}
    for node in shown.assigned_network_address[:_LOOKED_AT]:
        listed = await view.ask("jobs.list", node=node, limit=_NEIGHBOURS + 1, order="-id")
        others |= {row.id: row for row in listed.jobs if row.id != shown.id and row.start}
    return list(others.values())[:_NEIGHBOURS]


def _owns(view: View, shown: JobView) -> bool:
    return view.caller is not None and (view.caller.admin or shown.owner == view.user)


def _instants(shown: JobView, now: int) -> list[tuple[str, int | None, str, bool]]:
    """Return the four instants of a job: a word, when, what to say of it, and whether it has come."""
    start, over = shown.start, shown.state in FINAL
    latest = shown.stop or (start + (shown.walltime or 0) if start else None)
    wait = (start or (shown.stop if over else now)) - shown.submitted
    return [
        ("Submitted", shown.submitted, "", True),
        ("Waited" if start or over else "Waits", None, str(wait), bool(start or over)),
        ("Started" if start else "Starts", start or shown.scheduled, "" if start else "≈", bool(start)),
        ("Ended" if over else "Ends", latest, "" if over else "≤", over),
    ]


def _ending(shown: JobView) -> str:
    if shown.state not in FINAL or shown.exit_code is None:
        return ""
    return describe_exit(shown.exit_code)


def _may_act(view: View, shown: JobView) -> dict[str, bool]:
    """Return what this caller can do with the job now; whether it may is decided when it does."""
    own = (
        view.may_change
        and view.secret is not None
        and view.caller is not None
        and (view.caller.admin or shown.owner == view.user)
    )
    state = shown.state
    return {
        "delete": own and state not in FINAL,
        "hold": own and state == JobState.WAITING,
        "resume": own and state in {JobState.HOLD, JobState.SUSPENDED},
        "share": view.secret is not None and view.caller is not None and view.caller.name == shown.owner,
    }


def _hidden(text: str | None) -> str | None:
    return None if text is None else masked(text)
