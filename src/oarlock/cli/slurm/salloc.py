"""salloc: an interactive job with Slurm's options."""

from __future__ import annotations

import os

from oarlock.cli import output
from oarlock.cli.options import CommandOptions
from oarlock.cli.slurm.options import add_request_options
from oarlock.client import RequestRefused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from oarlock.cli.options import ParsedOptions
    from oarlock.cli.output import CommandOutput
    from oarlock.client import Client

OPTIONS = CommandOptions(
    "salloc",
    "Wait for resources and open a shell on the first node, with Slurm's options.",
    usage=("[OPTION]...",),
    about="The job ends with the shell. Its variables are the OAR_* ones; `oarsh NODE` leads to its other nodes.",
    stops_at_word=True,
)
add_request_options(OPTIONS)
OPTIONS.flag("--x11", "allow programs of the shell to use the display of this terminal, as ssh -Y does")
OPTIONS.end()


def main() -> int:
    """Run the command."""
    return output.main(OPTIONS, run)


def run(client: Client, parsed: ParsedOptions, out: CommandOutput) -> None:
    """Submit an interactive job, and be its shell."""
    import shlex
    import sys

    from oarlock.cli.sessions.interactive import enter_new_job
    from oarlock.cli.sessions.x11 import DisplayForwarding
    from oarlock.cli.slurm.request import submission
    from oarlock.cli.submitting.submission import environment

    if parsed.words:
        hint = "Leave it out, and type it in the shell; for a command alone: sbatch --wait --wrap='COMMAND'."
        raise RequestRefused(
            f"salloc opens a shell, and runs no command: {parsed.words[0]}.", kind="BadOption", hint=hint
        )
    display = DisplayForwarding(client) if parsed.given("x11") else None
    notes: list[str] = []
    body, _ = submission(client, parsed, notes)
    body |= {"interactive": True, "environment": environment(dict(os.environ))}
    body["initial_request"] = shlex.join(["salloc", *sys.argv[1:]])
    for note in notes:
        out.note(note)
    [number] = client.submit(body)["job_ids"]
    out.note(f"Pending job allocation {number}")
    enter_new_job(client, number, out, display)
