"""The report of a comparison: one HTML file that needs nothing else, light or dark as the reader likes."""

from collections.abc import Sequence
from html import escape

from oarlock.simulate import curves
from oarlock.simulate.compare import Result
from oarlock.simulate.gantt import busiest_window, gantt
from oarlock.simulate.measures import slowdown
from oarlock.simulate.report import ROWS
from oarlock.simulate.site import Site
from oarlock.simulate.trace import Trace

_USERS = 10
_LIGHT = ("#0072b2", "#c58500", "#009e73", "#cc79a7", "#3a96cf", "#b84300", "#8c7ae6", "#6b7785")
_DARK = ("#3d9bd6", "#f0b440", "#2bb58c", "#d792b8", "#8fd0f5", "#e0662a", "#a698f0", "#76828f")


def _tokens(colours: Sequence[str]) -> str:
    return "".join(f"--c{at}:{colour};" for at, colour in enumerate(colours))


def _coloured(number: int) -> str:
    colour = f"var(--c{number})"
    return f".l.c{number} {{ stroke: {colour}; }} .bar.c{number} rect {{ fill: {colour}; stroke: {colour}; }} "


_STYLE = f"""
:root {{ color-scheme: light dark; --bg:#f4f6f8; --surface:#fff; --sunken:#eef1f5; --line:#d5dbe3; --text:#17202b;
  --muted:#526072; --busy:#0072b2; {_tokens(_LIGHT)} }}
@media (prefers-color-scheme: dark) {{ :root {{ --bg:#0e1319; --surface:#161d26; --sunken:#1e2732; --line:#2f3b49;
  --text:#e7ecf2; --muted:#9cabbb; --busy:#3d9bd6; {_tokens(_DARK)} }} }}
* {{ box-sizing: border-box; }}
body {{ margin: 0; background: var(--bg); color: var(--text); font: 14px/1.45 system-ui, "DejaVu Sans", sans-serif;
  font-variant-numeric: tabular-nums; }}
main {{ max-width: 1280px; margin: 0 auto; padding: 24px; }}
h1 {{ font-size: 22px; margin: 0; }} h2 {{ font-size: 15px; font-weight: 600; margin: 0 0 8px; }}
h3 {{ font-size: 14px; font-weight: 600; margin: 12px 0 4px; }}
.muted, .note {{ color: var(--muted); fill: var(--muted); font-size: 12px; }} p.muted {{ margin: 4px 0 16px; }}
.card {{ background: var(--surface); border: 1px solid var(--line); border-radius: 6px; padding: 16px; margin: 0 0 16px;
  overflow-x: auto; }}
.two {{ display: grid; grid-template-columns: 1fr 1fr; gap: 0 16px; }}
@media (max-width: 900px) {{ .two {{ grid-template-columns: 1fr; }} }}
table {{ border-collapse: collapse; }} th, td {{ text-align: right; padding: 4px 12px; }}
th:first-child, td:first-child {{ text-align: left; padding-left: 0; color: var(--muted); font-weight: normal; }}
thead th {{ border-bottom: 1px solid var(--line); }} tbody tr:hover {{ background: var(--sunken); }}
svg.plot, svg.gantt {{ display: block; width: 100%; }} svg.gantt {{ min-width: 700px; }}
.grid {{ stroke: var(--line); }} .floor {{ fill: var(--sunken); }} .used {{ fill: var(--busy); fill-opacity: .35; }}
.l {{ fill: none; stroke-width: 2; }} .bar rect {{ fill-opacity: .62; stroke-width: .7; }}
.bar:hover rect {{ fill-opacity: 1; }}
.legend {{ margin: 0 0 8px; }} .key {{ margin-right: 16px; white-space: nowrap; }} .key svg {{ margin-right: 6px; }}
{"".join(map(_coloured, range(8)))}
"""


def page(trace: Trace, site: Site, results: Sequence[Result]) -> str:
    """Make the report."""
    first = results[0].ran
    begin, end = min(one.job.submitted for one in first), max(one.end for one in first)
    span = curves.span(end - begin)
    head = f"{len(trace.jobs):,} jobs, {site.size:,} resources, {span} hours from the first submission to the last end"
    body = [
        f"<h1>Replay of {escape(trace.name)}</h1><p class=muted>{head} under {escape(results[0].policy)}.</p>",
        _card("What came of it", _measures(results)),
        f'<div class="two">{_distributions(results)}</div>',
        _card("In use, and waiting", _over_time(results, site, begin, end)),
        _card("Who was where", _gantts(results, site)),
        _card("Users who waited most in all", _users(results)),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Replay of {escape(trace.name)}</title><style>{_STYLE}</style></head>"
        f"<body><main>{''.join(body)}</main></body></html>\n"
    )


def _card(title: str, inside: str) -> str:
    return f'<section class="card"><h2>{title}</h2>{inside}</section>'


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    top = "".join(f"<th scope=col>{escape(head)}</th>" for head in heads)
    lines = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{top}</tr></thead><tbody>{lines}</tbody></table>"


def _measures(results: Sequence[Result]) -> str:
    return _table(
        ["", *(one.policy for one in results)], [[name, *(told(one) for one in results)] for name, told in ROWS]
    )


def _distributions(results: Sequence[Result]) -> str:
    legend = curves.legend([one.policy for one in results])
    waits = curves.distribution(results, lambda ran: ran.wait, curves.waits())
    slow = curves.distribution(results, slowdown, curves.slowdowns())
    return _card("Waits: share of jobs that waited at most so long", legend + waits) + _card(
        "Bounded slowdown: share of jobs up to so much", legend + slow
    )


def _over_time(results: Sequence[Result], site: Site, begin: int, end: int) -> str:
    drawn = (
        f"<div><h3>{escape(one.policy)}</h3>{curves.over_time(one, site.size, begin, end)}</div>" for one in results
    )
    return f'<div class="two">{"".join(drawn)}</div>'


def _gantts(results: Sequence[Result], site: Site) -> str:
    window = busiest_window(results[0].ran)
    told = f"<p class=muted>Around the instant at which most jobs waited under {escape(results[0].policy)}.</p>"
    return told + "".join(f"<h3>{escape(one.policy)}</h3>{gantt(one.ran, site, window)}" for one in results)


def _users(results: Sequence[Result]) -> str:
    names = [user.user for user in results[0].measures.users[:_USERS]]
    found = [{user.user: user for user in one.measures.users} for one in results]
    rows = [[name, *(f"{users[name].mean_wait:,.0f}" if name in users else "–" for users in found)] for name in names]
    return _table(["user", *(f"mean wait (s), {one.policy}" for one in results)], rows)
