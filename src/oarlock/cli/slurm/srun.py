"""srun, inside of a job: run a command as several tasks on the nodes of the job, as Slurm does.

It is one of the commands that jobs find on every node, so it needs nothing but Python. Tasks on other nodes are started
by `oarsh`; they are in the job's group there, and end with it.
"""

from __future__ import annotations

import os

from oarlock.cli import output
from oarlock.cli.options import CommandOptions
from oarlock.client import RequestRefused
from oarlock.model.nodeset import fold
from oarlock.node.slurm_tasks import (
    BadStepFile,
    StepCores,
    StepFiles,
    StepRun,
    TasksDoNotFit,
    count_cores,
    place_tasks,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from oarlock.cli.options import ParsedOptions
    from oarlock.cli.output import CommandOutput
    from oarlock.client import Client

OPTIONS = CommandOptions(
    "srun",
    "Run a command as several tasks on the nodes of this job, as Slurm does.",
    usage=("[OPTION]... COMMAND [ARGUMENT]...",),
    about="Inside of a job that sbatch submitted. Standard input goes to task 0.",
    stops_at_word=True,
)
OPTIONS.number("-n --ntasks=COUNT", "how many tasks, instead of those of the job")
OPTIONS.number("-N --nodes=COUNT", "on so many of the job's nodes")
OPTIONS.number("-c --cpus-per-task=COUNT", "cores of each task")
OPTIONS.number("--ntasks-per-node=COUNT", "at most so many tasks on a node")
OPTIONS.flag("--exact", "wait until as many cores are free as the tasks need: steps beside each other share the job")
OPTIONS.text("-D --chdir=DIRECTORY", "where the tasks run, instead of here")
OPTIONS.text("-o --output=FILE", "the output file; %t, %n, %j, %s and %N are replaced: a file for each task")
OPTIONS.text("-e --error=FILE", "the file for errors, instead of the output file")
OPTIONS.flag("-l --label", "print the number of the task before each line")
OPTIONS.flag("-K --kill-on-bad-exit", "end all tasks when one fails")
OPTIONS.end(server=False)


def main() -> int:
    """Run the command."""
    return output.main(OPTIONS, run)


def run(_: Client, parsed: ParsedOptions, out: CommandOutput) -> None:
    """Start the tasks, and end with the highest of their exit codes."""
    node_file = os.environ.get("OAR_NODEFILE")
    if node_file is None or "SLURM_JOB_ID" not in os.environ:
        hint = "Write it into a script for sbatch; one command: sbatch --wait --wrap='COMMAND'."
        raise RequestRefused("srun works inside of a job of sbatch only.", kind="BadOption", hint=hint)
    if not parsed.words:
        raise RequestRefused("There is no command.", kind="NoCommand", hint="srun [OPTION]... COMMAND")
    with open(node_file, encoding="utf-8") as file:
        cores = count_cores(file.read().split())
    each = parsed.number("cpus_per_task") or int(os.environ.get("SLURM_CPUS_PER_TASK") or 1)
    wanted = parsed.number("nodes") or 0
    tasks = parsed.number("ntasks") or wanted or int(os.environ.get("SLURM_NTASKS") or len(cores))
    try:
        places = place_tasks(cores, tasks, each, wanted, parsed.number("ntasks_per_node") or 0)
    except TasksDoNotFit as misfit:
        raise RequestRefused(str(misfit), kind="BadOption", hint="Ask for fewer with -N, -n or -c.") from None
    files = StepFiles(parsed.text("output"), parsed.text("error"))
    directory = parsed.text("chdir") or ""
    step = StepRun(
        parsed.words, places, label=parsed.given("label"), kill=parsed.given("kill_on_bad_exit"), files=files, fold=fold
    )
    try:
        if directory:
            os.chdir(directory)
        with StepCores(os.environ["SLURM_JOB_ID"]) as held:
            step.number = held.count_step()
            if parsed.given("exact"):
                held.take(cores, places, each)
            out.code = step.run()
    except BadStepFile as bad:
        raise RequestRefused(str(bad), kind="BadOption", hint="Known are %t %n %j %J %s %N %%.") from None
    except OSError as error:
        path = error.filename if isinstance(error.filename, str) else parsed.words[0]
        raise RequestRefused(f"{path}: {error.strerror}.", kind="NoCommand", hint="Look at the path.") from None
