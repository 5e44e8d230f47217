"""oarlock portal: pages for a cluster that OAR or Slurm runs, read-only."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

    from oarlock.config import Config
    from oarlock.model.source import ClusterSource

_ABOUT = (
    "Show a cluster that OAR or Slurm runs: nodes, jobs, the Gantt chart, findings; nothing there is changed. OAR is "
    "read from its database (SOURCE_DATABASE, account oar_ro), Slurm from slurmdbd's (`oarlock sources slurm`), or "
    "without an account there by sinfo, squeue and sacct. The portal has a state directory of its own; "
    "`OARLOCK_SERVER=DIR/server.sock oarlock login` signs in. Visibility and administrators are set as for `oarlock "
    "serve`."
)


SOURCES = ("oar", "slurm")
_EXAMPLES = {"oar": "postgresql://oar_ro@HOST/oar", "slurm": "mysql://oarlock@HOST/slurm_acct_db"}


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to those of `oarlock`."""
    parser = commands.add_parser("portal", help="pages for a cluster that others run", description=_ABOUT)
    parser.add_argument("--source", choices=SOURCES, required=True, help="which resource manager runs the cluster")
    parser.add_argument("--listen", metavar="HOST:PORT", help="where browsers connect (localhost:6680)")
    parser.add_argument("--state", metavar="DIR", type=Path, help="the state directory of the portal")
    parser.add_argument("--config", metavar="FILE", type=Path, help="the settings file")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Read the settings, and show the cluster."""
    from oarlock.cli.subcommands.instance.site_settings import load_to_listen
    from oarlock.server.instance import default_state
    from oarlock.server.portal import serve_portal

    config = load_to_listen(arguments.config, arguments.listen, nowhere="A portal that listens nowhere shows nothing.")
    source = open_source(arguments.source, config)
    serve_portal(arguments.state or default_state().with_name("oarlock-portal"), config, source)


def open_source(kind: str, config: Config) -> ClusterSource:
    """Return the source that the settings name; `ConfigRefused` if they name none."""
    from oarlock.model.errors import ConfigRefused
    from oarlock.server.sources.slurm_commands import open_commands
    from oarlock.store.sources.connections import ForeignDatabase, parse_address
    from oarlock.store.sources.oar import OarDatabase
    from oarlock.store.sources.slurm import SlurmDatabase

    if kind == "slurm" and not config.source_database:
        return open_commands()
    if not config.source_database:
        raise ConfigRefused(
            f"SOURCE_DATABASE does not name the database of {kind.upper()}.",
            hint=f"Set SOURCE_DATABASE={_EXAMPLES[kind]} and SOURCE_PASSWORD=file:PATH in the settings file.",
        )
    password = config.source_password.value if config.source_password else ""
    if kind == "slurm":
        return SlurmDatabase(ForeignDatabase(parse_address(config.source_database, password), "Slurm's database"))
    return OarDatabase(ForeignDatabase(parse_address(config.source_database, password), "OAR's database"))
