"""oarnodes: show resources."""

from __future__ import annotations

import time

from oarlock.cli import output
from oarlock.cli.options import CommandOptions
from oarlock.client import RequestRefused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from oarlock.cli.options import ParsedOptions
    from oarlock.cli.output import CommandOutput
    from oarlock.client import Client

LAST_EVENTS = 20

OPTIONS = CommandOptions(
    "oarnodes",
    "Show resources: their states, their properties and the jobs on them.",
    usage=(
        "[-a|-s|-l|--summary] [-r RESOURCE]... [--sql CONDITION] [-D|-X|-Y|-J] [NODE]...",
        "-e [DATE] [--] [NODE]...",
    ),
)
OPTIONS.flag("-a --all", "all resources with their properties; so it is without options")
OPTIONS.number("-r --resource=RESOURCE", "only this resource", many=True)
OPTIONS.flag("-s --state", "only the states, by node")
OPTIONS.flag("-l --list", "only the names of the nodes")
OPTIONS.flag("--summary", "a line a node, those that fare alike folded (node[1-64]), and totals by state")
OPTIONS.maybe("-e --events=DATE", 'what happened on the nodes since "YYYY-MM-DD hh:mm:ss"; without: the last 20')
OPTIONS.text("--sql=CONDITION", "resources for which this holds: \"state = 'Suspected'\"")
OPTIONS.formats()
OPTIONS.end()
OPTIONS.example("oarnodes -s", "the state of every resource")
OPTIONS.example("oarnodes --summary", "a large cluster on a few lines")
OPTIONS.example("oarnodes --sql \"state = 'Suspected'\"", "what needs a look")


def main() -> int:
    """Run the command."""
    return output.main(OPTIONS, run)


def run(client: Client, parsed: ParsedOptions, out: CommandOutput) -> None:
    """Print what the options select."""
    if parsed.given("events"):
        _events(client, parsed, out)
        return
    answer = _asked_for(client, parsed, out)
    # OAR sorts numbers like words, and programs that compare outputs rely on it.
    resources = sorted(answer["resources"], key=lambda resource: str(resource["resource_id"]))
    if parsed.given("state"):
        _states(resources, out)
    elif parsed.given("list"):
        _names(resources, out)
    elif parsed.given("summary"):
        _summary(resources, answer.get("jobs") or {}, out)
    else:
        _all(resources, answer.get("jobs") or {}, out)


def _asked_for(client: Client, parsed: ParsedOptions, out: CommandOutput) -> Any:
    """Ask for the chosen resources. What does not exist is named and left out; as in OAR that is no error."""
    ids = ",".join(parsed.texts("resource")) or None
    try:
        return client.resources(where=parsed.text("sql"), ids=ids, nodes=",".join(parsed.words) or None)
    except RequestRefused as refused:
        if refused.kind not in {"UnknownNode", "UnknownResource"}:
            raise
        out.note(str(refused), refused.hint)
    everything = client.resources()
    numbers, names = set(parsed.numbers("resource")), set(parsed.words)
    chosen = [r for r in everything["resources"] if r["resource_id"] in numbers or r["network_address"] in names]
    return everything | {"resources": chosen}


def _all(resources: list[Any], jobs: dict[str, list[int]], out: CommandOutput) -> None:
    from oarlock.cli.layout.resources import joined, resource_lines

    on = {resource["resource_id"]: jobs.get(str(resource["resource_id"]), []) for resource in resources}
    if out.form:
        with_jobs = [r | ({"jobs": joined(on[r["resource_id"]])} if on[r["resource_id"]] else {}) for r in resources]
        out.data({str(resource["resource_id"]): resource for resource in with_jobs})
        out.line()
        return
    for line in (line for resource in resources for line in resource_lines(resource, on[resource["resource_id"]])):
        out.line(line)


def _states(resources: list[Any], out: CommandOutput) -> None:
    from oarlock.cli.layout.resources import state

    now = int(time.time())
    nodes: dict[str, dict[str, str]] = {}
    for resource in resources:
        states = nodes.setdefault(resource["network_address"] or "", {})
        states[str(resource["resource_id"])] = resource["state"] if out.form else state(resource, now)
    if out.form:
        out.data(nodes)
        out.line()
        return
    for node in sorted(nodes):
        out.line(node)
        for number, word in nodes[node].items():
            out.line(f"    {number} : {word}")


def _names(resources: list[Any], out: CommandOutput) -> None:
    names = sorted({resource["network_address"] for resource in resources if resource["network_address"]})
    if out.form:
        out.data(names)
        out.line()
        return
    for name in names:
        out.line(name)


def _summary(resources: list[Any], jobs: dict[str, list[int]], out: CommandOutput) -> None:
    from oarlock.cli.layout.resources import summary, summary_lines

    counted = summary(resources, jobs, int(time.time()))
    if out.form:
        out.data(counted)
        out.line()
        return
    for line in summary_lines(counted) if resources else []:
        out.line(line)


def _events(client: Client, parsed: ParsedOptions, out: CommandOutput) -> None:
    from oarlock.cli.layout.readable import date, instant

    text = parsed.text("events")
    since = None if text is None else instant(text, what="--events")
    limit = LAST_EVENTS if since is None else None
    events = client.node_events(nodes=",".join(parsed.words) or None, since=since, limit=limit)
    if out.form:
        out.data(events)
        out.line()
        return
    for event in events:
        out.line(f"{date(event['at'])}| {event.get('job_id') or 0}| {event['type']}: {event['description']}")
