"""Jobs as a table, as `oarstat` prints them. Where there is no job, nothing is printed."""

from __future__ import annotations

from oarlock.cli import output
from oarlock.cli.time_format import date, duration

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# A job that resumes is still suspended, one whose reservation is acknowledged still waits.
_LIKE_ANOTHER = {"Resum": "S", "toAck": "W"}

_ID = ("Job id", 9, "%-9s")
_STATE = ("S", 1, "%1s")
_USER = ("User", 8, "%-8s")
_DURATION = ("Duration", 10, "%10s")
_USUAL = (_ID, _STATE, _USER, _DURATION, ("System message", 48, "%s"))
_ARRAYS = (_ID, ("A. id", 9, "%-9s"), ("index", 5, "%-5s"), *_USUAL[1:4], ("System message", 32, "%s"))
_DATED = (
    ("Job id", 10, "%-10s"), ("Name", 14, "%-14s"), ("User", 14, "%-14s"), ("Submission Date", 19, "%-19s"), _STATE,
    ("Queue", 10, "%-10s"),
)  # fmt: skip


def letter(state: str) -> str:
    """Return the letter of a state."""
    return _LIKE_ANOTHER.get(state[:5]) or state.removeprefix("to")[0]


def table(jobs: list[Any], now: int) -> list[str]:
    """Lay out jobs, a line each."""
    return output.table(_USUAL, [(job["Job_Id"], *_columns(job, now)) for job in jobs]) if jobs else []


def arrays(jobs: list[Any], now: int) -> list[str]:
    """Lay out the members of arrays, with their places in the array."""
    rows = [(job["Job_Id"], job["array_id"], job["array_index"], *_columns(job, now)) for job in jobs]
    return output.table(_ARRAYS, rows) if jobs else []


def compact(jobs: list[Any], now: int) -> list[str]:
    """Lay out jobs with one line for each array: how many members are listed, and its number."""
    arrays: dict[int, list[Any]] = {}
    for job in jobs:
        arrays.setdefault(job["array_id"], []).append(job)
    rows: list[tuple[object, ...]] = []
    for array_id, (first, *others) in arrays.items():
        _, *columns = _columns(first, now)
        if others:
            rows.append((f"{len(others) + 1}@{array_id}", "-", columns[0], duration(0), columns[2]))
        else:
            rows.append((first["Job_Id"], *_columns(first, now)))
    return output.table(_USUAL, rows) if jobs else []


def dated(jobs: list[Any]) -> list[str]:
    """Lay out jobs as older versions of OAR did, with name, date of submission and queue."""
    rows = [
        (j["Job_Id"], j["name"] or "", j["owner"], date(j["submissionTime"]), letter(j["state"]), j["queue"])
        for j in jobs
    ]
    return output.table(_DATED, rows) if jobs else []


def _columns(job: Any, now: int) -> tuple[str, str, str, str]:
    start = job["startTime"] or now
    ran = max(0, (job["stopTime"] or now) - start)
    return letter(job["state"]), job["owner"], duration(ran), job["message"] or ""
