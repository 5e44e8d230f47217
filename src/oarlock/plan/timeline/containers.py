"""Containers: jobs that inner jobs run inside of, on the resources of the container and during its time only.

`-t container` makes a container that `-t inner=NUMBER` names; `-t container=NAME` one that `-t inner=NAME` names.
Several container jobs of one name are one container. A container may be inside of another.
"""

from collections.abc import Sequence
from itertools import pairwise

from oarlock.model.job import JobState
from oarlock.model.job_type import parse_types
from oarlock.model.plan import union, without
from oarlock.model.snapshot import PlacedJob, WaitingJob
from oarlock.plan.timeline.occupancy import FOREVER, Occupation


def opened_container(job: WaitingJob | PlacedJob) -> str | None:
    """Return the name of a job's container: the given one, or its number; None if the job is not a container."""
    if isinstance(job, PlacedJob) and job.state == JobState.FINISHING:
        return None  # its inner jobs have to end with it
    name = parse_types(job.types).container
    return None if name is None else name or str(job.job_id)


class Containers:
    """The containers of a snapshot: which resources they have, and when. Without containers this costs nothing."""

    def __init__(self, jobs: Sequence[WaitingJob | PlacedJob] = ()) -> None:
        self._occupations: dict[str, dict[int, Occupation]] = {}
        self._names: dict[str, str] = {}  # the number of a container with a name, and that name
        self._running: dict[str, int] = {}
        self._waiting: dict[str, int] = {}  # a container job by the container's name; it may still wait
        self.needed = False  # whether any job is a container or an inner job
        for job in jobs:
            if job.types and parse_types(job.types).nested:
                self.needed = True
            container = opened_container(job) if job.types else None
            if container is not None:
                self._names[str(job.job_id)] = container
                self._occupations.setdefault(container, {})
                self._waiting.setdefault(container, job.job_id)

    def room_of(self, job: WaitingJob | PlacedJob, resources: int | None = None) -> str | None:
        """Return the name of the container that a job runs inside of; None if it is not an inner job.

        A running job with resources outside of its container counts as an ordinary job until it ends.
        """
        name = parse_types(job.types).inner
        container = None if name is None else self._names.get(name, name)
        if container is None or resources is None or not without(resources, self.resources(container)):
            return container
        return None

    def open(self, job: WaitingJob | PlacedJob, occupation: Occupation) -> str | None:
        """Record the occupation of a job if it is a container; return the name of the container that grew."""
        container = opened_container(job) if job.types else None
        if container is not None:
            self._occupations.setdefault(container, {})[job.job_id] = occupation
            if isinstance(job, PlacedJob) and job.state == JobState.RUNNING:
                self._running[container] = self._running.get(container, 0) | occupation.resources
        return container

    def withdraw(self, job: WaitingJob) -> str | None:
        """Remove the occupation of a job if it is a container; return the name of the container that shrank."""
        container = opened_container(job)
        if container is not None:
            self._occupations[container].pop(job.job_id, None)
        return container

    def close(self, job_id: int) -> str | None:
        """Remove a container job; return the name of the container that shrank."""
        container = self._names.pop(str(job_id), None)
        if container is not None:
            self._occupations[container].pop(job_id, None)
            self._running.pop(container, None)
        return container

    def resources(self, container: str) -> int:
        """Return all resources that a container has at some time."""
        return union(occupation.resources for occupation in self._occupations.get(container, {}).values())

    def running(self, container: str) -> int:
        """Return the resources of running container jobs, on which inner jobs can start."""
        return self._running.get(container, 0)

    def next(self, container: str) -> tuple[int, int]:
        """Return the container job that starts first, and its start."""
        start, job_id = min((occupation.start, job_id) for job_id, occupation in self._occupations[container].items())
        return job_id, start

    def outside(self, container: str) -> list[Occupation]:
        """Return when which resources of a container do not belong to it."""
        occupations = list(self._occupations.get(container, {}).values())
        everything = self.resources(container)
        edges = sorted(
            {0, FOREVER, *(edge for occupation in occupations for edge in (occupation.start, occupation.stop))}
        )
        there = [
            (begin, end, union(s.resources for s in occupations if s.start <= begin and end <= s.stop))
            for begin, end in pairwise(edges)
        ]
        return [Occupation(begin, end, without(everything, some)) for begin, end, some in there]

    def is_gone(self, container: str) -> bool:
        """Return whether no container job of this name exists, not even a waiting one."""
        return not self._occupations.get(container) and container not in self._waiting

    def is_open(self, container: str) -> bool:
        """Return whether the container has resources at some time."""
        return bool(self._occupations.get(container))

    def opener(self, container: str) -> int:
        """Return the first container job of this name, which may still wait for its place."""
        return self._waiting[container]
