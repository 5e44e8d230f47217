"""The corpus of batch scripts: its cases, and facts in a form that does not depend on the cluster."""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

from tests.slurm import user

FOLDER = Path(__file__).parent
SOURCE = FOLDER.parents[1] / "src"
RECORDED = FOLDER / "recorded.json"
FIRST_NUMBER = 70_001
"""Jobs have numbers that stand for nothing else in a text."""

_NUMBER = re.compile(r"(?<!\d)7\d{4}(?!\d)")
_OF_THE_SYSTEM = re.compile(
    r"slurmstepd-\S+: error: .*|## OAR \[.*\] Job \S+ (KILLED|SIGNALED.*) ##"
    r"|\S+: \d+: exec: \S*/slurm_script\.\w+: not found"
)
"""Lines that each of the two writes into output files in words of its own."""
Facts = dict[str, Any]


def cases(*, soak: bool) -> list[dict[str, Any]]:
    """Return the cases of the corpus, those that take long among them or not."""
    with (FOLDER / "corpus.toml").open("rb") as file:
        return [case for case in tomllib.load(file)["case"] if soak or not case.get("soak")]


def play(
    who: str, top: Path, nodes: list[str], chosen: list[dict[str, Any]], *, account: dict[str, Any],
    environment: dict[str, str],
) -> dict[str, Facts]:  # fmt: skip
    """Have a user type the cases against `who` (`slurm` or `oarlock`) in a folder; return the facts of each case."""
    text = json.dumps(chosen)
    for number, node in enumerate(nodes, 1):
        text = text.replace(f"{{node{number}}}", node)
    ran = subprocess.run(
        [sys.executable, user.__file__, who, str(top)], input=text, capture_output=True, text=True, cwd=top,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(SOURCE), "HOME": str(top), **environment}, check=False,
        timeout=400, **account,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-3000:]
    return {name: _plain(facts, str(top / name), nodes, environment["USER"]) for name, facts in
            json.loads(ran.stdout).items()}  # fmt: skip


def _plain(facts: Facts, folder: str, nodes: list[str], name: str) -> Facts:
    """Replace what is another thing in each run: numbers of jobs, names of nodes, the user, the folder."""
    prefix = re.escape(nodes[0][:-1])
    known = {number: f"JOB{place}" for place, number in enumerate(facts["numbers"], 1)}

    def plain(text: str) -> str:
        text = text.replace(folder, "FOLDER").replace(name, "USER")
        text = re.sub(rf"(?<![a-z0-9]){re.escape(os.uname().nodename)}\b", "HOST", text)
        text = re.sub(rf"\b{prefix}(?=[0-9\[])", "node", text)
        return _NUMBER.sub(lambda match: known.get(match[0], "TASK"), text)

    return {
        "typed": [[code, plain(out), plain(err)] for code, out, err in facts["typed"]],
        "states": {plain(job): state for job, state in sorted(facts["states"].items())},
        "files": {plain(path): plain(text) for path, text in facts["files"].items()},
    }


NOT_SET = {
    "SLURM_CLUSTER_NAME", "SLURM_CONF", "SLURM_JOB_CPUS_PER_NODE_PACK_GROUP_0", "SLURM_LAUNCH_NODE_IPADDR",
    "SLURM_NODE_ALIASES", "SLURM_PRIO_PROCESS", "SLURM_SRUN_COMM_HOST", "SLURM_SRUN_COMM_PORT",
    "SLURM_STEP_LAUNCHER_PORT", "SLURM_TOPOLOGY_ADDR", "SLURM_TOPOLOGY_ADDR_PATTERN", "SLURM_UMASK",
    "SLURM_WORKING_CLUSTER", "SLURM_DISTRIBUTION",
}  # fmt: skip
"""Variables that lead to Slurm's own programs, or tell of what is not here; docs/using/coming-from-slurm.md."""

VARYING = {"SLURM_TASK_PID", "SLURM_SUBMIT_HOST", "SLURM_JOB_UID", "SLURM_JOB_GID", "SLURM_JOB_PARTITION"}
"""Variables whose values differ from run to run."""


def differences(case: dict[str, Any], ours: Facts, recorded: Facts) -> list[str]:
    """Return what our commands did otherwise than the real ones."""
    if "refused" in case:
        asked = case["refused"].replace("{1}", "JOB1").replace("{2}", "JOB2")
        refusals = [(code, err) for code, _, err in ours["typed"] if asked in err]
        return [] if refusals and all(code == 1 for code, _ in refusals) else [f"{asked} is not refused: {ours}"]
    recorded = {**recorded, **case.get("here", {})}
    lines = [
        f"typed: {mine} instead of {theirs}"
        for mine, theirs in zip(_typed(ours), _typed(recorded), strict=True)
        if mine != theirs
    ]
    for what in ("states", "files"):
        mine, theirs = ours[what], recorded[what]
        if what == "files":
            mine, theirs = _files(mine), _files(theirs)
        for name in sorted(mine.keys() | theirs.keys()):
            if mine.get(name) != theirs.get(name):
                lines.append(f"{what} {name}: {mine.get(name)!r} instead of {theirs.get(name)!r}")
    return lines


def record(real: dict[str, Facts]) -> None:
    """Write down what a real Slurm did, without what is another thing on each machine."""
    facts = {name: {**fact, "files": _files(fact["files"])} for name, fact in real.items()}
    RECORDED.write_text(json.dumps(facts, indent=1, sort_keys=True) + "\n")


def _typed(facts: Facts) -> list[tuple[int, str]]:
    return [(1 if code == 255 else code, out) for code, out, _ in facts["typed"]]


def _files(files: dict[str, str]) -> dict[str, str]:
    """Return files without what is not compared: lines of the systems' own, and in `vars` some variables."""
    compared = {}
    for path, text in files.items():
        lines = [line for line in text.splitlines(keepends=True) if not _OF_THE_SYSTEM.fullmatch(line.strip())]
        compared[path] = "".join(map(_variable, lines) if path.startswith("vars") else lines)
    return compared


def _variable(line: str) -> str:
    name = line.partition("=")[0]
    return "" if name in NOT_SET else f"{name}=…\n" if name in VARYING else line
