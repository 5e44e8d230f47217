"""oarlock maintenance: windows in which nodes are kept free of jobs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from oarlock.cli import time_format
from oarlock.cli.output import show_text
from oarlock.client import Client

if TYPE_CHECKING:
    import argparse


class _Windows(Client):
    """The client, with the verbs of maintenance."""

    def windows(self) -> list[dict[str, Any]]:
        """List windows."""
        windows: list[dict[str, Any]] = self._get("/maintenance")["windows"]
        return windows

    def add_window(self, window: dict[str, Any]) -> dict[str, Any]:
        """Add a window; gives it with whom it meets."""
        met: dict[str, Any] = self._change("POST", "/maintenance", window)
        return met

    def remove_window(self, number: int) -> None:
        """Remove a window."""
        self._change("DELETE", f"/maintenance/{number}")


def options(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to those of `oarlock`."""
    about = "Keep nodes free of jobs for a time: no job is started that would still be there; what runs is left alone."
    parser = commands.add_parser("maintenance", help="say when nodes are maintained", description=about)
    verbs = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    adding = verbs.add_parser("add", help="add a window (administrators)")
    adding.add_argument("name", metavar="NAME", help="what users are told, as in `cooling`")
    adding.add_argument("start", metavar="START", help='when it begins: "YYYY-MM-DD hh:mm:ss", local time')
    adding.add_argument("stop", metavar="STOP", help="when it ends")
    adding.add_argument("nodes", metavar="NODE", nargs="*", help="the nodes; without any, all resources")
    adding.add_argument("--where", metavar="CONDITION", help="the resources that fulfil a condition, instead of nodes")
    adding.set_defaults(run=_add)
    listing = verbs.add_parser("list", help="list the windows that are not over")
    listing.set_defaults(run=_list)
    removing = verbs.add_parser("remove", help="take a window back, or end it (administrators)")
    removing.add_argument("number", metavar="NUMBER", type=int, help="its number, as `list` shows it")
    removing.set_defaults(run=_remove)
    for verb in (adding, listing, removing):
        verb.add_argument("--server", metavar="ADDRESS", help="the server's socket, or http://NAME:PORT")
    for verb in (adding, listing):
        verb.add_argument("-J", "--json", action="store_true", help="as JSON, for programs")


def _add(arguments: argparse.Namespace) -> None:
    window = {
        "name": arguments.name,
        "start": time_format.instant(arguments.start, what="START"),
        "stop": time_format.instant(arguments.stop, what="STOP"),
        **({"nodes": arguments.nodes} if arguments.nodes else {}),
        **({"where": arguments.where} if arguments.where else {}),
    }
    met = _Windows(arguments.server).add_window(window)
    if arguments.json:
        print(json.dumps(met, indent=2))
        return
    show_text(f"Maintenance {met['window']['id']}: {met['resources']} resources.")
    for jobs, story in (
        (met["running"], "may still run when it begins"),
        (met["reservations"], "were promised before"),
    ):
        if jobs:
            show_text(f"Jobs {', '.join(map(str, jobs))} {story}; they are left alone.")


def _list(arguments: argparse.Namespace) -> None:
    windows = _Windows(arguments.server).windows()
    if arguments.json:
        print(json.dumps(windows, indent=2))
        return
    for window in windows:
        when = f"{time_format.date(window['start'])} - {time_format.date(window['stop'])}"
        show_text(
            f"{window['id']:>4}  {when}  {window['name']}  ({window['where'] or 'all resources'}; by {window['by']})"
        )


def _remove(arguments: argparse.Namespace) -> None:
    _Windows(arguments.server).remove_window(arguments.number)
    show_text(f"Maintenance {arguments.number} is removed.")
