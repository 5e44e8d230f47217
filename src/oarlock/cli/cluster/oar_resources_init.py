"""oar_resources_init: write the script that creates the resources of a list of hosts."""

from __future__ import annotations

import os
import sys

from oarlock.cli import output
from oarlock.cli.options import CommandOptions
from oarlock.client import RequestRefused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from oarlock.cli.options import ParsedOptions
    from oarlock.cli.output import CommandOutput
    from oarlock.client import Client
    from oarlock.job.cluster.inventory import Proposal

OPTIONS = CommandOptions(
    "oar_resources_init",
    "Ask hosts for their cores and write the script that creates their resources.",
    usage=("[-H|-T] [-o FILE] [-x] [-y] [-v] HOSTFILE",),
    about="HOSTFILE has a host a line; - is standard input. `oarlock discover` does the same without a script.",
)
OPTIONS.flag("-H", "a resource is a core with all its threads; without it every thread counts as a core")
OPTIONS.flag("-T", "a resource is a thread, with a property `thread`; implies -H")
OPTIONS.text("-o=FILE", "the script to write (default: a new file)")
OPTIONS.flag("-x", "carry the script out and remove it (administrators)")
OPTIONS.flag("-y", "answer every question with yes")
OPTIONS.flag("-v", "print the script")
OPTIONS.text("-e=PATH", "the ssh command (default: OPENSSH_CMD of the settings)")
OPTIONS.text("-n=PATH", "the oarnodesetting command that the script calls")
OPTIONS.text("-p=PATH", "the oarproperty command that the script calls")
OPTIONS.text("-c=PATH", "the settings file")
OPTIONS.end()
OPTIONS.example("oar_resources_init -H -x -y hosts.txt", "create the resources of all hosts in hosts.txt")


def main() -> int:
    """Run the command."""
    return output.main(OPTIONS, run)


def run(client: Client, parsed: ParsedOptions, out: CommandOutput) -> None:
    """Ask all hosts, then write or carry out the script; a host that does not answer leaves nothing behind."""
    from pathlib import Path

    from oarlock.cli.cluster import discovery
    from oarlock.config import load
    from oarlock.job.cluster.inventory import ThreadUse, propose

    if len(parsed.words) != 1:
        raise RequestRefused("One file with hosts is needed.", kind="BadOption", hint="oar_resources_init HOSTFILE")
    source = parsed.words[0]
    hosts = discovery.host_names([discovery.read_hosts(source)])
    _confirm("Can root log in to all hosts with the server's key?", parsed, asking=source != "-")
    script = parsed.text("o")
    if script is not None and os.path.lexists(script):
        _confirm(f"Overwrite {script}?", parsed, asking=source != "-")
    existing, properties = client.resources()["resources"], client.properties()["properties"]
    config = load(Path(path) if (path := parsed.text("c")) is not None else None).config
    command = (path,) if (path := parsed.text("e")) is not None else ()
    out.line(f"# Reading nodes from {'STDIN' if source == '-' else source}...")
    out.flush()
    machines, silent = discovery.divided(discovery.ask(hosts, discovery.reach(config, ssh=command)))
    discovery.refuse_silent(silent, len(hosts))
    proposal = propose(machines, existing, properties, ThreadUse(_use(parsed)))
    for line in discovery.described(machines, proposal):
        out.line(line)
    lines = _script(proposal, parsed)
    if parsed.given("v"):
        for line in lines:
            out.line(line)
    if parsed.given("x"):
        discovery.carry_out(client, proposal, out.line)
        return
    path = _write(script, lines)
    out.line(f"# The script is {path}; if it looks right, create the resources with:")
    out.line(f"# . {path}")


def _use(parsed: ParsedOptions) -> str:
    return "threads" if parsed.given("T") else "together" if parsed.given("H") else "cores"


def _script(proposal: Proposal, parsed: ParsedOptions) -> list[str]:
    import shlex

    names = {"oarnodesetting": parsed.text("n"), "oarproperty": parsed.text("p")}
    lines = []
    for command in proposal.commands():
        program, _, rest = command.partition(" ")
        lines.append(f"{shlex.quote(names[program] or program)} {rest}")
    return lines


def _confirm(question: str, parsed: ParsedOptions, *, asking: bool) -> None:
    """Ask a question, unless -y answers it; whoever cannot be asked is refused."""
    if parsed.given("y"):
        return
    if not asking or not sys.stdin.isatty():
        raise RequestRefused(f"{question} Nobody can be asked.", kind="NotConfirmed", hint="-y answers with yes.")
    sys.stderr.write(f"# {question} (y/n) ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        raise RequestRefused("Nothing was done.", kind="NotConfirmed", hint="-y answers with yes.")


def _write(path: str | None, lines: list[str]) -> str:
    """Write the script, never through a link; return its path."""
    import tempfile

    text = "".join(f"{line}\n" for line in lines)
    try:
        if path is None:
            descriptor, path = tempfile.mkstemp(prefix="oar_resources_init.")
        else:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o644)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise RequestRefused(
            f"The script {path} cannot be written: {error.strerror}.",
            kind="BadScriptFile",
            hint="Name another with -o.",
        ) from None
    return path
