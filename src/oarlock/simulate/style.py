"""The style sheet of a replay report: the colours of the portal, light or dark as the reader prefers."""

from collections.abc import Sequence

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
