"""How every command runs: options, one call, one print; a refusal is a sentence, a way out and an exit code."""

from __future__ import annotations

import sys

from oarlock.cli.output import CommandOutput
from oarlock.client import Client, RequestRefused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from oarlock.cli.options import CommandOptions, ParsedOptions

    Run = Callable[[Client, ParsedOptions, CommandOutput], None]


def main(options: CommandOptions, run: Run) -> int:
    """Run a command on the words it was called with; gives its exit code."""
    out = CommandOutput(options.command)
    try:
        _ran(options, run, out)
    except RequestRefused as refused:
        out.refuse(refused)
    except KeyboardInterrupt:
        out.fail("Interrupted")
    out.flush()
    return out.code


def _ran(options: CommandOptions, run: Run, out: CommandOutput) -> None:
    arguments = options.parse(sys.argv[1:])
    if arguments.given("help"):
        from oarlock.cli.help_text import helped

        out.text(helped(options))
    elif arguments.given("version"):
        from oarlock import __version__

        out.line(f"Oarlock version : {__version__}")
    else:
        out.form = arguments.format
        run(Client(arguments.text("server")), arguments, out)
