"""A comparison for people and programs: a table, JSON, a line a job."""

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TextIO

from oarlock.simulate.compare import PolicyResult
from oarlock.simulate.plot import span
from oarlock.simulate.statistics import slowdown

_COLUMNS = (
    "policy", "job", "user", "submitted", "start", "end", "wait", "run", "walltime", "processors", "bounded_slowdown",
    "foreseen", "waited_in_trace",
)  # fmt: skip

Row = tuple[str, Callable[[PolicyResult], str]]


EXACT = "mean wait (s)"
"""The row that is there to compare with other simulators."""

_ROWS: Sequence[Row] = (
    ("jobs", lambda result: f"{result.measures.jobs:,}"),
    ("never fitted", lambda result: f"{result.measures.never_fitted:,}"),
    (EXACT, lambda result: f"{result.measures.mean_wait:,.3f}"),
    ("mean wait", lambda result: span(result.measures.mean_wait)),
    ("median wait", lambda result: span(result.measures.median_wait)),
    ("95 % wait at most", lambda result: span(result.measures.p95_wait)),
    ("99 % wait at most", lambda result: span(result.measures.p99_wait)),
    ("longest wait", lambda result: span(result.measures.max_wait)),
    ("bounded slowdown", lambda result: f"{result.measures.bounded_slowdown:,.5f}"),
    ("utilisation", lambda result: f"{100 * result.measures.utilisation:.2f} %"),
    ("makespan", lambda result: span(result.measures.makespan)),
    ("fairness of users", lambda result: f"{result.measures.fairness:.3f}"),
    ("told a date first", lambda result: f"{result.measures.prediction.dated:,}"),
    ("error of that date", lambda result: span(result.measures.prediction.mean_absolute_error)),
    ("started later than told", lambda result: f"{result.measures.prediction.late:,}"),
    ("energy, always on", lambda result: f"{result.measures.energy.always_on_kwh:,.0f} kWh"),
    ("energy, idle nodes off", lambda result: f"{result.measures.energy.with_shutdown_kwh:,.0f} kWh"),
)


def table(results: Sequence[PolicyResult]) -> list[str]:
    """Lay the results out, a column a policy."""
    lines = [("", *(result.policy for result in results)), *rows(results)]
    widths = [max(len(line[at]) for line in lines) for at in range(len(results) + 1)]
    return [
        "  ".join(
            [line[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True))]
        )
        for line in lines
    ]


def rows(results: Sequence[PolicyResult]) -> Iterator[tuple[str, ...]]:
    """Yield the rows of the table, their name first; a row that is empty for all policies is left out."""
    for name, format_cell in _ROWS:
        cells = [format_cell(result) for result in results]
        if any(cell != "0" for cell in cells):
            yield name, *cells
    yield from _shaken(results)


def _shaken(results: Sequence[PolicyResult]) -> Iterable[tuple[str, ...]]:
    if not any(result.perturbed for result in results):
        return
    for name, key in (("shaken: mean wait (s)", "mean_wait"), ("shaken: bounded slowdown", "bounded_slowdown")):
        yield (
            name,
            *(f"{result.perturbed[key]['mean']:,.1f} ± {result.perturbed[key]['spread']:,.1f}" for result in results),
        )


def as_json(results: Sequence[PolicyResult]) -> str:
    """Write `{policy: {…}}`."""
    return json.dumps({result.policy: result.plain() for result in results}, indent=2) + "\n"


def write_csv(results: Iterable[PolicyResult], file: TextIO) -> None:
    """Write a line a job and policy."""
    out = csv.writer(file, lineterminator="\n")
    out.writerow(_COLUMNS)
    for result in results:
        for ran in result.ran:
            job = ran.job
            out.writerow(
                (result.policy, job.number, job.user, job.submitted, ran.start, ran.end, ran.wait, job.run,
                 job.walltime, job.processors, f"{slowdown(ran):.6g}", ran.foreseen, job.waited)
            )  # fmt: skip
