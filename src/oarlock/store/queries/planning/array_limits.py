"""Arrays of which only so many jobs run at the same time (type `at_once`): whom the scheduler does not look at yet.

It sees as many jobs of such an array as may run besides those that do, the first ones. The others cost a pass nothing,
however long the array is, and get no dates.
"""

from collections import defaultdict
from collections.abc import Iterable
from functools import cache
from typing import Any, NamedTuple

from sqlalchemy import Select, literal_column, select

from oarlock.model.job import HOLDS_RESOURCES, JobState, Reservation
from oarlock.model.job_type import JobType, parse_types
from oarlock.store.engine.tx import Tx
from oarlock.store.tables import job_types, jobs

_PREFIX = f"{JobType.AT_ONCE}="


class LimitedJob(NamedTuple):
    """A job of an array with a limit that waits for resources or holds some."""

    job_id: int
    array_id: int
    most: int
    waits: bool


class ReachedLimit(NamedTuple):
    """Why a job is not looked at: so many of its array may run at once, and these run or come first."""

    array_id: int
    most: int
    first: tuple[int, ...]

    @property
    def says(self) -> str:
        """The sentence for people."""
        numbers = ", ".join(map(str, self.first[:5])) + (", …" if len(self.first) > 5 else "")
        plural = "job" if self.most == 1 else "jobs"
        return f"array {self.array_id} runs at most {self.most} {plural} at once; first come: {numbers}"


def held_back(tx: Tx) -> dict[int, ReachedLimit]:
    """Return the jobs that wait behind as many of their array as may run at the same time."""
    rows = tx.execute(_live()).all()
    return choose_held_back(
        LimitedJob(number, array, int(most), waits=state == JobState.WAITING.value)
        for number, array, state, type_ in rows
        if (most := parse_types((type_,)).at_once)
    )


def choose_held_back(limited: Iterable[LimitedJob]) -> dict[int, ReachedLimit]:
    """Choose from jobs with limits; those that hold resources come first, then those that wait, by their numbers."""
    first: defaultdict[int, list[int]] = defaultdict(list)
    held: dict[int, ReachedLimit] = {}
    for job in sorted(limited, key=lambda job: (job.waits, job.job_id)):
        if job.waits and len(first[job.array_id]) >= job.most:
            held[job.job_id] = ReachedLimit(job.array_id, job.most, tuple(first[job.array_id]))
        else:
            first[job.array_id].append(job.job_id)
    return held


@cache
def _live() -> Select[Any]:
    states = [JobState.WAITING.value, *sorted(state.value for state in HOLDS_RESOURCES)]
    return (
        select(jobs.c.job_id, jobs.c.array_id, jobs.c.state, job_types.c.type)
        .join(jobs, jobs.c.job_id == job_types.c.job_id)
        .where(
            job_types.c.type_index == literal_column("'CURRENT'"),
            job_types.c.type >= f"{_PREFIX}0",  # served by the index of types, which are ordered by their bytes
            job_types.c.type < f"{_PREFIX}a",
            jobs.c.state.in_(states),
            jobs.c.reservation == literal_column(f"'{Reservation.NONE.value}'"),
        )
    )
