"""Our tables in Slurm's form beside those that a real Slurm printed: its own jobs, told as ours, come out the same."""

import re
import time

import pytest

from oarlock.cli.slurm import sacct, scontrol
from oarlock.model.nodeset import unfold
from tests.slurm.corpus import FOLDER

GOLDEN = FOLDER.parents[2] / "shared" / "data" / "slurm-golden"
FIELDS = (
    "jobid", "jobidraw", "jobname", "user", "partition", "account", "alloccpus", "ncpus", "nnodes", "nodelist", "state",
    "exitcode", "elapsed", "elapsedraw", "timelimit", "submit", "start", "end", "workdir",
)  # fmt: skip
pytestmark = pytest.mark.skipif(not GOLDEN.exists(), reason="the recorded outputs of Slurm are not there")


def recorded_jobs():
    """Return the rows of sacct that are jobs, and not steps of them."""
    head, *lines = [line.split("|") for line in (GOLDEN / "sacct_P_allfields.txt").read_text().splitlines()[1:]
                    if "|" in line]  # fmt: skip
    rows = [dict(zip(head, line, strict=False)) for line in lines if len(line) == len(head)]  # a command may hold a |
    return [row for row in rows if row["User"] and row["End"] not in {"Unknown", ""}]


def as_ours(row):
    """Tell a job of Slurm as our server tells its own."""

    def instant(text):
        return int(time.mktime(time.strptime(text, "%Y-%m-%dT%H:%M:%S"))) if text[:1].isdecimal() else 0

    code, _, signal = row["ExitCode"].partition(":")
    array, _, task = row["JobID"].partition("_")
    state = row["State"].partition(" ")[0]
    events = {"TIMEOUT": ["WALLTIME"], "CANCELLED": ["FRAG_JOB_REQUEST"], "OUT_OF_MEMORY": ["OUT_OF_MEMORY"]}
    return {
        "Job_Id": int(row["JobIDRaw"]), "array_id": int(array), "array_index": int(task or 1), "is_array": bool(task),
        "name": row["JobName"], "owner": row["User"], "queue": row["Partition"], "project": row["Account"],
        "assigned_resources": list(range(int(row["AllocCPUS"] or 0))), "wanted_resources": "", "command": "",
        "assigned_network_address": [] if "None" in row["NodeList"] else unfold(row["NodeList"]),
        "state": "Terminated" if state in {"COMPLETED", "FAILED"} else "Error",
        "exit_code": int(code) << 8 | int(signal), "events": [{"type": event} for event in events.get(state, [])],
        "walltime": int(row["TimelimitRaw"] or 0) * 60, "submissionTime": instant(row["Submit"]),
        "startTime": instant(row["Start"]), "stopTime": instant(row["End"]), "launchingDirectory": row["WorkDir"],
    }  # fmt: skip


def test_jobs_are_told_as_sacct_told_them():
    names = {key: sacct._FIELDS[key][0] for key in FIELDS}
    rows = recorded_jobs()
    assert len(rows) >= 5
    for row in rows:
        job = as_ours(row)
        ours = {name: sacct._FIELDS[key][2](job) for key, name in names.items()}
        theirs = {name: row[name].partition(" ")[0] if name == "State" else row[name] for name in names.values()}
        if not job["assigned_network_address"]:
            ours["NodeList"] = theirs["NodeList"]  # `None assigned`
        assert ours == theirs


def test_what_scontrol_shows_has_slurms_names():
    recorded = "".join((GOLDEN / f"scontrol_show_{what}.txt").read_text() for what in ("job", "node"))
    names = set(re.findall(r"(\w+)=", recorded)) | {"ArrayJobId", "ArrayTaskId"}
    job = {**as_ours(recorded_jobs()[0]), "dependencies": [], "types": [], "message": "", "scheduledStart": 0,
           "stderr_file": "e", "stdout_file": "o", "is_array": True}  # fmt: skip
    shown = set(re.findall(r"(\w+)=", "\n".join(scontrol._job_lines(job))))
    assert shown <= names
