"""oarlock shadow: what the scheduler would have made of what a cluster of OAR or Slurm does now."""

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from oarlock.client import RequestRefused

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oarlock.server.sources.shadow import ClusterLook

_ABOUT = (
    "Follow a cluster that OAR or Slurm runs, read-only, for some hours, and plan beside it: the same jobs, as they "
    "came, under one or several policies. Shows waits, slowdowns and utilisation beside those that really were, with "
    "the table and page of `oarlock simulate`. The database is that of SOURCE_DATABASE, as for `oarlock portal`."
)


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to those of `oarlock`."""
    parser = commands.add_parser("shadow", help="plan beside a cluster that others run", description=_ABOUT)
    parser.add_argument("--source", choices=("oar", "slurm"), help="which resource manager runs the cluster")
    parser.add_argument("--recorded", metavar="FILE", type=Path, help="a recording in place of a live cluster")
    parser.add_argument("--record", metavar="FILE", type=Path, help="also write what is seen to FILE")
    parser.add_argument("--period", metavar="SECONDS", type=int, default=60, help="between two looks (60)")
    parser.add_argument("--for", metavar="HOURS", dest="hours", type=float, default=24.0, help="how long (24)")
    parser.add_argument("--policy", metavar="P[,P…]", default="conservative", help="as of `oarlock simulate`")
    parser.add_argument("-J", "--json", action="store_true", help="as JSON: {policy: {…}}")
    parser.add_argument("--html", metavar="FILE", type=Path, help="also write a report with pictures, in one file")
    parser.add_argument("--config", metavar="FILE", type=Path, help="the settings file")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Follow the cluster, then replay what was seen."""
    from oarlock.server.sources.shadow import follow
    from oarlock.simulate import report
    from oarlock.simulate.compare import Comparison
    from oarlock.simulate.platform import parse
    from oarlock.simulate.trace import read_trace
    from oarlock.store.engine.opening import open_database

    snapshots = _snapshots(arguments)
    with tempfile.TemporaryDirectory(prefix="oarlock-shadow-") as folder:
        copy = Path(folder) / "shadow.db"
        with open_database(copy, create=True) as database:
            follow(database, snapshots)
        trace = read_trace(str(copy))
    for remark in trace.remarks:
        _say(remark)
    comparison = Comparison(parse(None, trace))
    policies = list(dict.fromkeys(arguments.policy.split(",")))
    results = [comparison.recorded(trace), *comparison.of(trace, policies)]
    if arguments.html:
        arguments.html.write_text(report.page(trace, comparison.site, results), encoding="utf-8")
    sys.stdout.write(report.as_json(results) if arguments.json else "\n".join(report.text_table(results)) + "\n")


def _snapshots(arguments: argparse.Namespace) -> "Iterator[ClusterLook]":
    from oarlock.server.sources.shadow import play, watch

    if arguments.recorded is not None:
        if not arguments.recorded.is_file():
            raise RequestRefused(f"There is no file {arguments.recorded}.", kind="BadOption")
        return play(arguments.recorded)
    if arguments.source is None:
        raise RequestRefused(
            "Which cluster?", kind="BadOption", hint="Give --source oar, --source slurm or --recorded."
        )
    from oarlock.cli.subcommands.instance.portal import open_source
    from oarlock.config import load

    source = open_source(arguments.source, load(arguments.config).config)
    until = int(time.time() + arguments.hours * 3600)
    return watch(source, period=max(arguments.period, 1), until=until, record=arguments.record, say=_say)


def _say(line: str) -> None:
    print(f"oarlock: {line}", file=sys.stderr, flush=True)
