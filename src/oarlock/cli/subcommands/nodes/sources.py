"""oarlock sources: what is read of other resource managers and sent to a server."""

from __future__ import annotations

import logging
import signal
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

_SCRIPTS = (
    "Watch the spool of a Slurm server and send the script of each new job to `oarlock collect` or `oarlock serve`, "
    "where its owner and administrators can read it. It runs where slurmctld does, as root or Slurm's user. What was "
    "sent is remembered over restarts; while the server is away scripts wait in Slurm's spool."
)


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to those of `oarlock`."""
    parser = commands.add_parser("sources", help="send what other resource managers know to a server")
    verbs = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    scripts = verbs.add_parser("slurm-scripts", help="send the scripts of jobs of Slurm", description=_SCRIPTS)
    scripts.add_argument("--send", metavar="URL", required=True, help="the server: https://HOST:PORT")
    scripts.add_argument("--token-file", metavar="FILE", type=Path, required=True,
                         help="a token that `oarlock token add --scripts` made, mode 0600")  # fmt: skip
    scripts.add_argument("--ca", metavar="FILE", type=Path, help="the certificate of the server's authority")
    scripts.add_argument("--spool", metavar="DIR", type=Path,
                         help="StateSaveLocation of slurm.conf (/var/spool/slurmctld)")  # fmt: skip
    scripts.add_argument("--sent", metavar="FILE", type=Path, help="where to remember which were sent")
    scripts.add_argument("--once", action="store_true", help="send what is there, and end")
    scripts.set_defaults(run=_push_scripts)
    _add_slurm(verbs)
    _add_robinhood(verbs)


_GRANT = (
    "Print the statements that make an account of slurmdbd's database for `oarlock portal --source slurm`: CREATE "
    "USER, a view of the jobs and another of the nodes with the columns that are needed, and SELECT on these two "
    "alone. Nothing is executed."
)


def _add_slurm(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    slurm = verbs.add_parser("slurm", help="an account of slurmdbd's database for a portal", description=_GRANT)
    slurm.add_argument("--grant", action="store_true", required=True, help="print the statements")
    slurm.add_argument("--cluster", metavar="NAME", required=True, help="ClusterName of slurm.conf")
    slurm.add_argument("--database", metavar="NAME", default="slurm_acct_db", help="StorageLoc (slurm_acct_db)")
    slurm.add_argument("--account", metavar="NAME", default="oarlock", help="the account to make (oarlock)")
    slurm.add_argument("--host", metavar="HOST", default="localhost", help="from where it connects (localhost)")
    slurm.set_defaults(run=_print_grant)


_ROBINHOOD = (
    "Print the statements that make an account of Robinhood's database for ROBINHOOD_DATABASES: CREATE USER, and "
    "SELECT on the sums by user and group alone. Nothing is executed."
)


def _add_robinhood(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    robinhood = verbs.add_parser("robinhood", help="an account of Robinhood's database", description=_ROBINHOOD)
    robinhood.add_argument("--grant", action="store_true", required=True, help="print the statements")
    robinhood.add_argument("--database", metavar="NAME", required=True, help="`db` of Robinhood's settings")
    robinhood.add_argument("--account", metavar="NAME", default="oarlock", help="the account to make (oarlock)")
    robinhood.add_argument("--host", metavar="HOST", default="localhost", help="from where it connects (localhost)")
    robinhood.set_defaults(run=_print_robinhood_grant)


def _print_robinhood_grant(arguments: argparse.Namespace) -> None:
    from oarlock.cli.output import show_text
    from oarlock.store.sources.robinhood import grant

    show_text(grant(database=arguments.database, account=arguments.account, host=arguments.host).rstrip())


def _print_grant(arguments: argparse.Namespace) -> None:
    from oarlock.cli.output import show_text
    from oarlock.store.sources.slurm import grant

    show_text(
        grant(arguments.cluster, database=arguments.database, account=arguments.account, host=arguments.host).rstrip()
    )


def _default_file() -> Path:
    from oarlock.server.instance import default_state  # late

    return default_state() / "slurm-scripts.sent"


def _push_scripts(arguments: argparse.Namespace) -> None:
    from oarlock.measure.posting.https import ServerConnection
    from oarlock.measure.posting.slurm_scripts import SPOOL, ScriptPusher, SentScripts
    from oarlock.model.errors import Unavailable
    from oarlock.node import log_lines

    log_lines.to_stderr("oarlock sources: %(message)s", level=logging.INFO)
    connection = ServerConnection(arguments.send, arguments.token_file, arguments.ca)
    sent = SentScripts(arguments.sent or _default_file())
    pusher = ScriptPusher(arguments.spool or SPOOL, connection, sent)
    try:
        if not arguments.once:
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, lambda *_: pusher.stop())
            pusher.run()
        elif not pusher.push()[0]:
            raise Unavailable(f"{arguments.send} did not take all scripts.", hint="Run the command again.")
    finally:
        pusher.close()
