"""scontrol: show a job or a node, hold and release jobs, as Slurm does."""

from __future__ import annotations

from oarlock.cli import output
from oarlock.cli.options import CommandOptions
from oarlock.cli.slurm import job_table as table
from oarlock.cli.slurm.sinfo import node_states
from oarlock.client import RequestRefused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from oarlock.cli.options import ParsedOptions
    from oarlock.cli.output import CommandOutput
    from oarlock.client import Client

OPTIONS = CommandOptions(
    "scontrol",
    "Show a job or a node, hold and release jobs, as Slurm does.",
    usage=("show job JOB", "show node [NODE]", "hold JOB...", "release JOB..."),
)
OPTIONS.end()
_HINT = "Known are: show job JOB, show node [NODE], hold JOB, release JOB."


def main() -> int:
    """Run the command."""
    return output.main(OPTIONS, run)


def run(client: Client, parsed: ParsedOptions, out: CommandOutput) -> None:
    """Do what the first word says."""
    match parsed.words:
        case ["show", "job" | "jobs", *names]:
            _show_jobs(client, names, out)
        case ["show", "node" | "nodes", *names]:
            _show_nodes(client, names, out)
        case ["hold" | "release" as verb, *names] if names:
            ids = [job for word in ",".join(names).split(",") for job in table.find(client, word)]
            results = client.hold({"ids": ids}) if verb == "hold" else client.resume({"ids": ids})
            for result in results:
                if not result["done"]:
                    out.refuse_job(result)
        case _:
            words = " ".join(parsed.words)
            raise RequestRefused(f"`scontrol {words}` cannot be translated.", kind="BadOption", hint=_HINT)


def _show_jobs(client: Client, names: list[str], out: CommandOutput) -> None:
    ids = [job for word in names for job in table.find(client, word)]
    jobs = table.list_jobs(client, ids=",".join(map(str, ids))) if ids else table.list_jobs(client)
    if ids and not jobs:
        raise RequestRefused(
            f"There is no job {names[0]}.", kind="UnknownJob", hint="`sacct` lists those that are over."
        )
    for job in jobs:
        for line in _job_lines(job):
            out.line(line)
        out.line()


def _job_lines(job: dict[str, Any]) -> list[str]:
    walltime, start = job["walltime"] or 0, job["startTime"] or job["scheduledStart"] or 0
    array = [f"   ArrayJobId={job['array_id']} ArrayTaskId={table.task(job)}"] if job["is_array"] else []
    dependency = ",".join(f"after:{number}" for number in job["dependencies"]) or "(null)"
    return [
        f"JobId={job['Job_Id']} JobName={job['name'] or ''}",
        *array,
        f"   UserId={job['owner']} Account={job['project']}",
        f"   JobState={table.state(job)} Reason={table.reason(job)} Dependency={dependency}",
        f"   ExitCode={table.exit_code(job)}",
        f"   RunTime={table.full_clock(table.elapsed(job))} TimeLimit={table.full_clock(walltime)}",
        f"   SubmitTime={table.date(job['submissionTime'])}",
        f"   StartTime={table.date(start)} EndTime={table.date(job['stopTime'] or (start and start + walltime))}",
        f"   Partition={job['queue']}",
        f"   NodeList={table.nodes(job) or '(null)'}",
        f"   NumNodes={table.node_count(job)} NumCPUs={table.core_count(job)}",
        f"   Command={job['command'] or '(null)'}",
        f"   WorkDir={job['launchingDirectory']}",
        f"   StdErr={job['stderr_file']}",
        f"   StdOut={job['stdout_file']}",
    ]


def _show_nodes(client: Client, names: list[str], out: CommandOutput) -> None:
    nodes = node_states(client)
    for name in names:
        if name not in nodes:
            raise RequestRefused(f"There is no node {name}.", kind="UnknownNode", hint="`sinfo -N` lists them.")
    for name in names or list(nodes):
        node = nodes[name]
        out.line(f"NodeName={name}")
        out.line(f"   CPUAlloc={node.used} CPUTot={node.cores}")
        if node.memory:
            out.line(f"   RealMemory={node.memory * 1024}")
        out.line(f"   State={node.state.upper()}")
        out.line()
