"""oarlock measure: change how nodes measure, for a while."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from oarlock.cli.output import show_text
from oarlock.client import Client, RequestRefused

if TYPE_CHECKING:
    import argparse

_ABOUT = (
    "Have nodes measure more often, or more, for a while: for the time of --for or, without it, until the jobs that "
    "are there now are over. Then they measure again as SAMPLE_PERIOD and SAMPLE_SOURCES say. If one of the nodes "
    "cannot be reached, nothing is changed on any. Administrators only."
)
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


class _Measuring(Client):
    """The client, with the verb that changes how nodes measure."""

    def measure(self, change: dict[str, Any]) -> dict[str, Any]:
        """Change it; return the nodes."""
        response: dict[str, Any] = self._change("POST", "/nodes/measure", change)
        return response


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to those of `oarlock`."""
    parser = commands.add_parser("measure", help="change how nodes measure, for a while", description=_ABOUT)
    parser.add_argument("nodes", metavar="NODE", nargs="+", help="the nodes")
    parser.add_argument("--period", metavar="SECONDS", type=int, help="the time between two samples (1 to 60)")
    parser.add_argument("--enable", metavar="SOURCES", default="", help="measure these as well: rapl,perf,temperature")
    parser.add_argument("--disable", metavar="SOURCES", default="", help="do not measure these")
    parser.add_argument("--perfhw-list", metavar="EVENT", nargs="+", default=[],
                        help="which events of the processor; measures `perf`")  # fmt: skip
    parser.add_argument("--for", dest="time", metavar="TIME", help="for how long: 90s, 10m, 2h, 1d")
    parser.add_argument("--reset", action="store_true", help="measure as the settings say again, at once")
    parser.add_argument("--server", metavar="ADDRESS", help="the server's socket, or http://NAME:PORT")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Send the change."""
    sources = [*_words(arguments.enable), *(f"-{name}" for name in _words(arguments.disable))]
    if arguments.perfhw_list and "perf" not in sources:
        sources.append("perf")
    change: dict[str, Any] = {"nodes": arguments.nodes, "sources": sources, "perf_events": arguments.perfhw_list}
    if arguments.period is not None:
        change["period"] = arguments.period
    if arguments.time is not None:
        change["seconds"] = _seconds(arguments.time)
    if arguments.reset:
        change["reset"] = True
    elif not sources and arguments.period is None:
        raise RequestRefused("Nothing is to be changed.", kind="BadOption", hint="Name --period, --enable or --reset.")
    _Measuring(arguments.server).measure(change)
    names = ", ".join(arguments.nodes)
    if arguments.reset:
        show_text(f"{names}: as the settings say.")
    else:
        show_text(f"{names}: changed {f'for {arguments.time}' if arguments.time else 'until its jobs are over'}.")


def _words(text: str) -> list[str]:
    return [word for word in text.split(",") if word]


def _seconds(text: str) -> int:
    match = re.fullmatch(r"([0-9]{1,7})([smhd]?)", text)
    if match is None or not int(match[1]):
        raise RequestRefused(f"--for: `{text}` is no time.", kind="BadOption", hint="Write 90s, 10m, 2h or 1d.")
    return int(match[1]) * _UNITS[match[2] or "s"]
