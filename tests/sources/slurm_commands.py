"""Slurm's commands, played: they print the jobs of a test in the form that they were asked for."""

from oarlock.node.commands import CommandFailed
from oarlock.server.sources.slurm_commands import SlurmCommands
from tests.sources.oar_cluster import NOW

NODES = """\
n1|4|2000|mixed|main|up
n2|4|2000|allocated|main|up
n2|4|2000|allocated|night|down
n3|2|100|drained*|main|up
"""
_UNSET = {"%K": "N/A", "%S": "N/A", "%N": "", "%r": "None", "%Q": "100", "%l": "1:00:00", "%a": "science", "%P": "main"}


def ended(number, state, start, end, *, nodes="n1", cpus=2, user=("ann", 1001), limit=60, **more):
    """A row of sacct."""
    return {
        "JobIDRaw": str(number), "JobID": str(number), "User": user[0], "UID": str(user[1]), "State": state,
        "ExitCode": "0:0", "Submit": str(start - 100), "Start": str(start), "End": str(end), "NCPUS": str(cpus),
        "NodeList": nodes, "Partition": "main", "Account": "science", "TimelimitRaw": str(limit),
        "JobName": f"job {number}", **more,
    }  # fmt: skip


def live(number, state, *, user=("ann", 1001), cpus=2, nodes=1, name=None, **more):
    """A row of squeue, by its letters."""
    return {
        "%A": str(number), "%F": str(number), "%U": str(user[1]), "%u": user[0], "%T": state, "%V": str(NOW - 700),
        "%C": str(cpus), "%D": str(nodes), "%j": name or f"job {number}",
    } | _UNSET | {f"%{letter}": text for letter, text in more.items()}  # fmt: skip


def step(number, name="", **more):
    """A row of sacct about what a job used, or one of its steps."""
    told = {"NCPUS": "2", "ElapsedRaw": "1000", "TotalCPU": "00:00:00", "AllocTRES": "cpu=2,mem=1000M"}
    written = f"{number}.{name}" if name else str(number)
    return {"JobIDRaw": written, **told, "TRESUsageInTot": "", "TRESUsageOutTot": "", **more}


class PlayedSlurm:
    """What a cluster has. `ran` are the commands that were executed; `broken` ones fail."""

    def __init__(self):
        self.nodes, self.live, self.ended = NODES, [], []
        self.steps, self.node_events = [], []
        self.ran, self.broken = [], set()
        self.clock = 0.0

    def source(self):
        return SlurmCommands(self.run, now=lambda: NOW + self.clock, monotonic=lambda: self.clock)

    def run(self, command):
        self.ran.append(command[0])
        if command[0] in self.broken:
            raise CommandFailed(f"{command[0]}: slurm_load_jobs error: Unable to contact slurm controller")
        options = dict(word.lstrip("-").split("=", 1) for word in command[1:] if "=" in word)
        return getattr(self, f"_{command[0]}")(options)

    def _sinfo(self, _options):
        return self.nodes

    def _squeue(self, options):
        lines = []
        for row in self.live:
            line = options["format"]
            for letters, text in row.items():
                line = line.replace(letters, text)
            lines.append(line + "\n")
        return "".join(lines)

    def _sacctmgr(self, options):
        return "".join("|".join(event) + "\n" for event in self.node_events)

    def _sacct(self, options):
        names, between = options["format"].split(","), options["delimiter"]
        rows = self.ended
        if "TotalCPU" in names:
            rows = [row for row in self.steps if row["JobIDRaw"].partition(".")[0] in options["jobs"].split(",")]
            options = {}
        if "jobs" in options:
            rows = [row for row in rows if row["JobIDRaw"] in options["jobs"].split(",")]
        lines = [names, *([row[name] for name in names] for row in rows)]
        return "".join(between.join(line) + "\n" for line in lines)
