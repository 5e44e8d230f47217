"""oarlock meter: the energy ledger, by node, user, project, job or day."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from oarlock.cli.layout import readable
from oarlock.cli.layout.readable import energy
from oarlock.cli.output import show_text
from oarlock.client import Client, RequestRefused

if TYPE_CHECKING:
    import argparse

_ABOUT = (
    "Show how much energy was used: what the meters of the nodes counted, divided among jobs, idle resources and what "
    "nobody is known to have held. Days begin at midnight UTC. Users see their own jobs, administrators those of all."
)
_GROUPS = ("node", "user", "project", "job", "day")
_UNITS = {"h": 3600, "d": 86_400, "w": 7 * 86_400}
_JOULES_A_KWH = 3_600_000
_METHODS = {
    "controller": "management controllers",
    "platform": "platform sensors",
    "rapl": "processors, memory and GPUs only",
    "configured": "watts that the site wrote down",
}


class _Energy(Client):
    """The client, with the verb of energy."""

    def energy(self, **query: object) -> dict[str, Any]:
        """Return the ledger."""
        response: dict[str, Any] = self._get("/energy", **query)
        return response


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to those of `oarlock`."""
    parser = commands.add_parser("meter", help="show the energy of nodes, users, projects and jobs", description=_ABOUT)
    parser.add_argument("--since", metavar="WHEN", default="7d",
                        help="from then on: 12h, 7d, 4w, or YYYY-MM-DD [hh:mm:ss]; the default is 7d")  # fmt: skip
    parser.add_argument("--until", metavar="DATE", help="up to then: YYYY-MM-DD [hh:mm:ss], local time")
    parser.add_argument("--by", metavar="WORDS", default="node",
                        help="one or several of node, user, project, job, day, with commas between")  # fmt: skip
    parser.add_argument("-J", "--json", action="store_true", help="as JSON, for programs")
    parser.add_argument("--server", metavar="ADDRESS", help="the server's socket, or http://NAME:PORT")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Print the ledger."""
    by = [word.strip() for word in arguments.by.split(",") if word.strip()]
    wrong = [word for word in by if word not in _GROUPS]
    if wrong or not by:
        raise RequestRefused(
            f"--by: `{','.join(wrong)}` is nothing that energy is told by.",
            kind="BadRequest",
            hint=f"Take one or several of {', '.join(_GROUPS)}.",
        )
    view = _Energy(arguments.server).energy(
        since=since(arguments.since, now=time.time()),
        until=None if arguments.until is None else readable.instant(arguments.until, what="--until"),
        by=",".join(by),
    )
    if arguments.json:
        print(json.dumps(view))
        return
    for line in lines(view):
        show_text(line)


def since(text: str, *, now: float) -> int:
    """Read how long ago (`7d`), or a date."""
    count, unit = text[:-1], text[-1:]
    if unit in _UNITS and count.isascii() and count.isdecimal() and len(count) <= 5:
        return max(int(now) - int(count) * _UNITS[unit], 0)
    return readable.instant(text, what="--since")


def lines(view: dict[str, Any]) -> list[str]:
    """Lay out the ledger."""
    by, total = view["by"], view["total"]
    days = f"{_day(view['since'])} to {_day(view['until'] - 1)}"
    if not total["methods"]:
        return [
            f"No meter of any node counted anything from {days}.",
            "  SAMPLE_SOURCES in the settings names what nodes measure (`rapl` and `ipmi` are meters),",
            "  REDFISH_FILE the management controllers that the server's collector reads.",
        ]
    heads = [word.upper() for word in by] + ["JOBS", "ENERGY"]
    is_metered = any("meter" in row for row in view["rows"])
    heads += ["IDLE", "NOT ASSIGNED", "METER", "MEASURED"] if is_metered else []
    rows = [[*(_cell(word, row["group"][word]) for word in by), str(row["jobs"]), energy(row["joules"]),
             *(_meter_cells(row["meter"]) if is_metered else ())] for row in view["rows"]]  # fmt: skip
    whose = " of your own jobs" if view["own"] else ""
    return [
        f"Energy{whose}, {days} (UTC)",
        *_table(heads, rows, left=len(by)),
        *_summary(view),
    ]


def _summary(view: dict[str, Any]) -> list[str]:
    total, factors = view["total"], view["factors"]
    parts = [("jobs", "jobs_joules"), ("idle", "idle_joules"), ("not assigned", "not_assigned_joules")]
    sums = " + ".join(f"{energy(total[name])} {word}" for word, name in parts)
    how = "; ".join(_METHODS.get(method, method) for method in total["methods"])
    text = [f"Meters: {energy(total['joules'])} = {sums}", f"Measured {total['coverage']:.0%} of the time: {how}"]
    kwh = total["joules"] / _JOULES_A_KWH * factors.get("pue", 1.0)
    if "pue" in factors:
        text.append(f"With cooling and losses (PUE {factors['pue']:g}): {kwh:.3g} kWh")
    if "co2_grams" in factors:
        text.append(f"CO2: {kwh * factors['co2_grams'] / 1000:.3g} kg")
    if "price" in factors:
        text.append(f"Cost: {kwh * factors['price']:.2f} {factors.get('currency', '')}".rstrip())
    return text


def _meter_cells(meter: dict[str, Any]) -> list[str]:
    amounts = [energy(meter[name]) for name in ("idle_joules", "not_assigned_joules", "joules")]
    return [*amounts, f"{meter['coverage']:.0%}"]


def _cell(word: str, value: str | int) -> str:
    return _day(int(value)) if word == "day" else str(value) or "-"


def _day(instant: int) -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(instant))


def _table(heads: list[str], rows: list[list[str]], *, left: int) -> list[str]:
    widths = [max(len(row[column]) for row in [heads, *rows]) for column in range(len(heads))]
    return [
        "  ".join(
            cell.ljust(width) if column < left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in [heads, *rows]
    ]
