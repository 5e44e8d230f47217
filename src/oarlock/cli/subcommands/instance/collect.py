"""oarlock collect: the collector alone, for clusters that OAR or Slurm runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

    from oarlock.measure.batch import OwnerLookup
    from oarlock.measure.colmet.intake import ColmetOptions

_ABOUT = (
    "Collect what agents on the nodes of an OAR or Slurm cluster measure, until SIGTERM: curves and a file a job, "
    "energy, /metrics. It runs no jobs. On each node: `oarlock agent --send URL --token-file FILE`, with a token that "
    "`oarlock token add --node NAME` makes here. The same settings as those of `oarlock serve` say how long files are "
    "kept, who administers, and which certificate it shows. With --zmq it receives from the nodes of Colmet, too, as "
    "they are."
)


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to those of `oarlock`."""
    parser = commands.add_parser("collect", help="collect samples of clusters that others run", description=_ABOUT)
    parser.add_argument("--listen", metavar="HOST:PORT", help="where agents and users connect (localhost:6680)")
    parser.add_argument("--state", metavar="DIR", type=Path, help="the state directory")
    parser.add_argument("--config", metavar="FILE", type=Path, help="the settings file")
    _colmet(parser.add_argument_group("from Colmet's nodes"))
    parser.set_defaults(run=run)


def _colmet(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--zmq", metavar="ADDRESS", help="receive from Colmet's nodes here, as tcp://0.0.0.0:5556")
    group.add_argument("--zmq-allow", metavar="ADDRESS", nargs="+", default=[],
                       help="addresses or networks that may send (this machine alone)")  # fmt: skip
    group.add_argument("--zmq-senders", metavar="FILE", type=Path,
                       help="addresses of single nodes, or CURVE keys, in TOML")  # fmt: skip
    group.add_argument("--zmq-perfhw-list", metavar="EVENT", nargs="+", default=[],
                       help="the events behind counter_1 … of Colmet in Python")  # fmt: skip
    group.add_argument("--look-up", metavar="HOW", help="user, project and name of Colmet's jobs from: oar")
    group.add_argument("--database", metavar="FILE", type=Path, help="how to reach OAR's database")


def run(arguments: argparse.Namespace) -> None:
    """Read the settings, and collect."""
    from oarlock.cli.subcommands.instance.site_settings import load_to_listen
    from oarlock.server.collecting.standalone import collect
    from oarlock.server.instance import default_state

    options = _colmet_options(arguments)
    config = load_to_listen(
        arguments.config, arguments.listen, nowhere="A collector that listens nowhere gets no samples."
    )
    collect(arguments.state or default_state(), config, options, _look_up(arguments) if options else None)


def _colmet_options(arguments: argparse.Namespace) -> ColmetOptions | None:
    from oarlock.measure.colmet.intake import ColmetOptions
    from oarlock.measure.options import make_options
    from oarlock.model.errors import ConfigRefused

    if arguments.zmq is None:
        for name in ("zmq_allow", "zmq_senders", "zmq_perfhw_list", "look_up", "database"):
            if getattr(arguments, name):
                raise ConfigRefused(f"--{name.replace('_', '-')} is for --zmq.", hint="Name an address with --zmq.")
        return None
    events = make_options({"perf_events": arguments.zmq_perfhw_list}).perf_events
    return ColmetOptions(arguments.zmq, tuple(arguments.zmq_allow), arguments.zmq_senders, events)


def _look_up(arguments: argparse.Namespace) -> OwnerLookup | None:
    if arguments.look_up is None:
        return None
    from oarlock.measure.cluster_lookup import start_lookup
    from oarlock.measure.options import AgentOptions

    return start_lookup(AgentOptions(look_up=arguments.look_up, database=arguments.database))
