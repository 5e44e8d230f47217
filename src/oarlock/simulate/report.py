"""A comparison for people and programs: a table, JSON, a line a job, and one HTML file that needs nothing else."""

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import TextIO

from oarlock.simulate.compare import PolicyResult
from oarlock.simulate.gantt import assign_rows, busiest_window, gantt
from oarlock.simulate.platform import Platform
from oarlock.simulate.plot import (
    SLOWDOWNS,
    WAITS,
    UsageOverTime,
    distribution,
    legend,
    looks,
    most_waiting,
    over_time_legend,
    span,
)
from oarlock.simulate.statistics import ReplayStatistics, by_user, slowdown
from oarlock.simulate.trace import Trace

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


def text_table(results: Sequence[PolicyResult]) -> list[str]:
    """Lay the results out, a column a policy."""
    lines = [("", *(result.policy for result in results)), *table_rows(results)]
    widths = [max(len(line[at]) for line in lines) for at in range(len(results) + 1)]
    return [
        "  ".join(
            [line[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True))]
        )
        for line in lines
    ]


def table_rows(results: Sequence[PolicyResult]) -> Iterator[tuple[str, ...]]:
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


_USERS = 10


def page(trace: Trace, site: Platform, results: Sequence[PolicyResult]) -> str:
    """Make the report."""
    title = f"Replay of {escape(trace.name)}"
    body = (
        _pictures(site, results)
        if all(result.ran for result in results)
        else _card("What came of it", _measures(results))
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}</title><style>{STYLE}</style></head>"
        f"<body><main><h1>{title}</h1><p class=muted>{_head(trace, site, results)}</p>{body}</main></body></html>\n"
    )


def _head(trace: Trace, site: Platform, results: Sequence[PolicyResult]) -> str:
    """Return what was replayed, on what, and what never fitted."""
    first = results[0].measures
    text = [f"{_counted(len(trace.jobs), 'job')} on {_counted(site.size, 'resource')}"]
    if first.makespan:
        text.append(f"{span(first.makespan)} from the first submission to the last end under {results[0].policy}")
    if first.never_fitted:
        text.append(f"{_counted(first.never_fitted, 'job')} asked for more than there is and never ran")
    return escape("; ".join(text)) + "."


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'s' * (count != 1)}"


def _pictures(site: Platform, results: Sequence[PolicyResult]) -> str:
    ran = [job for result in results for job in result.ran]
    begin, end = min(job.job.submitted for job in ran), max(job.end for job in ran)
    window = busiest_window(results[0].ran)
    return "".join([
        f'<div class="tiles">{"".join(_tile(glance, results) for glance in _GLANCES)}</div>',
        f'<div class="two">{_distributions(results)}</div>',
        _card("In use, and waiting", _over_time(results, site, (begin, end), window)),
        _card("Who was where", _gantts(results, site, window, begin)),
        f'<div class="pair">{_card("All measures", _measures(results))}{_users(results)}</div>',
    ])  # fmt: skip


def _card(title: str, inside: str) -> str:
    return f'<section class="card"><h2>{title}</h2>{inside}</section>'


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    top = "".join(f"<th scope=col>{escape(head)}</th>" for head in heads)
    lines = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{top}</tr></thead><tbody>{lines}</tbody></table>"


@dataclass(frozen=True, slots=True)
class _Glance:
    """A measure that is compared at first sight."""

    title: str
    value: Callable[[ReplayStatistics], float]
    shown: Callable[[float], str]
    best: Callable[..., float] = min


_GLANCES = (
    _Glance("Mean wait", lambda statistics: statistics.mean_wait, span),
    _Glance("95 % wait at most", lambda statistics: statistics.p95_wait, span),
    _Glance("Bounded slowdown", lambda statistics: statistics.bounded_slowdown, lambda value: f"{value:,.1f}"),
    _Glance("Utilisation", lambda statistics: statistics.utilisation, lambda value: f"{100 * value:.1f} %", max),
)


def _tile(glance: _Glance, results: Sequence[PolicyResult]) -> str:
    """Draw a bar a policy; the best one's number is bold where there is a difference to be seen."""
    values = [glance.value(result.measures) for result in results]
    shown = [glance.shown(value) for value in values]
    best = glance.shown(glance.best(values)) if len(set(shown)) > 1 else ""
    longest = 1.0 if glance.best is max else max(values) or 1.0
    bars = "".join(
        f'<div class="tile-row"><span>{escape(result.policy)}</span><b{" class=best" * (text == best)}>{text}</b></div>'
        f'<svg class="meter" viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true"><rect class="track" '
        f'width="100" height="8"/><rect class="{looks(number)}" width="{100 * value / longest:.2f}" height="8"/>'
        "</svg>"
        for number, (result, value, text) in enumerate(zip(results, values, shown, strict=True))
    )
    wanted = "more is better" if glance.best is max else "less is better"
    return _card(f'{glance.title} <span class="muted">{wanted}</span>', bars)


def _measures(results: Sequence[PolicyResult]) -> str:
    rows = [row for row in table_rows(results) if row[0] != EXACT]
    return _table(["", *(result.policy for result in results)], rows)


def _distributions(results: Sequence[PolicyResult]) -> str:
    keys = legend([result.policy for result in results])
    waits = distribution(results, lambda ran: ran.wait, WAITS, across="wait (logarithmic)")
    slow = distribution(results, slowdown, SLOWDOWNS, across="bounded slowdown (logarithmic)")
    return _card("Share of jobs that waited at most so long", keys + waits) + _card(
        "Share of jobs slowed down at most so much", keys + slow
    )


def _over_time(results: Sequence[PolicyResult], site: Platform, whole: tuple[int, int], window: tuple[int, int]) -> str:
    pictures = UsageOverTime(results, site.size, *whole)
    drawn = "".join(
        f'<div><h3>{escape(result.policy)} <span class="muted">{_waiting(result)}</span></h3>'
        f"{pictures.draw(result, window)}</div>"
        for result in results
    )
    return f'{over_time_legend()}<div class="two">{drawn}</div>'


def _waiting(result: PolicyResult) -> str:
    most = most_waiting(result)
    return f"at most {_counted(most, 'job')} waiting" if most else "no job ever waits"


def _gantts(results: Sequence[PolicyResult], site: Platform, window: tuple[int, int], since: int) -> str:
    text = (
        f"Around the instant at which most jobs waited under {results[0].policy}; times since the first submission. "
        f"{assign_rows([], site)[0].description()} Colours only tell neighbours apart."
    )
    charts = (f"<h3>{escape(result.policy)}</h3>{gantt(result.ran, site, window, since=since)}" for result in results)
    return f"<p class=muted>{escape(text)}</p>{''.join(charts)}"


def _users(results: Sequence[PolicyResult]) -> str:
    """List how those fared who waited most in all under the first policy."""
    worst = results[0].measures.users[:_USERS]
    waits_by_policy = [{user.user: user.mean_wait for user in by_user(result.ran)} for result in results]
    rows = [[user.user, f"{user.jobs:,}", *(span(waits[user.user]) for waits in waits_by_policy)] for user in worst]
    text = f"<p class=muted>Under {escape(results[0].policy)}; their mean wait.</p>"
    return _card(
        "Users who waited most in all", text + _table(["user", "jobs", *(result.policy for result in results)], rows)
    )


_LIGHT = ("#0072b2", "#c58500", "#009e73", "#cc79a7", "#3a96cf", "#b84300", "#8c7ae6", "#6b7785")
_DARK = ("#3d9bd6", "#f0b440", "#2bb58c", "#d792b8", "#8fd0f5", "#e0662a", "#a698f0", "#76828f")


def _tokens(colours: Sequence[str]) -> str:
    return "".join(f"--c{at}:{colour};" for at, colour in enumerate(colours))


def _coloured(number: int) -> str:
    colour = f"var(--c{number})"
    filled = f".bar.c{number} rect, .meter .c{number} {{ fill: {colour}; }}"
    return f".l.c{number}, .bar.c{number} path {{ stroke: {colour}; }} {filled} "


STYLE = f"""
:root {{ color-scheme: light dark; --bg:#f4f6f8; --surface:#fff; --sunken:#eef1f5; --line:#d5dbe3; --text:#17202b;
  --muted:#526072; --busy:#0072b2; {_tokens(_LIGHT)} }}
@media (prefers-color-scheme: dark) {{ :root {{ --bg:#0e1319; --surface:#161d26; --sunken:#1e2732; --line:#2f3b49;
  --text:#e7ecf2; --muted:#9cabbb; --busy:#3d9bd6; {_tokens(_DARK)} }} }}
* {{ box-sizing: border-box; }}
body {{ margin: 0; background: var(--bg); color: var(--text); font: 14px/1.45 system-ui, "DejaVu Sans", sans-serif;
  font-variant-numeric: tabular-nums; }}
main {{ max-width: 1280px; margin: 0 auto; padding: 24px 24px 8px; }}
h1 {{ font-size: 22px; margin: 0; overflow-wrap: anywhere; }}
h2 {{ font-size: 15px; font-weight: 600; margin: 0 0 8px; }}
h3 {{ font-size: 14px; font-weight: 600; margin: 12px 0 4px; }}
.muted, .note {{ color: var(--muted); fill: var(--muted); font-size: 12px; font-weight: normal; }}
p.muted {{ margin: 4px 0 16px; }} .card p.muted {{ margin: -4px 0 8px; }}
.card {{ background: var(--surface); border: 1px solid var(--line); border-radius: 6px; padding: 16px; margin: 0 0 16px;
  overflow-x: auto; min-width: 0; }}
.tiles, .two {{ display: grid; gap: 0 16px; grid-template-columns: repeat(auto-fill, minmax(min(100%, 420px), 1fr)); }}
.tiles {{ grid-template-columns: repeat(auto-fit, minmax(min(100%, 250px), 1fr)); }}
.pair {{ display: flex; flex-wrap: wrap; gap: 0 16px; }} .pair > * {{ flex: 1 1 auto; max-width: 100%; }}
.tile-row {{ display: flex; justify-content: space-between; align-items: baseline; gap: 12px; margin-top: 6px; }}
.tile-row span {{ overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }}
.tile-row b {{ font-weight: normal; white-space: nowrap; }} .tile-row .best {{ font-weight: 700; }}
.meter {{ display: block; width: 100%; height: 8px; }} .meter .track {{ fill: var(--sunken); }}
table {{ border-collapse: collapse; white-space: nowrap; }} th, td {{ text-align: right; padding: 4px 12px; }}
th:first-child, td:first-child {{ text-align: left; padding-left: 0; color: var(--muted); font-weight: normal;
  position: sticky; left: -16px; background: var(--surface); }}
thead th {{ border-bottom: 1px solid var(--line); font-weight: 600; }}
tbody tr:hover, tbody tr:hover td {{ background: var(--sunken); }}
svg.plot, svg.gantt {{ display: block; width: 100%; }} svg.gantt {{ min-width: 900px; }}
.grid {{ stroke: var(--line); }} .floor {{ fill: var(--sunken); }} .used {{ fill: var(--busy); fill-opacity: .35; }}
.window {{ fill: none; stroke: var(--muted); stroke-dasharray: 4 3; }}
.l {{ fill: none; stroke-width: 2; }} .d1 {{ stroke-dasharray: 7 3; }} .d2 {{ stroke-dasharray: 2 3; }}
.d3 {{ stroke-dasharray: 9 3 2 3; }}
.bar rect {{ fill-opacity: .34; }} .bar:hover rect {{ fill-opacity: .8; }}
.number {{ fill: var(--text); font-size: 12px; }}
.legend {{ margin: 0 0 8px; font-size: 12px; }} .key {{ display: inline-block; margin-right: 16px; }}
.key svg {{ margin-right: 6px; }}
@media (max-width: 560px) {{ main {{ padding: 16px 12px; }} svg.plot {{ min-width: 420px; }}
  svg.plot .note {{ font-size: 16px; }} }}
{"".join(map(_coloured, range(8)))}
"""
