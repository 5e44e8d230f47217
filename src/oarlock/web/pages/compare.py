"""Jobs beside each other: the tasks of an array in one table, and up to twenty jobs side by side."""

from collections import Counter
from typing import Any, NamedTuple
from urllib.parse import urlencode

from oarlock.insight.drawing.columns import DayColumn
from oarlock.insight.drawing.marks import sparkline_image
from oarlock.insight.outliers import outliers
from oarlock.model.errors import BadRequest, OarlockError, UnknownArray
from oarlock.model.job import FINAL, JobState, describe_exit
from oarlock.web.pages.parts.formats import decimal, duration, exact, percent, rough
from oarlock.web.pages.parts.plots import GIB, OF_JOBS, plots_of
from oarlock.web.pages.parts.registry import page
from oarlock.web.pages.parts.view import Answer, Data, View
from oarlock.web.verbs.measurements.efficiency import EfficiencyView
from oarlock.web.verbs.measurements.usage import UsageView
from oarlock.web.views import JobLine, JobView

LEAST_COMPARED, MOST_COMPARED = 2, 20
_PLOTTED = 4  # of so many jobs at most the curves stand side by side
_HOUR = 3600.0
_TASKS, _MOST_TASKS = 200, 1000
_SPARK_POINTS = 32
_JOULES = 3_600_000


class MetricOfJobs(NamedTuple):
    """A metric of several jobs: its unit, and a column for each job."""

    unit: str
    columns: list[DayColumn]


@page("/arrays/{id}")
async def array(view: View) -> Answer:
    """Show the tasks of an array, a row each, with those that stand apart."""
    number = job_number(view.parts["id"])
    limit = view.number("limit", _TASKS, most=_MOST_TASKS)
    after = view.query.get("after")
    listed = await view.ask("jobs.list", array=number, states=list(JobState), order="id", limit=limit, after=after)
    tasks: list[JobLine] = listed.jobs
    if not tasks and not after:
        raise UnknownArray(number)
    used = await _efficiency(view, [task.id for task in tasks])
    return view.page(
        "array.html",
        number=number,
        tasks=tasks,
        first=tasks[0] if tasks else None,
        counts=Counter(task.state for task in tasks).most_common(),
        used=used,
        apart=_apart(tasks, used),
        next=listed.next,
        limit=limit,
    )


async def _efficiency(view: View, ids: list[int]) -> dict[int, EfficiencyView]:
    answer = await view.ask("jobs.efficiency", ids=ids) if ids else None
    return {row.job_id: row for row in answer.jobs} if answer else {}


def _apart(tasks: list[JobLine], used: dict[int, EfficiencyView]) -> dict[int, list[tuple[str, str]]]:
    """Return for tasks that stand apart in what: a word, and the median of all tasks of the page."""
    ran = {task.id: float(task.stop - task.start) for task in tasks if task.state in FINAL and task.start and task.stop}
    cores = {number: row.cpu_share for number, row in used.items() if row.cpu_share is not None}
    memory = {number: row.memory_share for number, row in used.items() if row.memory_share is not None}
    apart: dict[int, list[tuple[str, str]]] = {}
    for word, values, write in (("time", ran, duration), ("cores", cores, percent), ("memory", memory, percent)):
        for number, middle in outliers(values).items():
            apart.setdefault(number, []).append((word, write(middle)))
    return apart


@page("/compare")
async def compare(view: View) -> Answer:
    """Show up to twenty jobs side by side: a row for each thing that can differ, and one metric of all as columns."""
    ids = _chosen(view.query.get("ids", ""))
    jobs: list[JobView] = [await view.ask("jobs.show", id=number) for number in ids]
    used = await _efficiency(view, ids)
    rows = [(word, values, len(set(values)) > 1) for word, values in _rows(jobs, used)]
    bars = [
        (word, [getattr(used.get(number), field, None) for number in ids])
        for word, field in (("Cores used", "cpu_share"), ("Memory used", "memory_share"), ("GPU used", "gpu_share"))
    ]
    return view.page(
        "compare.html",
        jobs=jobs,
        rows=rows,
        bars=[(word, shares) for word, shares in bars if any(share is not None for share in shares)],
        plots=[await _curves(view, job) for job in jobs] if len(jobs) <= _PLOTTED else [],
        ids=",".join(map(str, ids)),
        metrics=(metrics := _metrics(jobs, [await view.ask("jobs.usage", id=number) for number in ids], view.now)),
        metric=_metric(view, metrics),
    )


def _metric(view: View, metrics: dict[str, MetricOfJobs]) -> str:
    """Return which metric is drawn: the one that the address names, else the first that there is."""
    wished = view.query.get("metric", "")
    return wished if wished in metrics else next(iter(metrics), "")


def _metrics(jobs: list[JobView], used: list[UsageView], now: int) -> dict[str, MetricOfJobs]:
    """Return what can be set against the jobs: what was held or asked for, and what of it was used."""
    pairs: dict[str, tuple[str, list[tuple[float | None, float | None]]]] = {
        "Cores": ("", [(row.cpus, _rate(row.cpu_seconds, row.seconds)) for row in used]),
        "Memory": (
            "GiB",
            [(_part(row.memory_limit_bytes, GIB), _part(row.memory_own_peak_bytes, GIB)) for row in used],
        ),
        "GPUs": ("", [(row.gpus, _rate(row.gpu_busy_seconds, row.seconds)) for row in used]),
        "Time": ("h", [(_part(job.walltime, _HOUR), _ran(job, now)) for job in jobs]),
        "Waited": ("h", [_twice(_part(job.start - job.submitted, _HOUR) if job.start else None) for job in jobs]),
        "Energy": ("kWh", [_twice(_part(row.energy_joules, _JOULES)) for row in used]),
        "Read": ("GiB", [_twice(_part(row.read_bytes, GIB)) for row in used]),
        "Written": ("GiB", [_twice(_part(row.written_bytes, GIB)) for row in used]),
    }
    return {
        word: MetricOfJobs(unit, [_column(job, unit, *pair) for job, pair in zip(jobs, values, strict=True)])
        for word, (unit, values) in pairs.items()
        if any(value for _, value in values)
    }


def _column(job: JobView, unit: str, held: float | None, used: float | None) -> DayColumn:
    low, high = used or 0.0, max(held or 0.0, used or 0.0)
    says = f"{decimal(low)} {unit}".strip() + (f" of {decimal(high)} {unit}".rstrip() if high > low else "")
    return DayColumn(str(job.id), high, low, f"job {job.id}: {says}")


def _part(value: float | None, divisor: float) -> float | None:
    return None if value is None else value / divisor


def _rate(seconds: float | None, of: float | None) -> float | None:
    return None if seconds is None or not of else seconds / of


def _twice(value: float | None) -> tuple[float | None, float | None]:
    return value, value


def _ran(job: JobView, now: int) -> float | None:
    return ((job.stop or now) - job.start) / _HOUR if job.start else None


def _chosen(text: str) -> list[int]:
    words = [word.strip() for word in text.split(",") if word.strip()]
    ids = list(dict.fromkeys(job_number(word) for word in words[: MOST_COMPARED + 1]))
    if not LEAST_COMPARED <= len(ids) <= MOST_COMPARED:
        raise BadRequest(
            f"A comparison shows {LEAST_COMPARED} to {MOST_COMPARED} different jobs; {len(ids)} were chosen.",
            hint="Tick them in the list of jobs, or write /compare?ids=17,18.",
        )
    return ids


def job_number(text: str) -> int:
    """Return the number of a job or an array; `BadRequest` for anything else."""
    if not (text.isascii() and text.isdigit()) or len(text) > 18:
        raise BadRequest(f"`{text[:40]}` is not the number of a job.", hint="The list of jobs leads to each.")
    return int(text)


def _rows(jobs: list[JobView], used: dict[int, EfficiencyView]) -> list[tuple[str, list[str]]]:
    energy = [used[job.id].energy_joules if job.id in used else None for job in jobs]
    rows = [
        ("User", [job.owner for job in jobs]),
        ("Project", [job.project for job in jobs]),
        ("Queue", [job.queue for job in jobs]),
        ("Asked", [job.wanted_resources.replace('"', "").replace("-l ", "") for job in jobs]),
        ("Condition", [job.properties or "" for job in jobs]),
        ("Types", [", ".join(job.types) for job in jobs]),
        ("Submitted", [exact(job.submitted) for job in jobs]),
        ("Waited", [rough(job.start - job.submitted) if job.start else "–" for job in jobs]),
        ("Time", [duration(job.stop - job.start) if job.start and job.stop else "–" for job in jobs]),
        ("Walltime", [duration(job.walltime) for job in jobs]),
        ("Nodes", [_nodes(job) for job in jobs]),
        ("Resources", [str(len(job.assigned_resources)) for job in jobs]),
        ("Ended with", [_ending(job) for job in jobs]),
        ("kWh", ["–" if joules is None else decimal(joules / _JOULES) for joules in energy]),
    ]
    return [(word, values) for word, values in rows if any(value not in {"", "–"} for value in values)]


def _nodes(job: JobView) -> str:
    names = job.assigned_network_address
    return ", ".join(names[:4]) + (" …" if len(names) > 4 else "")


def _ending(job: JobView) -> str:
    return describe_exit(job.exit_code) if job.state in FINAL and job.exit_code is not None else "–"


async def _curves(view: View, job: JobView) -> list[Any]:
    """Return the plots of cores and memory; none where nothing was measured or it is somebody else's."""
    if not job.start:
        return []
    try:
        series = await view.ask("jobs.series", id=job.id, points=120)
    except OarlockError:
        return []
    return plots_of(OF_JOBS[:2], series)


@page("/jobs/{id}/spark.svg")
async def spark(view: View) -> Answer:
    """Send the cores that a job had at work, of those it held, as a small picture; empty where nothing was measured."""
    number = job_number(view.parts["id"])
    usage: UsageView = await view.ask("jobs.usage", id=number)
    values: list[float | None] = []
    try:
        series = await view.ask("jobs.series", id=number, metrics=["cpu_seconds_total"], points=_SPARK_POINTS)
        values = next((plot.lines[0].values for plot in plots_of(OF_JOBS[:1], series)), [])
    except OarlockError:  # somebody else's, or not measured: the list has an empty place there
        pass
    return Data(sparkline_image(values, top=float(usage.cpus or 0)).encode(), "image/svg+xml")


def compare_address(ids: list[str]) -> str:
    """Return the address that compares jobs."""
    return f"/compare?{urlencode({'ids': ','.join(ids)})}"
