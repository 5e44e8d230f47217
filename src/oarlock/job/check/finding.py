"""The invariants of a database by their numbers in the design, and what a check says of one that does not hold."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

INVARIANTS = {
    1: "no resource belongs to two jobs at a time",
    2: "no resource is promised to two jobs at a time",
    3: "a job has at least the resources that it asked for",
    4: "the history of a job's states has no gap and ends where the job stands",
    5: "jobs move only as the table of moves says",
    6: "a job that is over holds nothing and is never moved again",
    7: "no job stays long in a state that it only passes through",
    8: "at most one attempt of a job is open, and none follows one whose command began",
    9: "a job is submitted, starts and stops in this order, and runs no longer than its walltime",
    10: "accounting is what jobs used and asked for",
    11: "an accepted reservation has its place at its date",
    12: "no job started before the jobs that it depends on were over",
    13: "only best-effort jobs are ended for others, and there is an event for each",
    14: "the members of an array are complete, and numbered without a gap",
    15: "every failed job has an event, and every resource a history that ends with its state",
    16: "quotas hold, and held when jobs began, and every waiting job is in a queue that exists",
    17: "nodes run what the database says, and nothing else",
    18: "nothing is left on nodes of jobs that are over",
    19: "no secret is stored where it can be read",
    20: "every row belongs to something, and the database is whole",
    21: "measurements belong to jobs that ran there, and are possible",
    22: "one server at a time wrote the database",
}
LIVE = frozenset({17, 18})
"""Invariants for which nodes are asked (`--live`)."""
REPAIRABLE = frozenset({10})
"""Invariants that `--repair` restores."""


class CheckSeverity(IntEnum):
    """How bad a finding is; the number is the exit code of the command."""

    WARNING = 1
    BROKEN = 2


@dataclass(frozen=True, slots=True)
class CheckFinding:
    """An invariant that does not hold, in one sentence."""

    invariant: int
    sentence: str
    severity: CheckSeverity = CheckSeverity.BROKEN
    job: int = 0


def broken(invariant: int, sentence: str, *, job: int = 0) -> CheckFinding:
    """Build the finding of something that must never be."""
    return CheckFinding(invariant, sentence, CheckSeverity.BROKEN, job)


def warning(invariant: int, sentence: str, *, job: int = 0) -> CheckFinding:
    """Build the finding of something that should not be, and may have an innocent cause."""
    return CheckFinding(invariant, sentence, CheckSeverity.WARNING, job)


def exit_code(findings: Iterable[CheckFinding]) -> int:
    """Return 0 if nothing was found, 1 for warnings only, else 2."""
    return max((int(finding.severity) for finding in findings), default=0)
