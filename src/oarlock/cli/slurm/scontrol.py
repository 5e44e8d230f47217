"""scontrol: show a job or a node, hold and release jobs, as Slurm does.

Jobs find it on their nodes, where it expands lists of nodes and hands the rest to the scontrol behind it in PATH.
"""

from __future__ import annotations

from oarlock.cli import output
from oarlock.cli.options import CommandOptions
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
    usage=("show job JOB", "show node [NODE]", "show hostnames [NODES]", "hold JOB...", "release JOB..."),
    about="`show hostnames` expands a list of nodes, $SLURM_JOB_NODELIST if none is given.",
)
OPTIONS.flag("-o --oneliner", "a line a job or node")
OPTIONS.end()
_SIGNALLED = "0:15"
_HINT = "Known are: show job JOB, show node [NODE], show hostnames [NODES], hold JOB, release JOB."


def main() -> int:
    """Run the command."""
    return output.main(OPTIONS, run)


def run(client: Client, parsed: ParsedOptions, out: CommandOutput) -> None:
    """Do what the first word says."""
    verb, names = " ".join(parsed.words[:2]), parsed.words[2:]
    if verb in ("show hostname", "show hostnames"):
        _show_names(names, out)
        return
    if not _has_everything():
        _be_the_next()
    if verb in ("show job", "show jobs", "show node", "show nodes"):
        lines = (_job_blocks if "job" in verb else _node_blocks)(client, names)
        for block in lines:
            out.line(" ".join(line.strip() for line in block) if parsed.given("oneliner") else "\n".join(block))
            if not parsed.given("oneliner"):
                out.line()
    elif parsed.words[:1] in (["hold"], ["release"]) and parsed.words[1:]:
        _hold(client, parsed.words[0] == "hold", ",".join(parsed.words[1:]).split(","), out)
    else:
        words = " ".join(parsed.words)
        raise RequestRefused(f"`scontrol {words}` cannot be translated.", kind="BadOption", hint=_HINT)


def _show_names(names: list[str], out: CommandOutput) -> None:
    import os

    from oarlock.model.nodeset import unfold

    text = ",".join(names) or os.environ.get("SLURM_JOB_NODELIST", "")
    if not text:
        hint = "scontrol show hostnames n[1-3]"
        raise RequestRefused("There is no list of nodes, and no $SLURM_JOB_NODELIST.", kind="BadOption", hint=hint)
    try:
        for name in unfold(text):
            out.line(name)
    except ValueError as error:
        raise RequestRefused(str(error), kind="BadOption", hint="scontrol show hostnames n[1-3]") from None


def _has_everything() -> bool:
    """Return whether this is an installation, and not the file that jobs have on their nodes."""
    from importlib.util import find_spec

    return find_spec("oarlock.cli.slurm.sinfo") is not None


def _be_the_next() -> None:
    """Become the scontrol that follows in PATH: this one, on a node, cannot ask the server for more."""
    import os
    import shutil
    import sys

    own = os.path.dirname(os.path.abspath(sys.argv[0]))
    folders = [folder for folder in os.environ.get("PATH", "").split(":") if os.path.abspath(folder) != own]
    following = shutil.which("scontrol", path=":".join(folders))
    if following is None:
        hint = "An administrator installs Slurm's commands on a node by `oarlock slurm install`."
        raise RequestRefused("scontrol on a node knows `show hostnames` only.", kind="BadOption", hint=hint)
    os.execv(following, [following, *sys.argv[1:]])  # noqa: S606


def _hold(client: Client, hold: bool, words: list[str], out: CommandOutput) -> None:
    from oarlock.cli.slurm.job_table import find

    for word in words:
        ids = find(client, word)
        results = client.hold({"ids": ids}) if hold else client.resume({"ids": ids})
        if not any(result["done"] for result in results):  # some tasks of an array may be over
            out.refuse_job(results[0])


def _job_blocks(client: Client, names: list[str]) -> list[list[str]]:
    from oarlock.cli.slurm import job_table as table

    ids = [job for word in names for job in table.find(client, word)]
    jobs = table.list_jobs(client, ids=",".join(map(str, ids))) if ids else table.list_jobs(client)
    if ids and not jobs:
        raise RequestRefused(
            f"There is no job {names[0]}.", kind="UnknownJob", hint="`sacct` lists those that are over."
        )
    return [_job_lines(job) for job in jobs]


def _job_lines(job: dict[str, Any]) -> list[str]:
    from oarlock.cli.slurm import job_table as table

    # What sacct shows as 0:0 has its signal here, in Slurm also.
    was_ended = job["startTime"] and not job["exit_code"] and table.state(job) in {"CANCELLED", "TIMEOUT"}
    walltime, start = job["walltime"] or 0, job["startTime"] or job["scheduledStart"] or 0
    array = [f"   ArrayJobId={job['array_id']} ArrayTaskId={table.task(job)}"] if job["is_array"] else []
    dependency = ",".join(f"after:{number}" for number in job["dependencies"]) or "(null)"
    return [
        f"JobId={job['Job_Id']} JobName={job['name'] or ''}",
        *array,
        f"   UserId={job['owner']} Account={job['project']}",
        f"   JobState={table.state(job)} Reason={table.reason(job)} Dependency={dependency}",
        f"   ExitCode={_SIGNALLED if was_ended else table.exit_code(job)}",
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


def _node_blocks(client: Client, names: list[str]) -> list[list[str]]:
    from oarlock.cli.slurm.sinfo import node_states

    nodes = node_states(client)
    for name in names:
        if name not in nodes:
            raise RequestRefused(f"There is no node {name}.", kind="UnknownNode", hint="`sinfo -N` lists them.")
    blocks = []
    for name in names or list(nodes):
        node = nodes[name]
        memory = [f"   RealMemory={node.memory * 1024}"] if node.memory else []
        cores = f"   CPUAlloc={node.used} CPUTot={node.cores}"
        blocks.append([f"NodeName={name}", cores, *memory, f"   State={node.state.upper()}"])
    return blocks
