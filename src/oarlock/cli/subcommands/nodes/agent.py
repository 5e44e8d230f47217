"""oarlock agent: measure the jobs of this node; `oarlock agent set` changes it while it runs."""

import argparse
import json
import logging
from pathlib import Path
from typing import Any

NOT_OPTIONS = {"run", "config", "action", "verbose", "enable_perfhw", "enable_rapl", "enable_temperature"}


_CHANGE = (
    "Change a running agent; what is not given stays as it is. When the jobs that are there now are over, the agent "
    "measures again as it was started; on a node without jobs, when those that come next are over."
)


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to those of `oarlock`."""
    parser = commands.add_parser(
        "agent",
        help="measure the jobs of this node and serve the measurements",
        description="Measure every job of this node, whichever resource manager started it, and hand the measurements "
        "to Prometheus and other outputs. `oarlock agent set …` changes a running agent, `oarlock agent show` shows "
        "its settings.",
        argument_default=argparse.SUPPRESS,
    )
    parser.set_defaults(run=run)
    _measuring(parser.add_argument_group("measuring"))
    _outputs(parser.add_argument_group("outputs"))
    _owners(parser.add_argument_group("owners of jobs"))
    parser.add_argument("--config", metavar="FILE", type=Path,
                        help="options in TOML: [agent], or Alumet's [plugins.oar]; the command line wins")  # fmt: skip
    parser.add_argument("--control", metavar="PATH", help="the socket of `oarlock agent set`; `none` for no socket")
    _colmet(parser.add_argument_group("as Colmet"))
    parser.add_argument("-v", "--verbose", action="store_true", help="say more")
    actions = parser.add_subparsers(dest="action", metavar="set|show", required=False)
    change = actions.add_parser("set", help="change a running agent", argument_default=argparse.SUPPRESS,
                                description=_CHANGE)  # fmt: skip
    _changeable(change)
    change.add_argument("--keep", action="store_true", help="do not go back; alone, keep what is in force")
    show = actions.add_parser("show", help="show the settings of a running agent", argument_default=argparse.SUPPRESS)
    for sub in (change, show):
        sub.add_argument("--control", metavar="PATH", help="the agent's socket")


def run(arguments: argparse.Namespace) -> None:
    """Run an agent, or talk to one that runs."""
    if getattr(arguments, "action", None) is None:
        _run(arguments)
    else:
        _ask(arguments)


def _run(arguments: argparse.Namespace) -> None:
    from oarlock.measure import agent, options
    from oarlock.node import log_lines

    level = logging.DEBUG if getattr(arguments, "verbose", False) else logging.INFO
    log_lines.to_stderr("oarlock agent: %(message)s", level=level)
    given = options.read_file(arguments.config) if hasattr(arguments, "config") else {}
    agent.run(options.make_options(_given(arguments), options.make_options(given)))


def _ask(arguments: argparse.Namespace) -> None:
    from oarlock.measure import control

    given = _given(arguments)
    path = Path(given.pop("control")) if "control" in given else control.default_path()
    print(json.dumps(control.ask(path, given if arguments.action == "set" else {}), indent=2))


def _given(arguments: argparse.Namespace) -> dict[str, Any]:
    given = {name: value for name, value in vars(arguments).items() if name not in NOT_OPTIONS}
    switched = [
        source
        for source, flag in (("perf", "enable_perfhw"), ("rapl", "enable_rapl"), ("temperature", "enable_temperature"))
        if hasattr(arguments, flag)
    ]
    if switched:
        given["enable"] = [*given.get("enable", ()), *switched]
    return given


def _measuring(group: "argparse._ArgumentGroup") -> None:
    group.add_argument("--layout", metavar="NAME", help="auto (default), oarlock, oar2, oar3, slurm, or a site's own")
    group.add_argument("--layouts-file", metavar="FILE", help="a site's own layouts")
    group.add_argument("--all-cgroups", dest="jobs_only", action="store_false", help="also cgroups that are not jobs")
    group.add_argument("--scratch", metavar="PATH", nargs="+", help="file systems whose use is told (/scratch)")
    group.add_argument("--redfish", metavar="FILE", help="how to reach the management controller, for --enable redfish")
    group.add_argument("--cluster", metavar="NAME", help="a label `cluster` on everything")
    _changeable(group)


def _changeable(group: "argparse._ActionsContainer") -> None:
    group.add_argument("--period", metavar="SECONDS", help="from one sample to the next (5; at least 0.1)")
    group.add_argument("--enable", metavar="SOURCE", nargs="+", help="measure with these too")
    group.add_argument("--disable", metavar="SOURCE", nargs="+", help="do not measure with these")
    group.add_argument("--enable-perfhw", action="store_true", help="count events of the processor for each job")
    group.add_argument("--perfhw-list", dest="perf_events", metavar="EVENT", nargs="+", help="which events")
    group.add_argument("--enable-RAPL", dest="enable_rapl", action="store_true", help="measure the processors' energy")
    group.add_argument("--enable-temperature", action="store_true", help="measure temperatures")
    group.add_argument("--names", metavar="FAMILY", nargs="+",
                       help="names to give: oarlock slurm (default), jobs, alumet, node, redfish")  # fmt: skip


def _outputs(group: "argparse._ArgumentGroup") -> None:
    group.add_argument("--listen", metavar="HOST:PORT", help="serve /metrics (127.0.0.1:9798), or `none`")
    group.add_argument("--tls-certificate", metavar="FILE", help="serve by TLS with this certificate")
    group.add_argument("--tls-key", metavar="FILE", help="the certificate's key")
    group.add_argument("--send", metavar="URL", help="send samples to `oarlock collect` or `oarlock serve` there")
    group.add_argument("--token-file", metavar="FILE",
                       help="with --send: this node's token; else what who scrapes must send")  # fmt: skip
    group.add_argument("--node", metavar="NAME", help="with --send: this node's name (the host's)")
    group.add_argument("--ca", metavar="FILE", help="with --send: the certificate of the server's authority")
    group.add_argument("--scrape-token-file", metavar="FILE", help="who scrapes must send what this file holds")
    group.add_argument("--open-to-all", action="store_true", help="listen beyond this machine without TLS and token")
    group.add_argument("--json", metavar="FILE", help="write JSON lines; `-` is standard output")
    group.add_argument("--csv", metavar="FILE", help="write CSV; `-` is standard output")
    group.add_argument("--push", metavar="URL", help="push to a Prometheus push gateway")
    group.add_argument("--names-file", metavar="FILE", help="a family of names of the site's own")


def _colmet(group: "argparse._ArgumentGroup") -> None:
    group.add_argument("--colmet", action="store_true",
                       help="count no more than five events, as Colmet does: the first of --perfhw-list, and a line "
                       "names the others; without it all are counted, in turns where the processor cannot count them "
                       "at once, and scaled")  # fmt: skip
    group.add_argument("--control-zmq", metavar="ADDRESS",
                       help="understand messages of configure_colmet.py here (127.0.0.1:5557)")  # fmt: skip
    group.add_argument("--control-keys", metavar="FILE",
                       help="CURVE keys for --control-zmq; without them only this machine's own addresses")  # fmt: skip


def _owners(group: "argparse._ArgumentGroup") -> None:
    group.add_argument("--look-up", metavar="HOW", help="user, account and job name from: none, slurm, slurmdbd, oar")
    group.add_argument("--database", metavar="FILE", help="how to reach the database of slurmdbd or OAR")
    group.add_argument("--slurm-cluster", metavar="NAME", help="the cluster's name in slurmdbd")
