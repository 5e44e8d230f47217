"""The list of jobs: filters and order in the address, actions on many."""

import csv
import io
from collections.abc import AsyncIterator, Mapping
from typing import Any
from urllib.parse import parse_qsl, urlencode

import msgspec

from oarlock.model.errors import BadRequest
from oarlock.model.job import FINAL, JobState
from oarlock.web.pages.compare import compare_address
from oarlock.web.pages.parts.registry import action, page
from oarlock.web.pages.parts.view import Answer, Data, Redirect, View
from oarlock.web.verbs.job.job_actions import JobActionView
from oarlock.web.verbs.measurements.efficiency import EfficiencyResponse, EfficiencyView
from oarlock.web.views import JobLine

ROWS, MOST_ROWS = 50, 1000
FILTERS = ("user", "project", "queue", "name", "node")
SHOWN = ("live", "running", "waiting", "over", "all")
"""Which states a list shows, in the portal's words."""

ACTIONS = {"delete": "jobs.delete", "hold": "jobs.hold", "resume": "jobs.resume"}
_COLUMNS = (
    "Job_Id", "name", "owner", "project", "queue", "state", "submissionTime", "startTime", "stopTime", "walltime",
    "exit_code", "types", "scheduledStart", "cpu_share", "memory_share", "gpu_share", "energy_joules",
)  # fmt: skip
_OUTCOME = ("done", "refused")
_MOST_DOWNLOADED = 10_000


def states_of(shown: str) -> list[JobState] | None:
    """Return the states that a word stands for; None: those that are not over."""
    match shown:
        case "running":
            return [state for state in JobState if state not in FINAL and state not in _BEFORE]
        case "waiting":
            return list(_BEFORE)
        case "over":
            return list(FINAL)
        case "all":
            return list(JobState)
        case _:
            return None


_BEFORE = (JobState.WAITING, JobState.HOLD, JobState.TO_ACK_RESERVATION)


@page("/jobs", nav="Jobs", place=30)
async def jobs(view: View) -> Answer:
    """Show a page of the list."""
    rows, following = await _rows(view, view.number("limit", ROWS, most=MOST_ROWS), view.query.get("after"))
    efficiency = await view.ask("jobs.efficiency", ids=[row.id for row in rows]) if rows else None
    chosen = {name: view.query.get(name, "") for name in FILTERS}
    return view.page(
        "jobs.html",
        rows=rows,
        efficiency={row.job_id: row for row in efficiency.jobs} if efficiency else {},
        sparks=_own_measured(view, rows, efficiency),
        next=following,
        shown=_shown(view),
        order=view.query.get("order", "-id"),
        chosen=chosen,
        queues=(await view.ask("queues.list")).queues,
        query={name: value for name, value in view.query.items() if name not in {"after", "lang", *_OUTCOME}},
        results=_results(view),
        views=(await view.ask("views.list")).views,
        current=_kept_part(view.query),
        may_act=view.may_change and view.caller is not None and view.secret is not None,
    )


def _kept_part(query: Mapping[str, str]) -> str:
    """Return what is kept of an address: filters and order, not the place in the list."""
    return urlencode({name: query[name] for name in (*FILTERS, "show", "order", "where", "array") if query.get(name)})


@action("/jobs/views")
async def keep(view: View) -> Answer:
    """Keep a list under a name, or forget it."""
    query = _kept_part(dict(parse_qsl(view.field("query")[:2000])))
    if view.field("forget"):
        await view.change("views.remove", name=view.field("forget"))
    else:
        await view.change("views.save", name=view.field("name"), query=query)
    return Redirect(f"/jobs?{query}" if query else "/jobs")


def _own_measured(view: View, rows: list[JobLine], efficiency: EfficiencyResponse | None) -> set[int]:
    """Return the jobs whose curves this caller may see, of those that were measured."""
    measured = {row.job_id for row in efficiency.jobs} if efficiency else set()
    return {row.id for row in rows if row.id in measured and view.advises(row.owner, row.project)}


async def _rows(view: View, limit: int, after: str | None) -> tuple[list[JobLine], int | None]:
    answer = await view.ask(
        "jobs.list",
        limit=limit,
        order=view.query.get("order", "-id"),
        after=after,
        states=states_of(_shown(view)),
        **{name: view.query.get(name) for name in FILTERS},
        where=view.query.get("where"),
        array=view.query.get("array"),
    )
    return answer.jobs, answer.next


def _shown(view: View) -> str:
    wished = view.query.get("show", "")
    return wished if wished in SHOWN else "all" if view.query.get("array") else "live"


@page("/jobs.csv")
async def download(view: View) -> Answer:
    """Send the list as a table for a spreadsheet."""
    text = io.StringIO()
    lines = csv.writer(text)
    lines.writerow(_COLUMNS)
    async for rows in _pages(view):
        used = {row.job_id: row for row in (await view.ask("jobs.efficiency", ids=[row.id for row in rows])).jobs}
        lines.writerows([_harmless(value) for value in _values(row, used.get(row.id))] for row in rows)
    return Data(text.getvalue().encode(), "text/csv; charset=utf-8", "jobs.csv")


@page("/jobs.json")
async def download_json(view: View) -> Answer:
    """Send the list as the API would."""
    rows = [row async for page in _pages(view) for row in page]
    return Data(msgspec.json.encode(rows), "application/json", "jobs.json")


async def _pages(view: View) -> AsyncIterator[list[JobLine]]:
    """Yield the whole list page by page, as far as it is downloaded."""
    after, count = view.query.get("after"), 0
    while count < _MOST_DOWNLOADED:
        rows, following = await _rows(view, MOST_ROWS, after)
        if rows:
            yield rows
        if following is None:
            return
        after, count = str(following), count + len(rows)


def _values(row: JobLine, used: EfficiencyView | None) -> list[Any]:
    shares = (used.cpu_share, used.memory_share, used.gpu_share, used.energy_joules) if used else (None,) * 4
    return [
        row.id, row.name or "", row.owner, row.project, row.queue, row.state, row.submitted, row.start, row.stop,
        row.walltime, row.exit_code, " ".join(row.types), row.scheduled, *shares,
    ]  # fmt: skip


def _harmless(value: Any) -> Any:
    """Return a text that no spreadsheet takes for a formula."""
    return f"'{value}" if isinstance(value, str) and value[:1] in set("=+-@\t\r") else value


@action("/jobs/act")
async def act(view: View) -> Answer:
    """Delete, hold or resume the jobs that were chosen."""
    verb = ACTIONS.get(view.field("do"))
    ids = view.form.get("id", [])
    if verb is None and view.field("do") != "compare":
        raise BadRequest("There is no such action.", hint=f"Actions: {', '.join(ACTIONS)}, compare.")
    if not ids:
        return Redirect(_back(view.field("back"), {"refused": "No job was chosen: tick some in the list."}))
    if verb is None:
        return Redirect(compare_address(ids))
    done: list[JobActionView] = (await view.change(verb, ids=ids)).jobs
    refused = [answer for answer in done if not answer.done]
    outcome = {"done": len(done) - len(refused)} | ({"refused": refused[0].says[:200]} if refused else {})
    return Redirect(_back(view.field("back"), outcome))


def _back(path: str, outcome: Mapping[str, object]) -> str:
    """Return the address to go back to: a page of the list or of a job, never another site."""
    place, _, query = path.partition("?")
    plain = place == "/jobs" or (place.startswith("/jobs/") and place.removeprefix("/jobs/").isdigit())
    kept = [(name, value) for name, value in parse_qsl(query[:2000]) if name not in _OUTCOME] if plain else []
    return f"{place if plain else '/jobs'}?{urlencode([*kept, *outcome.items()])}"


def _results(view: View) -> dict[str, str]:
    return {name: view.query.get(name, "")[:200] for name in ("done", "refused")}
