"""oarnotify: manage the queues."""

from __future__ import annotations

from oarlock.cli import command
from oarlock.cli.options import Options
from oarlock.client import Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from oarlock.cli.options import Asked
    from oarlock.cli.output import Output
    from oarlock.client import Client

OPTIONS = Options(
    "oarnotify",
    "Manage the queues (changes: administrators).",
    usage=("-l", "-e QUEUE|-d QUEUE|-E|-D", "--add-queue NAME,PRIORITY,POLICY", "--remove-queue NAME"),
    version_names="-V -v --version",
    about="OAR's oarnotify also sends tags to its server's modules; there are none here, the server is told of "
    "every change by the command that makes it.",
)
OPTIONS.flag("-l --list-queues", "list the queues")
OPTIONS.text("-e --enable-queue=QUEUE", "let jobs of this queue start", many=True)
OPTIONS.text("-d --disable-queue=QUEUE", "let no further job of this queue start", many=True)
OPTIONS.flag("-E --Enable-all-queues", "let jobs of all queues start")
OPTIONS.flag("-D --Disable-all-queues", "let no further job start")
OPTIONS.text(
    "--add-queue=NAME,PRIORITY,POLICY", "add a queue: night,3,oar_sched_gantt_with_timesharing; higher goes first"
)  # fmt: skip
OPTIONS.text("--remove-queue=NAME", "remove a queue that has no jobs")
OPTIONS.json()
OPTIONS.end()


def main() -> int:
    """Run the command."""
    return command.main(OPTIONS, run)


def run(client: Client, asked: Asked, out: Output) -> None:
    """Do what was asked, one after the other; the first refusal ends it."""
    if asked.words:
        raise Refused(
            f"There is no module to send `{asked.words[0]}` to.",
            kind="BadOption",
            hint="The server sees every change by itself; `oarnotify --help` tells what is left to do.",
        )
    if not asked.values.keys() - {"server", "json"}:
        raise Refused("Nothing is asked for.", kind="BadOption", hint="Give -l, -e, -d, -E, -D or --add-queue.")
    if (new := asked.text("add_queue")) is not None:
        name, priority, policy = _queue(new)
        client.add_queue(name, priority, policy)
        out.line(f"Add queue {name}.")
    if (old := asked.text("remove_queue")) is not None:
        client.remove_queue(old)
        out.line(f"Remove queue {old}.")
    _switch(client, asked, out)
    if asked.given("list_queues"):
        _list(client, out)


def _switch(client: Client, asked: Asked, out: Output) -> None:
    for name in asked.texts("enable_queue"):
        client.start_queue(name)
        out.line(f"Enable queue {name}.")
    for name in asked.texts("disable_queue"):
        client.stop_queue(name)
        out.line(f"Disable queue {name}.")
    if asked.given("Enable_all_queues"):
        client.start_queue(None)
        out.line("Enable all queues.")
    if asked.given("Disable_all_queues"):
        client.stop_queue(None)
        out.line("Disable all queues.")


def _name(queue: Any) -> str:
    return str(queue["name"])


def _list(client: Client, out: Output) -> None:
    queues = sorted(client.queues(), key=_name)
    if out.form:
        out.data({queue["name"]: queue for queue in queues})
        return
    for queue in queues:
        _tell(queue, out)


def _tell(queue: Any, out: Output) -> None:
    out.line(queue["name"])
    out.line(f"\tpriority = {queue['priority']}")
    out.line(f"\tscheduler = {queue['policy']}")
    out.line(f"\tstate = {'Active' if queue['active'] else 'notActive'}")


def _queue(text: str) -> tuple[str, int, str]:
    name, _, rest = text.partition(",")
    priority, _, policy = rest.partition(",")
    if not (name and priority.strip().isdecimal() and policy.strip()):
        raise Refused(f"`{text}` is no queue.", kind="BadOption", hint="Write it as NAME,PRIORITY,POLICY.")
    return name.strip(), int(priority), policy.strip()
