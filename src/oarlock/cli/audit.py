"""oarlock audit: who changed what, for administrators."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from oarlock.cli import time_format
from oarlock.cli.output import show_text
from oarlock.client import Client, RequestRefused

if TYPE_CHECKING:
    import argparse

_ABOUT = (
    "Show who changed what and when, oldest first: jobs ended and held, jobs submitted for somebody else, nodes, "
    "queues, properties, maintenance, tokens; and which requests were refused, and why. Administrators only. What "
    "users submit for themselves is in `oarstat`."
)
_LONGEST = 120


class _Record(Client):
    """The client, with the verb of the audit."""

    def changes(self, **query: object) -> dict[str, Any]:
        """Give changes, and whether the record is whole if that is asked."""
        found: dict[str, Any] = self._get("/audit", **query)
        return found


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to those of `oarlock`."""
    parser = commands.add_parser("audit", help="show who changed what (administrators)", description=_ABOUT)
    parser.add_argument("-u", "--user", metavar="NAME", help="only what this user changed")
    parser.add_argument("-j", "--job", metavar="JOB", type=int, help="only what was done to this job")
    parser.add_argument("--since", metavar="DATE", help="from then on: YYYY-MM-DD [hh:mm:ss], local time")
    parser.add_argument("--last", metavar="N", type=int, default=100, help="the last so many (100; at most 10000)")
    parser.add_argument("--check", action="store_true",
                        help="also check that nobody edited the record since; ends with 2 if somebody did")  # fmt: skip
    parser.add_argument("-J", "--json", action="store_true", help="as JSON, for programs")
    parser.add_argument("--server", metavar="ADDRESS", help="the server's socket, or http://NAME:PORT")
    parser.set_defaults(run=run)


def run(asked: argparse.Namespace) -> None:
    """Show the changes."""
    found = _Record(asked.server).changes(
        by=asked.user,
        job=asked.job,
        since=None if asked.since is None else time_format.instant(asked.since, what="--since"),
        limit=asked.last,
        check="true" if asked.check else None,
    )
    if asked.json:
        print(json.dumps(found, indent=2))
    else:
        for one in found["changes"]:
            show_text(_line(one))
    if found["broken"] is not None:
        raise RequestRefused(
            f"Entry {found['broken']} of the record is not as it was written, or one before it was taken out.",
            kind="BrokenRecord",
            hint="Compare with a backup of the database: every entry from there on is in doubt.",
        )
    if asked.check and not asked.json:
        show_text("The record is whole.")


def _line(one: dict[str, Any]) -> str:
    who = f"{one['user']} for {one['behalf']}" if one["behalf"] else one["user"]
    asked = _told(one["asked"])
    date = time_format.date(one["date"])
    line = f"{one['id']:>6}  {date}  {who or 'unknown'} ({one['channel']})  {one['verb']}  {asked}"
    return f"{line.rstrip()}  refused: {' '.join(one['refused'].split())}" if one["refused"] else line.rstrip()


def _told(asked: str) -> str:
    """Give what was asked for, without what was left open; as it is where it was cut short."""
    try:
        fields = json.loads(asked) if asked else {}
    except ValueError:
        return _short(asked)
    given = {name: value for name, value in fields.items() if value not in (None, False, [], {})}
    return _short(" ".join(f"{name}={_value(value)}" for name, value in given.items()))


def _value(value: object) -> str:
    if isinstance(value, list):
        return ",".join(map(_value, value))
    return str(value) if isinstance(value, int | float) else json.dumps(value, ensure_ascii=False)


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
