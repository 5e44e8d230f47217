"""What is done about jobs that hold GPUs and do not use them: two warnings, and an end where the site wants that.

A warning counts for the idle stretch in which it was sent: a job whose GPU works again starts from nothing. The pauses
between warnings hold also where a server was down meanwhile, so that nobody is ended without having been warned.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct

from oarlock.insight.facts import Facts
from oarlock.insight.findings import judge
from oarlock.insight.rules import FindingAction, FindingRule

FIRST, SECOND, END = 60, 105, 120
"""Idle minutes after which a job is warned, warned again, and ended."""


class ActingJob(NamedTuple):
    """What exceptions ask of a job."""

    user: str
    queue: str
    types: Sequence[str]


class IdleAction(Struct, frozen=True):
    """What is due for a job: the warning after so many idle minutes, or its end. `left` are the minutes until that."""

    rule: FindingRule
    minutes: int
    left: int

    @property
    def ends(self) -> bool:
        """Whether it is the end of the job."""
        return self.minutes == END


def is_excepted(rule: FindingRule, job: ActingJob) -> bool:
    """Return whether a rule is not acted on for a job."""
    names = {kind.partition("=")[0].strip() for kind in job.types} | set(job.types)
    excepted = rule.exceptions
    return job.user in excepted.users or job.queue in excepted.queues or not names.isdisjoint(excepted.types)


def due_action(rule: FindingRule, facts: Facts, warned: Mapping[int, int], *, now: int) -> IdleAction | None:
    """Return what is due by a rule; None if nothing is, or if it is not known how long the GPUs have been idle.

    `warned` says when the job was warned, by the idle minutes of the warning.
    """
    idle = facts["gpu_idle_now_seconds"]
    if rule.act is FindingAction.NONE or not isinstance(idle, int | float) or judge(rule, facts) is None:
        return None
    sent = {minutes: at for minutes, at in warned.items() if at >= now - idle}
    for minutes, before in ((FIRST, 0), (SECOND, FIRST), (END, SECOND)):
        if minutes in sent or (minutes == END and rule.act is not FindingAction.DELETE):
            continue
        waited = now - sent[before] if before else 0
        is_due = idle >= minutes * 60 and waited >= (minutes - before) * 60 * bool(before)
        return IdleAction(rule, minutes, END - minutes) if is_due else None
    return None
