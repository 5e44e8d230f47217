"""oarnodesetting: add resources, and change their states and properties."""

from __future__ import annotations

import os

from oarlock.cli import output
from oarlock.cli.layout.readable import natural_order
from oarlock.cli.options import CommandOptions
from oarlock.client import RequestRefused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from oarlock.cli.options import ParsedOptions
    from oarlock.cli.output import CommandOutput
    from oarlock.client import Client

STATES = ("Alive", "Absent", "Dead")
POLL_SECONDS = 0.5

OPTIONS = CommandOptions(
    "oarnodesetting",
    "Add resources, and change their states and properties (administrators).",
    usage=(
        "-a [-h NODE] [-s STATE] [-p NAME=VALUE]...",
        "[-h NODE|-f FILE|-r RESOURCE|--sql CONDITION] [-s STATE [-n]] [-m on|off] [-d on|off] [-p NAME=VALUE]...",
        "--last-property-value NAME",
    ),
    help_names="--help",
    about="Without -h, -f, -r and --sql the node is this machine.",
)
OPTIONS.flag("-a --add", "add a resource")
OPTIONS.text(
    "-h --hostname=NODE", "the resources of this node; with -a and '' a resource that is on no node", many=True
)
OPTIONS.text("-f --file=FILE", "the resources of the nodes in this file, a name a line")
OPTIONS.number("-r --resource=RESOURCE", "this resource", many=True)
OPTIONS.text("--sql=CONDITION", "the resources for which this holds: \"type = 'default'\"")
OPTIONS.text(
    "-s --state=STATE",
    "Alive: jobs can run; Absent: away for a while; Dead: will not come back; the last two end the jobs there",
)
OPTIONS.flag("-n --no-wait", "do not wait until the jobs are over that -s Absent or Dead ends")
OPTIONS.text(
    "-m --maintenance=on|off",
    "on: Absent (which ends the jobs there), and not to be woken; off: Alive again, cm_availability as before",
)
OPTIONS.text("-d --drain=on|off", "on: no new job; off: jobs again")
OPTIONS.text("-p --property=NAME=VALUE", "set a property", many=True)
OPTIONS.text("--last-property-value=NAME", "show the highest value of a property and exit")
OPTIONS.end()
OPTIONS.example("oarnodesetting -a -h node5 -p cpu=9 -p core=33", "add a core of node5")
OPTIONS.example(
    "oarnodesetting -a -h node5 -p cpu=9 -p core=33 -p cpuset=0,32", "the same with both threads of the core"
)
OPTIONS.example("oarnodesetting -a -h '' -p type=licence -p licence=matlab1", "add a licence, which is on no node")
OPTIONS.example("oarnodesetting -h node5 -s Absent", "take node5 away: its jobs are ended, and their end is waited for")


def main() -> int:
    """Run the command."""
    return output.main(OPTIONS, run)


def run(client: Client, parsed: ParsedOptions, out: CommandOutput) -> None:
    """Carry out the options in this order: add or choose, state, properties."""
    if parsed.words:
        raise RequestRefused(
            f"`{parsed.words[0]}` is not an option.", kind="BadOption", hint=f"-h {parsed.words[0]} names a node."
        )
    if (name := parsed.text("last_property_value")) is not None:
        _tell_last(client, name, out)
        return
    given, state = _properties(parsed), _state(parsed)
    if not (given or state or parsed.given("add")):
        raise RequestRefused("Nothing is asked for.", kind="BadOption", hint="Give -a, -s, -m, -d or -p.")
    chosen = {} if parsed.given("add") else _chosen(parsed)
    hosts = _hosts(parsed) if parsed.given("add") else []
    properties = _typed(client, given) if given else {}
    if hosts:
        _add(client, hosts, properties, state, out)
        return
    if state:
        # Afterwards a condition may choose others: what was chosen stays chosen.
        chosen = {"ids": _set_state(client, parsed, chosen, state, out)}
    if properties:
        _set_properties(client, chosen, properties, out)


def _properties(parsed: ParsedOptions) -> dict[str, str]:
    values: dict[str, str] = {}
    for text in parsed.texts("property"):
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise RequestRefused(f"`{text}` is not a property.", kind="BadProperty", hint="Write it as NAME=VALUE.")
        values[name.strip()] = value.strip()
    if (drain := _switch(parsed, "drain")) is not None:
        values["drain"] = "YES" if drain else "NO"
    if _switch(parsed, "maintenance"):
        values["cm_availability"] = "0"  # nobody wakes it
    return values


def _switch(parsed: ParsedOptions, key: str) -> bool | None:
    word = parsed.text(key)
    if word not in {None, "on", "off"}:
        raise RequestRefused(f"--{key} is on or off, not `{word}`.", kind="BadOption", hint=f"Write --{key}=on.")
    return None if word is None else word == "on"


def _state(parsed: ParsedOptions) -> str | None:
    word = parsed.text("state")
    if word is not None and word not in STATES:
        raise RequestRefused(
            f"`{word}` is not a state to ask for.", kind="BadOption", hint=f"Ask for {', '.join(STATES)}."
        )
    away = _switch(parsed, "maintenance")
    if away is not None and word is not None:
        raise RequestRefused("-m and -s cannot be given together.", kind="BadOption", hint="-m sets the state itself.")
    return word if away is None else STATES[1] if away else STATES[0]


def _chosen(parsed: ParsedOptions) -> dict[str, Any]:
    ways: dict[str, Any] = {}
    if parsed.given("resource"):
        ways["ids"] = parsed.numbers("resource")
    if parsed.given("sql"):
        ways["where"] = parsed.text("sql")
    if parsed.given("hostname") or parsed.given("file"):
        ways["nodes"] = [*parsed.texts("hostname"), *_listed(parsed.text("file"))]
    if len(ways) > 1:
        raise RequestRefused("-h, -r and --sql cannot be given together.", kind="BadOption", hint="Choose one of them.")
    return ways or {"nodes": [_this_node()]}


def _listed(path: str | None) -> list[str]:
    if path is None:
        return []
    from oarlock.cli.submitting.submission import read

    return read(path, kind="BadOption", what="list of nodes").split()


def _this_node() -> str:
    return os.uname().nodename


def _typed(client: Client, given: dict[str, str]) -> dict[str, Any]:
    """Make numbers of the values of properties that hold numbers; what cannot be made one is the server's to refuse."""
    kinds = client.properties()["properties"]
    return {name: _number(value) if kinds.get(name) == "int" else value for name, value in given.items()}


def _number(text: str) -> int | str | None:
    if not text:
        return None
    digits = text.removeprefix("-")
    return int(text) if digits.isdecimal() and digits.isascii() else text


def _hosts(parsed: ParsedOptions) -> list[str]:
    if parsed.given("resource") or parsed.given("sql"):
        raise RequestRefused(
            "-a adds a resource; -r and --sql choose some.", kind="BadOption", hint="Leave out one of them."
        )
    return [*parsed.texts("hostname"), *_listed(parsed.text("file"))] or [_this_node()]


def _add(client: Client, hosts: list[str], properties: dict[str, Any], state: str | None, out: CommandOutput) -> None:
    for host in hosts:
        body: dict[str, Any] = {"host": host, "properties": properties}
        added = client.add_resource(body | ({"state": state} if state else {}))
        out.line(f"New resource added:  {host}")
        _tell_properties(properties, dict.fromkeys(properties, len(added)), out)


def _tell_properties(properties: dict[str, Any], updated: dict[str, int], out: CommandOutput) -> None:
    for name, value in properties.items():
        shown = "" if value is None else value
        out.line(f"Set property {name} to '{shown}'... {updated[name]} resource(s) updated.")


def _set_properties(client: Client, chosen: dict[str, Any], properties: dict[str, Any], out: CommandOutput) -> None:
    answer = _wanted(lambda: client.set_properties({"properties": properties} | chosen), chosen, properties)
    _refuse_nothing(answer["resource_ids"], chosen)
    _tell_properties(properties, answer["updated"], out)


def _wanted(ask: Callable[[], Any], chosen: dict[str, Any], properties: dict[str, Any]) -> Any:
    """Ask the server. A condition that cannot be used chooses nothing: OAR has one exit code for both."""
    try:
        return ask()
    except RequestRefused as refused:
        about_property = any(f"`{name}`" in str(refused) for name in properties)
        if "where" in chosen and refused.kind in {"UnknownProperty", "SyntaxRefused"} and not about_property:
            refused.kind = "NothingMatches"
        raise


def _refuse_nothing(ids: list[int], chosen: dict[str, Any]) -> None:
    if not ids and "where" in chosen:
        raise RequestRefused(
            f"No resource fits `{chosen['where']}`.", kind="NothingMatches", hint="`oarnodes --sql` tries a condition."
        )


def _set_state(
    client: Client, parsed: ParsedOptions, chosen: dict[str, Any], state: str, out: CommandOutput
) -> list[int]:
    now = parsed.given("no_wait")
    restore = {"end_maintenance": True} if _switch(parsed, "maintenance") is False else {}
    answer = _wanted(lambda: client.set_state({"state": state, "now": now} | restore | chosen), chosen, {})
    _refuse_nothing(answer["resource_ids"], chosen)
    ids: list[int] = answer["resource_ids"]
    what, names = ("node", chosen["nodes"]) if "nodes" in chosen else ("resource", ids)
    for name in names:
        out.line(f"{name} --> {state}")
    if state != STATES[0] and not now:
        for name in names:
            out.line(f"Check jobs to delete on {what} {name}:")
        _wait(client, answer.get("jobs") or [], out)
        out.line("Check done")
    return ids


def _wait(client: Client, jobs: list[int], out: CommandOutput) -> None:
    """Wait until the jobs are over, telling of each as it ends."""
    import time

    left = sorted(jobs)
    out.flush()
    while left:
        values = client.jobs(ids=",".join(str(job_id) for job_id in left))
        running = {job["Job_Id"] for job in values if not job["stopTime"]}
        for job_id in (job_id for job_id in left if job_id not in running):
            out.line(f"\t{job_id} .... Deleted")
        out.flush()
        left = [job_id for job_id in left if job_id in running]
        if left:
            time.sleep(POLL_SECONDS)


def _tell_last(client: Client, name: str, out: CommandOutput) -> None:
    values = [resource.get(name) for resource in client.resources()["resources"]]
    values = [value for value in values if value not in {None, ""}]
    if not values:
        # Scripts ask for the next number of a property that nobody has used yet: as in OAR a warning, not an error.
        out.note(f"No resource has a value of `{name}`.", "`oarproperty -l` lists the properties.")
        return
    out.line(str(max(values, key=lambda value: natural_order(str(value)))))
