"""oarlock audit: who changed what, for administrators."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from oarlock.cli.layout import readable
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
        """Return changes and, with `check`, the first broken entry."""
        response: dict[str, Any] = self._get("/audit", **query)
        return response


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


def run(arguments: argparse.Namespace) -> None:
    """Show the changes."""
    response = _Record(arguments.server).changes(
        by=arguments.user,
        job=arguments.job,
        since=None if arguments.since is None else readable.instant(arguments.since, what="--since"),
        limit=arguments.last,
        check="true" if arguments.check else None,
    )
    if arguments.json:
        print(json.dumps(response, indent=2))
    else:
        for entry in response["changes"]:
            show_text(_line(entry))
    if response["broken"] is not None:
        raise RequestRefused(
            f"Entry {response['broken']} of the record is not as it was written, or one before it was taken out.",
            kind="BrokenRecord",
            hint="Compare with a backup of the database: every entry from there on is in doubt.",
        )
    if arguments.check and not arguments.json:
        show_text("The record is whole.")


def _line(entry: dict[str, Any]) -> str:
    who = f"{entry['user']} for {entry['behalf']}" if entry["behalf"] else entry["user"]
    request = _request_text(entry["asked"])
    date = readable.date(entry["date"])
    line = f"{entry['id']:>6}  {date}  {who or 'unknown'} ({entry['channel']})  {entry['verb']}  {request}"
    return f"{line.rstrip()}  refused: {' '.join(entry['refused'].split())}" if entry["refused"] else line.rstrip()


def _request_text(text: str) -> str:
    """Return the request without its empty fields; a request that was cut short is returned as it is."""
    try:
        fields = json.loads(text) if text else {}
    except ValueError:
        return _short(text)
    given = {name: value for name, value in fields.items() if value not in (None, False, [], {})}
    return _short(" ".join(f"{name}={_value(value)}" for name, value in given.items()))


def _value(value: object) -> str:
    if isinstance(value, list):
        return ",".join(map(_value, value))
    return str(value) if isinstance(value, int | float) else json.dumps(value, ensure_ascii=False)


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
