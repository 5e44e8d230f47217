"""Jobs in Slurm's words: states, reasons, numbers of array tasks, times; and tables by Slurm's format strings."""

from __future__ import annotations

import os
import re
import time

from oarlock.cli.slurm.batch_script import COMMAND
from oarlock.client import RequestRefused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from oarlock.client import Client

    Job = dict[str, Any]
    Columns = Mapping[str, tuple[str, Callable[[Job], str]]]

_PENDING, _RUNNING = ("PENDING", "PD"), ("RUNNING", "R")
_LIVE = {
    "Waiting": _PENDING, "Hold": _PENDING, "toAckReservation": _PENDING, "toLaunch": ("CONFIGURING", "CF"),
    "Launching": ("CONFIGURING", "CF"), "Running": _RUNNING, "Suspended": ("SUSPENDED", "S"),
    "Resuming": ("SUSPENDED", "S"), "Finishing": ("COMPLETING", "CG"), "toError": ("COMPLETING", "CG"),
}  # fmt: skip
STATES = dict(
    [
        *_LIVE.values(),
        ("COMPLETED", "CD"),
        ("FAILED", "F"),
        ("CANCELLED", "CA"),
        ("TIMEOUT", "TO"),
        ("OUT_OF_MEMORY", "OOM"),
    ]
)
"""The long words and the short ones."""


def is_over(job: Job) -> bool:
    """Return whether a job has ended."""
    return job["state"] not in _LIVE


def state(job: Job) -> str:
    """Return the state of a job in Slurm's long word."""
    if job["state"] in _LIVE:
        return _LIVE[job["state"]][0]
    events = {event["type"] for event in job.get("events") or ()}
    if "WALLTIME" in events:
        return "TIMEOUT"
    if "FRAG_JOB_REQUEST" in events:
        return "CANCELLED"
    if job["state"] == "Terminated" and not job["exit_code"]:
        return "COMPLETED"
    return "OUT_OF_MEMORY" if "OUT_OF_MEMORY" in events else "FAILED"


def exit_code(job: Job) -> str:
    """Return exit code and signal with a colon between."""
    status = job["exit_code"] or 0
    return f"{status >> 8 & 255}:{status & 127}"


def task(job: Job) -> str:
    """Return the number of an array task; nothing for a job that is alone."""
    command = job.get("command") or ""
    if command.startswith(COMMAND) and job.get("is_array"):
        return str(command.rpartition(" ")[2])
    return str(job["array_index"]) if job.get("is_array") else ""


def number(job: Job) -> str:
    """Return how Slurm names a job: 17, or 12_3 for a task of an array."""
    return f"{job['array_id']}_{task(job)}" if job.get("is_array") else str(job["Job_Id"])


def clock(seconds: int) -> str:
    """Write a span of time: 1-02:03:04, 2:03:04, 3:04."""
    days, rest = divmod(max(0, int(seconds)), 86400)
    hours, minutes, left = rest // 3600, rest // 60 % 60, rest % 60
    if days:
        return f"{days}-{hours:02}:{minutes:02}:{left:02}"
    return f"{hours}:{minutes:02}:{left:02}" if hours else f"{minutes}:{left:02}"


def full_clock(seconds: int) -> str:
    """Write a span of time with all its parts: 00:03:04."""
    days, rest = divmod(max(0, int(seconds)), 86400)
    text = f"{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}"
    return f"{days}-{text}" if days else text


def date(at: int | None) -> str:
    """Write an instant."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(at)) if at else "Unknown"


def elapsed(job: Job) -> int:
    """Return for how many seconds a job has run."""
    if not job["startTime"] or job["state"] in {"Waiting", "Hold"}:
        return 0
    return max(0, int(job["stopTime"] or time.time()) - int(job["startTime"]))


def nodes(job: Job) -> str:
    """Return the nodes of a job, folded."""
    from oarlock.model.nodeset import fold

    return fold(job["assigned_network_address"])


def node_count(job: Job) -> int:
    """Return how many nodes a job has, or asks for."""
    if job["assigned_network_address"]:
        return len(set(job["assigned_network_address"]))
    match = re.search(r"(?:network_address|nodes|host)=(\d+)", job["wanted_resources"] or "")
    return int(match[1]) if match else 1


def core_count(job: Job) -> int:
    """Return how many cores a job has, or asks for."""
    if job["assigned_resources"]:
        return len(job["assigned_resources"])
    match = re.search(r"core=(\d+)", job["wanted_resources"] or "")
    return (int(match[1]) if match else 1) * (node_count(job) if "/core" in (job["wanted_resources"] or "") else 1)


def reason(job: Job) -> str:
    """Return why a job waits, in one of Slurm's words."""
    if job["state"] == "Hold":
        return "JobHeldUser"
    if state(job) != "PENDING":
        return "None"
    if "dependency" in (job["message"] or ""):
        return "DependencyNeverSatisfied"
    if any(kind.startswith("postpone=") for kind in job["types"]):
        return "BeginTime"
    return "Dependency" if job["dependencies"] else "Resources"


def list_jobs(client: Client, **query: object) -> list[Job]:
    """Return jobs with everything that is known of them; `is_array` says whether a job has siblings."""
    jobs: list[Job] = client.jobs(full=1, **query)
    arrays = {job["array_id"] for job in jobs if job["array_id"] != job["Job_Id"]}
    for job in jobs:
        job["is_array"] = job["array_id"] in arrays or _has_task(job)
    return jobs


def _has_task(job: Job) -> bool:
    """Return whether a job is the first of an array: its environment says so, which its owner alone may see."""
    return "OARLOCK_SLURM_TASKS=" in (job.get("environment") or "")


def find(client: Client, word: str) -> list[int]:
    """Return the jobs that a word of a command names: a job, an array with all its tasks, or a task."""
    number_text, _, wanted = word.partition("_")
    if not (number_text.isascii() and number_text.isdecimal()) or len(number_text) > 18:
        raise RequestRefused(f"`{word}` is not a job number.", kind="BadJobId", hint="`squeue` lists the jobs.")
    if wanted:
        members = list_jobs(client, array=int(number_text))
        chosen = [job["Job_Id"] for job in members if task(job) == wanted]
        if not chosen:
            raise RequestRefused(f"There is no task {wanted} in array {number_text}.", kind="UnknownJob", hint="squeue")
        return chosen
    return [job["Job_Id"] for job in client.jobs(array=int(number_text))] or [int(number_text)]


def rows(format_text: str, columns: Columns, jobs: list[Job], *, header: bool) -> list[str]:
    """Lay out jobs by a format string: `%.18i %9P %j`."""
    pieces = re.findall(r"%(\.?)(\d*)([A-Za-z])|([^%]+|%)", format_text)
    for _, _, letter, _ in pieces:
        if letter and letter not in columns:
            hint = f"Known are {' '.join(f'%{name}' for name in columns)}."
            raise RequestRefused(f"%{letter} is not a column here.", kind="BadOption", hint=hint)

    def row(value: Callable[[str], str]) -> str:
        cells = []
        for right, width, letter, text in pieces:
            cells.append(_cell(value(letter), bool(right), int(width or 0)) if letter else text)
        return "".join(cells).rstrip()

    head = [row(lambda letter: columns[letter][0])] if header else []
    return head + [row(_values(columns, job)) for job in jobs]


def _values(columns: Columns, job: Job) -> Callable[[str], str]:
    return lambda letter: columns[letter][1](job)


def _cell(text: str, right: bool, width: int) -> str:
    if not width:
        return text
    return text[:width].rjust(width) if right else text[:width].ljust(width)


def own_name() -> str:
    """Return the name of the user who asks."""
    import pwd

    return pwd.getpwuid(os.getuid()).pw_name
