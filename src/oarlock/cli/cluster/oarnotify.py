"""oarnotify: manage the queues, and have the server do something at once."""

from __future__ import annotations

from oarlock.cli import output
from oarlock.cli.options import CommandOptions
from oarlock.client import RequestRefused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from oarlock.cli.options import ParsedOptions
    from oarlock.cli.output import CommandOutput
    from oarlock.client import Client

OPTIONS = CommandOptions(
    "oarnotify",
    "Manage the queues, and have the server do something at once (administrators).",
    usage=(
        "-l",
        "-e QUEUE|-d QUEUE|-E|-D",
        "--add-queue NAME[,PRIORITY[,POLICY]]",
        "--change-queue NAME,PRIORITY,POLICY",
        "--remove-queue NAME [--force]",
        "TAG",
    ),
    version_names="-V -v --version",
    about="A tag has the server do at once what it does in its time anyway: Term (also without any argument), Qsub, "
    "BipBip, Scheduling, Qresume and Walltime start a scheduling pass, Qdel repeats kills that had no effect, Villains "
    "and Finaud check the nodes, ChState applies the states that were asked for.",
)
OPTIONS.flag("-l --list-queues", "list the queues")
OPTIONS.text("-e --enable-queue=QUEUE", "enable this queue: its jobs may start", many=True)
OPTIONS.text("-d --disable-queue=QUEUE", "disable this queue: no further job of it starts", many=True)
OPTIONS.flag("-E --Enable-all-queues", "enable all queues")
OPTIONS.flag("-D --Disable-all-queues", "disable all queues: no further job starts")
OPTIONS.text(
    "--add-queue=NAME[,PRIORITY[,POLICY]]",
    "add a queue: night,3,oar_sched_gantt_with_timesharing; higher goes first; otherwise 0 and the usual policy",
)  # fmt: skip
OPTIONS.text("--change-queue=NAME,PRIORITY,POLICY", "set the priority and the policy of a queue, also with jobs in it")
OPTIONS.text("--remove-queue=NAME", "remove a queue that has no jobs")
OPTIONS.flag("--force", "remove even `default`, the queue of jobs that name none")
OPTIONS.json()
OPTIONS.end()


def main() -> int:
    """Run the command."""
    return output.main(OPTIONS, run)


def run(client: Client, parsed: ParsedOptions, out: CommandOutput) -> None:
    """Carry out the options one after the other; the first refusal ends it."""
    nothing = not parsed.words and not parsed.values.keys() - {"server", "json"}
    for tag in ["Term"] if nothing else parsed.words:
        client.notify(tag)
    if (new := parsed.text("add_queue")) is not None:
        queue = _queue(new)
        client.add_queue(queue)
        out.line(f"Add queue {queue['name']}.")
    if (changed := parsed.text("change_queue")) is not None:
        queue = _queue(changed)
        if queue.keys() != {"name", "priority", "policy"}:
            raise RequestRefused(
                f"`{changed}` does not say everything.", kind="BadOption", hint="Write it as NAME,PRIORITY,POLICY."
            )
        client.change_queue(queue)
        out.line(f"Change queue {queue['name']}.")
    if (old := parsed.text("remove_queue")) is not None:
        client.remove_queue(old, force=parsed.given("force"))
        out.line(f"Remove queue {old}.")
    _switch(client, parsed, out)
    if parsed.given("list_queues"):
        _list(client, out)


def _switch(client: Client, parsed: ParsedOptions, out: CommandOutput) -> None:
    for name in parsed.texts("enable_queue"):
        client.start_queue(name)
        out.line(f"Enable queue {name}.")
    for name in parsed.texts("disable_queue"):
        client.stop_queue(name)
        out.line(f"Disable queue {name}.")
    if parsed.given("Enable_all_queues"):
        client.start_queue(None)
        out.line("Enable all queues.")
    if parsed.given("Disable_all_queues"):
        client.stop_queue(None)
        out.line("Disable all queues.")


def _name(queue: Any) -> str:
    return str(queue["name"])


def _list(client: Client, out: CommandOutput) -> None:
    queues = sorted(client.queues(), key=_name)
    if out.form:
        out.data({queue["name"]: queue for queue in queues})
        return
    for queue in queues:
        _tell(queue, out)


def _tell(queue: Any, out: CommandOutput) -> None:
    out.line(queue["name"])
    out.line(f"\tpriority = {queue['priority']}")
    out.line(f"\tscheduler = {queue['policy']}")
    out.line(f"\tstate = {'Active' if queue['active'] else 'notActive'}")


def _queue(text: str) -> dict[str, Any]:
    """Read a queue; the server knows the priority and the policy of one that is only named."""
    name, *rest = [part.strip() for part in text.split(",", 2)]
    if not name or not all(rest) or (rest and not rest[0].isdecimal()):
        raise RequestRefused(
            f"`{text}` is not a queue.", kind="BadOption", hint="Write it as NAME, or as NAME,PRIORITY,POLICY."
        )
    queue: dict[str, Any] = {"name": name}
    if rest:
        queue["priority"] = int(rest[0])
    return queue | ({"policy": rest[1]} if rest[1:] else {})
