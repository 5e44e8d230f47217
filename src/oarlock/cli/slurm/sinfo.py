"""sinfo: nodes and queues, as Slurm shows them."""

from __future__ import annotations

from oarlock.cli import output
from oarlock.cli.options import CommandOptions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from oarlock.cli.options import ParsedOptions
    from oarlock.cli.output import CommandOutput
    from oarlock.client import Client

OPTIONS = CommandOptions("sinfo", "Show nodes and queues, as Slurm does.", usage=("[OPTION]...",))
OPTIONS.flag("-N --Node", "a line a node")
OPTIONS.text("-p --partition=QUEUES", "these queues")
OPTIONS.text("-n --nodes=NODES", "these nodes")
OPTIONS.flag("-h --noheader", "no line with the names of columns")
OPTIONS.end()


class ListedNode:
    """A node: its cores, how many of them jobs have, its memory in GB, and its state in Slurm's word."""

    def __init__(self) -> None:
        self.cores = self.used = self.memory = 0
        self.states: set[str] = set()
        self.drained = False

    @property
    def state(self) -> str:
        """idle, mix, alloc, drain or down."""
        if self.states != {"Alive"}:
            return "down*" if "Suspected" in self.states else "down"
        if self.drained:
            return "drng" if self.used else "drain"
        return "idle" if not self.used else "alloc" if self.used >= self.cores else "mix"


def node_states(client: Client) -> dict[str, ListedNode]:
    """Return the nodes by their names."""
    answer = client.resources()
    busy = _busy(answer)
    nodes: dict[str, ListedNode] = {}
    for resource in answer["resources"]:
        if resource.get("type") != "default":
            continue
        node = nodes.setdefault(str(resource["network_address"]), ListedNode())
        node.cores += 1
        node.used += resource["resource_id"] in busy
        node.states.add(str(resource["state"]))
        node.drained = node.drained or str(resource.get("drain")).upper() == "YES"
        memory = resource.get("mem")
        node.memory = int(memory) if str(memory or "").isdecimal() else node.memory
    return dict(sorted(nodes.items()))


def _busy(answer: Any) -> set[int]:
    """Return the resources that jobs have now."""
    return {int(resource) for resource, jobs in answer["jobs"].items() if jobs}


def main() -> int:
    """Run the command."""
    return output.main(OPTIONS, run)


def run(client: Client, parsed: ParsedOptions, out: CommandOutput) -> None:
    """Ask for nodes and queues, and lay them out."""
    from oarlock.cli.slurm.options import node_names
    from oarlock.model.nodeset import fold

    nodes = node_states(client)
    if (text := parsed.text("nodes")) is not None:
        nodes = {name: nodes[name] for name in node_names(text, "--nodes") if name in nodes}
    queues = [queue for queue in client.queues() if _wanted(queue["name"], parsed.text("partition"))]
    queues.sort(key=lambda queue: -queue["priority"])
    if parsed.given("Node"):
        rows = [
            (name, "1", queue["name"], node.state)
            for name, node in nodes.items()
            for queue in queues
        ]  # fmt: skip
        _show(["NODELIST", "NODES", "PARTITION", "STATE"], rows, parsed, out)
        return
    by_state: dict[str, list[str]] = {}
    for name, node in nodes.items():
        by_state.setdefault(node.state, []).append(name)
    table = [
        (queue["name"], "up" if queue["active"] else "down", str(len(names)), state, fold(names))
        for queue in queues
        for state, names in sorted(by_state.items())
    ]
    _show(["PARTITION", "AVAIL", "NODES", "STATE", "NODELIST"], table, parsed, out)


def _wanted(queue: str, partitions: str | None) -> bool:
    return partitions is None or queue in partitions.split(",")


def _show(head: list[str], rows: Sequence[tuple[str, ...]], parsed: ParsedOptions, out: CommandOutput) -> None:
    lines = [*([] if parsed.given("noheader") else [tuple(head)]), *rows]
    widths = [max((len(line[at]) for line in lines), default=0) for at in range(len(head))]
    for line in lines:
        out.line(" ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
