"""oarlock simulate: replay a trace of past jobs under other policies."""

import argparse
import gc
import sys
from pathlib import Path

from oarlock.cli.layout.progress import ProgressBar

_ABOUT = (
    "Replay jobs of the past under one or several policies and compare: waits, slowdowns, utilisation, fairness, how "
    "good predictions were, energy. The planner is the one that `oarlock serve` runs. TRACE is a file in the Standard "
    "Workload Format (.swf, .swf.gz; also with Alea's nodes:ppn), a workload of Batsim (JSON), or a database of "
    "Oarlock or OAR 2 (a file of SQLite, or postgresql://…) whose past jobs are replayed."
)
_POLICIES = (
    "one or several, with commas: fcfs, easy (default), easy-sjbf, depth-N, depth-N-sjbf, conservative, or the name "
    "that a queue has (oar_sched_gantt_with_timesharing, …); `+predict` behind one plans with the time that jobs will "
    "probably take, `+multifactor` takes jobs by their priority (use counts with --full only)"
)
_RESOURCES = (
    "a number of processors that are all alike, or a tree of nodes: `switch=4/nodes=8/core=32` (also written "
    "`4*switch/8*nodes/32*core`), several trees joined by `+`. Without it: what the trace says"
)


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to those of `oarlock`."""
    parser = commands.add_parser("simulate", help="replay past jobs under other policies", description=_ABOUT)
    parser.add_argument("trace", metavar="TRACE", help="the jobs: a file, or the address of a database")
    parser.add_argument("--policy", metavar="P[,P…]", default="easy", help=_POLICIES)
    parser.add_argument("--resources", metavar="N|TREE", help=_RESOURCES)
    parser.add_argument("--ties", action="store_true",
                        help="at one instant, the rules of the reference simulator (pyss)")  # fmt: skip
    parser.add_argument("--full", action="store_true",
                        help="with everything that a server does for a job, on virtual nodes; slow")  # fmt: skip
    parser.add_argument("--no-predictions", dest="foresee", action="store_false",
                        help="do not follow the first date that a job is told; quicker")  # fmt: skip
    history = parser.add_argument_group("of a database")
    history.add_argument("--since", metavar="DATE", help="jobs submitted from then on: YYYY-MM-DD [hh:mm:ss]")
    history.add_argument("--until", metavar="DATE", help="and before then")
    shaking = parser.add_argument_group("how much is chance")
    shaking.add_argument("--shake", metavar="N", type=_count, default=0,
                         help="replay N times more, submissions moved a little at random: mean and spread")  # fmt: skip
    shaking.add_argument("--shift", metavar="SECONDS", type=_count, default=60, help="moved by so much at most (60)")
    shaking.add_argument("--seed", metavar="S", type=_count, default=1, help="what the drawing begins with (1)")
    _energy(parser.add_argument_group("energy: watts of a node (where processors are all alike, of each)"))
    outputs = parser.add_argument_group("output")
    outputs.add_argument("-J", "--json", action="store_true", help="as JSON: {policy: {…}}")
    outputs.add_argument("--csv", metavar="FILE", type=Path, help="also write a line a job")
    outputs.add_argument("--html", metavar="FILE", type=Path, help="also write a report with pictures, in one file")
    parser.set_defaults(run=run)


def _energy(group: "argparse._ArgumentGroup") -> None:
    group.add_argument("--busy-watts", metavar="W", type=float, default=200.0, help="with a job on it (200)")
    group.add_argument("--idle-watts", metavar="W", type=float, default=100.0, help="without (100)")
    group.add_argument("--off-watts", metavar="W", type=float, default=10.0, help="switched off (10)")
    group.add_argument("--idle-timeout", metavar="SECONDS", type=_count, default=600,
                       help="idle for so long, it would be switched off (600)")  # fmt: skip


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"`{text}` is not a whole number from 0 on")
    return int(text)


def run(arguments: argparse.Namespace) -> None:
    """Replay, and tell what came of it."""
    from oarlock.simulate import report
    from oarlock.simulate.compare import Comparison, Perturbation
    from oarlock.simulate.platform import parse
    from oarlock.simulate.replay import EventOrder
    from oarlock.simulate.statistics import PowerModel
    from oarlock.simulate.trace import FOREVER, read_trace

    _refuse_early(arguments)
    trace = read_trace(arguments.trace, since=_instant(arguments.since, 0), until=_instant(arguments.until, FOREVER))
    for reason, count in trace.skipped.items():
        unit = "line" if trace.resources is None else "job"
        print(f"oarlock: {count} {unit}{'s' * (count > 1)} of {trace.name} skipped: {reason}.", file=sys.stderr)
    for remark in trace.remarks if arguments.resources is None else ():
        print(f"oarlock: {remark}.", file=sys.stderr)
    gc.freeze()  # the trace stays to the end: looking through it for garbage again and again takes time
    comparison = Comparison(
        parse(arguments.resources, trace),
        EventOrder.REFERENCE if arguments.ties else EventOrder.OURS,
        PowerModel(arguments.busy_watts, arguments.idle_watts, arguments.off_watts, arguments.idle_timeout),
        Perturbation(arguments.shake, arguments.seed, arguments.shift),
        foresee=arguments.foresee,
        full=arguments.full,
    )
    with ProgressBar(len(trace.jobs)) as bar:
        results = comparison.of(trace, list(dict.fromkeys(arguments.policy.split(","))), bar.show)
    if arguments.csv:
        with arguments.csv.open("w", encoding="utf-8", newline="") as file:
            report.write_csv(results, file)
    if arguments.html:
        from oarlock.simulate.report import page

        arguments.html.write_text(page(trace, comparison.site, results), encoding="utf-8")
    sys.stdout.write(report.as_json(results) if arguments.json else "\n".join(report.text_table(results)) + "\n")


def _refuse_early(arguments: argparse.Namespace) -> None:
    """Refuse what would come to nothing, before hours of replaying."""
    from oarlock.simulate.trace import TraceRefused

    for path in (file for file in (arguments.csv, arguments.html) if file is not None):
        try:
            path.open("a").close()
        except OSError as problem:
            raise TraceRefused(
                f"{path} cannot be written: {problem.strerror}.", hint="Name a file in a folder of yours."
            ) from problem


def _instant(text: str | None, otherwise: int) -> int:
    from oarlock.cli.layout.readable import instant
    from oarlock.client import RequestRefused
    from oarlock.simulate.trace import TraceRefused

    if text is None:
        return otherwise
    try:
        return instant(text, what="--since or --until")
    except RequestRefused as refused:
        raise TraceRefused(str(refused), hint=refused.hint) from refused
