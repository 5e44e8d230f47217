"""oarlock quotas and oarlock maintenance: what is allowed at once, and when nodes are kept free of jobs."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oarlock.cli.layout import readable
from oarlock.cli.output import show_text
from oarlock.client import Client

if TYPE_CHECKING:
    from oarlock.model.limits import BadQuotas


_ABOUT = (
    "Show the quotas in force, and who uses how much of them: used/limit, - where there is no limit. Rules with a "
    "number are kept by the server (`add`, `remove`), the others stand in QUOTAS_CONF_FILE; a changed file is read "
    "again at the next pass."
)
_HEAD = ("No", "Rule", "For", "Resources", "Jobs", "Resource-hours", "By (resources)")
_MOST_USERS = 5


class _Quotas(Client):
    """The client, with the verbs of quotas."""

    def allowance(self, **query: object) -> dict[str, Any]:
        """Return the rules in force, and what is used of them."""
        response: dict[str, Any] = self._get("/quotas", **query)
        return response

    def add_quota(self, quota: dict[str, Any]) -> int:
        """Set a quota; gives its number."""
        return int(self._change("POST", "/quotas", quota)["number"])

    def remove_quota(self, number: int) -> None:
        """Remove a quota."""
        self._change("DELETE", f"/quotas/{number}")


def options(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add both commands to those of `oarlock`."""
    _maintenance_options(commands)
    _quotas_options(commands)


def _quotas_options(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser("quotas", help="show quotas and what of them is used", description=_ABOUT)
    parser.add_argument("-u", "--user", metavar="NAME", help="only what concerns this user")
    parser.add_argument("--at", metavar="DATE",
                        help="what holds then, by the calendar: YYYY-MM-DD [hh:mm:ss], local time")  # fmt: skip
    parser.add_argument("-J", "--json", action="store_true", help="as JSON, for programs")
    parser.add_argument("--server", metavar="ADDRESS", help="the server's socket, or http://NAME:PORT")
    parser.set_defaults(run=_show)
    verbs = parser.add_subparsers(title="commands", metavar="COMMAND")
    checking = verbs.add_parser("check", help="check a file of quotas before it is used; ends with 2 if it is bad")
    checking.add_argument("file", metavar="FILE", type=Path, help="the file (JSON, as OAR 3 has it)")
    checking.set_defaults(run=_check)
    adding = verbs.add_parser("add", help="set a quota that holds at once, beside those of the file (administrators)")
    whom = "whom it is for, as queue,project,type,user: a name each, * for all together, / for each by itself"
    adding.add_argument("rule", metavar="RULE", help=whom)
    for name, what in (("resources", "resources"), ("jobs", "jobs"), ("hours", "resource-hours")):
        adding.add_argument(f"--{name}", metavar="N", type=int, default=-1, help=f"at most so many {what} at once")
    adding.set_defaults(run=_add)
    removing = verbs.add_parser("remove", help="take such a quota back (administrators)")
    removing.add_argument("number", metavar="NUMBER", type=int, help="its number, as `oarlock quotas` shows it")
    removing.set_defaults(run=_remove)
    for verb in (adding, removing):
        verb.add_argument("--server", metavar="ADDRESS", default=argparse.SUPPRESS,
                          help="the server's socket, or http://NAME:PORT")  # fmt: skip


def _show(arguments: argparse.Namespace) -> None:
    at = None if arguments.at is None else readable.instant(arguments.at, what="--at")
    response = _Quotas(arguments.server).allowance(user=arguments.user, at=at)
    if arguments.json:
        print(json.dumps(response, indent=2))
        return
    if response["problem"]:
        show_text(f"The changed file is not used; what it said before holds. {response['problem']}")
    if response["file"]:
        until = f" until {readable.date(response['until'])}" if response["until"] is not None else ""
        show_text(f"Of {response['file']}, the rules `{response['set']}` hold{until}.")
    if not response["rules"]:
        whom = f" speaks of {arguments.user}" if arguments.user else " holds"
        show_text(f"No quota{whom}. `oarlock quotas add` sets one; a file of them is named by QUOTAS_CONF_FILE.")
        return
    for line in _table([row for rule in response["rules"] for row in _rows(rule)]):
        show_text(line)


def _rows(rule: dict[str, Any]) -> list[tuple[str, ...]]:
    """Return a row for each user or project that a rule counts; one empty row if nobody has anything."""
    nobody = {"whose": rule["rule"], "resources": 0, "jobs": 0, "resource_hours": 0, "resources_by_user": {},
              "besteffort": False}  # fmt: skip
    number = "" if rule["number"] is None else str(rule["number"])
    return [
        (
            number,
            rule["rule"],
            _whom(rule["rule"], used["whose"], besteffort=used["besteffort"]),
            *(_part(used[name], rule[name]) for name in ("resources", "jobs", "resource_hours")),
            _users(used["resources_by_user"]),
        )
        for used in rule["used"] or [nobody]
    ]


def _whom(rule: str, whose: str, *, besteffort: bool) -> str:
    """Name those who are counted, where the rule says each."""
    each = [name for word, name in zip(rule.split(","), whose.split(","), strict=True) if word == "/" != name]
    whose = ",".join(each) or ("each" if "/" in rule.split(",") else "all")
    return f"{whose} (besteffort)" if besteffort else whose


def _part(used: float, limit: float | None) -> str:
    return f"{used:g}/{'-' if limit is None else format(limit, 'g')}"


def _users(by_user: dict[str, int]) -> str:
    first = [f"{user} {count}" for user, count in list(by_user.items())[:_MOST_USERS]]
    return ", ".join([*first, *(["…"] if len(by_user) > _MOST_USERS else [])])


def _table(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[place]) for row in (_HEAD, *rows)) for place in range(len(_HEAD))]
    rule = tuple("-" * width for width in widths)
    return [" ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in (_HEAD, rule, *rows)]  # fmt: skip


def _check(arguments: argparse.Namespace) -> None:
    from oarlock.job.quotas import parsed
    from oarlock.lang import quotas
    from oarlock.model.limits import BadQuotas

    given = parsed(arguments.file)
    response = quotas.mistakes(given)
    for mistake in response:
        show_text(_mistake_text(mistake))
    if response:
        wrong = "1 mistake" if len(response) == 1 else f"{len(response)} mistakes"
        raise BadQuotas(
            f"{arguments.file} has {wrong} and would not be used.", hint="Correct the file, and check again."
        )
    book = quotas.read(given)
    for name in quotas.unused(book):
        show_text(f"The rules `{name}` never hold: no period names them.")
    show_text(f"{arguments.file} can be used. Rules: {sum(map(len, book.sets.values()))}, in sets: {len(book.sets)}.")


def _mistake_text(mistake: BadQuotas) -> str:
    return f"{mistake}\n  {mistake.hint}" if mistake.hint else str(mistake)


def _add(arguments: argparse.Namespace) -> None:
    quota = {
        "rule": arguments.rule,
        "resources": arguments.resources,
        "jobs": arguments.jobs,
        "resource_hours": arguments.hours,
    }
    show_text(f"Quota {_Quotas(arguments.server).add_quota(quota)} holds from now on.")


def _remove(arguments: argparse.Namespace) -> None:
    _Quotas(arguments.server).remove_quota(arguments.number)
    show_text(f"Quota {arguments.number} is removed.")


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


def _maintenance_options(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `maintenance`."""
    about = "Keep nodes free of jobs for a time: no job is started that would still be there; what runs is left alone."
    parser = commands.add_parser("maintenance", help="say when nodes are maintained", description=about)
    verbs = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    adding = verbs.add_parser("add", help="add a window (administrators)")
    adding.add_argument("name", metavar="NAME", help="what users are told, as in `cooling`")
    adding.add_argument("start", metavar="START", help='when it begins: "YYYY-MM-DD hh:mm:ss", local time')
    adding.add_argument("stop", metavar="STOP", help="when it ends")
    adding.add_argument("nodes", metavar="NODE", nargs="*", help="the nodes; without any, all resources")
    adding.add_argument("--where", metavar="CONDITION", help="the resources that fulfil a condition, instead of nodes")
    adding.set_defaults(run=_add_window)
    listing = verbs.add_parser("list", help="list the windows that are not over")
    listing.set_defaults(run=_list_windows)
    removing = verbs.add_parser("remove", help="take a window back, or end it (administrators)")
    removing.add_argument("number", metavar="NUMBER", type=int, help="its number, as `list` shows it")
    removing.set_defaults(run=_remove_window)
    for verb in (adding, listing, removing):
        verb.add_argument("--server", metavar="ADDRESS", help="the server's socket, or http://NAME:PORT")
    for verb in (adding, listing):
        verb.add_argument("-J", "--json", action="store_true", help="as JSON, for programs")


def _add_window(arguments: argparse.Namespace) -> None:
    window = {
        "name": arguments.name,
        "start": readable.instant(arguments.start, what="START"),
        "stop": readable.instant(arguments.stop, what="STOP"),
        **({"nodes": arguments.nodes} if arguments.nodes else {}),
        **({"where": arguments.where} if arguments.where else {}),
    }
    met = _Windows(arguments.server).add_window(window)
    if arguments.json:
        print(json.dumps(met, indent=2))
        return
    show_text(f"Maintenance {met['window']['id']}: {met['resources']} resources.")
    for jobs, reason in (
        (met["running"], "may still run when it begins"),
        (met["reservations"], "were promised before"),
    ):
        if jobs:
            show_text(f"Jobs {', '.join(map(str, jobs))} {reason}; they are left alone.")


def _list_windows(arguments: argparse.Namespace) -> None:
    windows = _Windows(arguments.server).windows()
    if arguments.json:
        print(json.dumps(windows, indent=2))
        return
    for window in windows:
        when = f"{readable.date(window['start'])} - {readable.date(window['stop'])}"
        show_text(
            f"{window['id']:>4}  {when}  {window['name']}  ({window['where'] or 'all resources'}; by {window['by']})"
        )


def _remove_window(arguments: argparse.Namespace) -> None:
    _Windows(arguments.server).remove_window(arguments.number)
    show_text(f"Maintenance {arguments.number} is removed.")
