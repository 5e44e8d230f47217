"""oarlock quotas: what is allowed at once, and how much of it is used."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oarlock.cli import time_format
from oarlock.cli.output import show_text
from oarlock.client import Client

if TYPE_CHECKING:
    from oarlock.model.quota import BadQuotas

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
    """Add the command to those of `oarlock`."""
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
    at = None if arguments.at is None else time_format.instant(arguments.at, what="--at")
    response = _Quotas(arguments.server).allowance(user=arguments.user, at=at)
    if arguments.json:
        print(json.dumps(response, indent=2))
        return
    if response["problem"]:
        show_text(f"The changed file is not used; what it said before holds. {response['problem']}")
    if response["file"]:
        until = f" until {time_format.date(response['until'])}" if response["until"] is not None else ""
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
    from oarlock.model.quota import BadQuotas

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
