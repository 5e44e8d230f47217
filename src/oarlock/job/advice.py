"""Advice at submission: what past runs of the same name or script say about a request. Nothing is decided by it."""

from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from oarlock.lang.duration import show
from oarlock.model.job import Job
from oarlock.store.queries.job.new_jobs import NewJob
from oarlock.store.queries.usage.past_runs import PastRun

_FEWEST = 3
_ROOM = 1.2
"""So much more than the longest of the past runs is proposed."""
_STEP = 300
_WORTH_IT = 0.75
"""A walltime that saves less than a quarter is not worth a word."""
_GB = 1e9


class Advice(NamedTuple):
    """What past runs used, and the walltime that would do; None where the one asked for is about right."""

    runs: int
    longest: int
    memory_bytes: int | None
    walltime: int | None
    says: str


def advise(runs: Sequence[PastRun], asked_walltime: int, name: str) -> Advice | None:
    """Compare a request with past runs; None if there are too few of them to say anything."""
    if len(runs) < _FEWEST:
        return None
    longest = max(run.seconds for run in runs)
    peaks = [run.memory_bytes for run in runs if run.memory_bytes is not None]
    memory = max(peaks, default=None)
    enough = -(-int(longest * _ROOM) // _STEP) * _STEP or _STEP
    walltime = enough if enough <= asked_walltime * _WORTH_IT else None
    used = show(longest) + ("" if memory is None else f" and {memory / _GB:.1f} GB")
    says = f"The last {len(runs)} runs of {name} took at most {used}; you ask for {show(asked_walltime)}."
    if walltime is None and longest > asked_walltime * _WORTH_IT:
        says += " That is about right." if longest <= asked_walltime else " They would not have had the time to end."
    elif walltime is not None:
        says += f" walltime={show(walltime)} would do."
    return Advice(len(runs), longest, memory, walltime, says)


def label_of(job: Job) -> str:
    """Return what the job is called in advice: its name, or the program that it runs."""
    return job.name or (job.command or "").partition(" ")[0].rpartition("/")[2] or "this job"


def with_walltime(new: NewJob, walltime: int) -> NewJob:
    """Return the same job with another walltime in all its alternatives."""
    alternatives = tuple(replace(choice, walltime=walltime) for choice in new.request.alternatives)
    return replace(new, request=replace(new.request, alternatives=alternatives))


def longest_walltime(new: NewJob) -> int:
    """Return the longest walltime among the alternatives of a job."""
    return max(choice.walltime or 0 for choice in new.request.alternatives)
