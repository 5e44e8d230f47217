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
        """Give the rules in force, and what is used of them."""
        found: dict[str, Any] = self._get("/quotas", **query)
        return found

    def add_quota(self, quota: dict[str, Any]) -> int:
        """Set a quota; gives its number."""
        return int(self._change("POST", "/quotas", quota)["number"])

    def remove_quota(self, number: int) -> None:
        """Take a quota back."""
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


def _show(asked: argparse.Namespace) -> None:
    at = None if asked.at is None else time_format.instant(asked.at, what="--at")
    found = _Quotas(asked.server).allowance(user=asked.user, at=at)
    if asked.json:
        print(json.dumps(found, indent=2))
        return
    if found["problem"]:
        show_text(f"The changed file is not used; what it said before holds. {found['problem']}")
    if found["file"]:
        until = f" until {time_format.date(found['until'])}" if found["until"] is not None else ""
        show_text(f"Of {found['file']}, the rules `{found['set']}` hold{until}.")
    if not found["rules"]:
        whom = f" speaks of {asked.user}" if asked.user else " holds"
        show_text(f"No quota{whom}. `oarlock quotas add` sets one; a file of them is named by QUOTAS_CONF_FILE.")
        return
    for line in _table([row for rule in found["rules"] for row in _rows(rule)]):
        show_text(line)


def _rows(rule: dict[str, Any]) -> list[tuple[str, ...]]:
    """Give a row for each whom a rule counts; one for nobody where nobody has anything."""
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
    told = ",".join(each) or ("each" if "/" in rule.split(",") else "all")
    return f"{told} (besteffort)" if besteffort else told


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


def _check(asked: argparse.Namespace) -> None:
    from oarlock.job.quotas import parsed
    from oarlock.lang import quotas
    from oarlock.model.quota import BadQuotas

    given = parsed(asked.file)
    found = quotas.mistakes(given)
    for one in found:
        show_text(_told(one))
    if found:
        wrong = "1 mistake" if len(found) == 1 else f"{len(found)} mistakes"
        raise BadQuotas(f"{asked.file} has {wrong} and would not be used.", hint="Correct the file, and check again.")
    book = quotas.read(given)
    for name in quotas.unused(book):
        show_text(f"The rules `{name}` never hold: no period names them.")
    show_text(f"{asked.file} can be used. Rules: {sum(map(len, book.sets.values()))}, in sets: {len(book.sets)}.")


def _told(one: BadQuotas) -> str:
    return f"{one}\n  {one.hint}" if one.hint else str(one)


def _add(asked: argparse.Namespace) -> None:
    quota = {"rule": asked.rule, "resources": asked.resources, "jobs": asked.jobs, "resource_hours": asked.hours}
    show_text(f"Quota {_Quotas(asked.server).add_quota(quota)} holds from now on.")


def _remove(asked: argparse.Namespace) -> None:
    _Quotas(asked.server).remove_quota(asked.number)
    show_text(f"Quota {asked.number} is no more.")
