"""Containers: jobs that other jobs run inside of, on their resources and in their time only.

`-t container` opens a room that `-t inner=NUMBER` names; `-t container=NAME` one that `-t inner=NAME` names, and
several containers of one name are one room. A room may be inside of another.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise

from oarlock.model.job import JobState
from oarlock.model.plan import Obstacle
from oarlock.model.snapshot import PlacedJob, WaitingJob
from oarlock.plan.rules.dependencies import Blocked
from oarlock.plan.sets.bitset import union, without
from oarlock.plan.timeline.occupancy import FOREVER, Occupation


def is_container(types: Iterable[str]) -> bool:
    """Say whether other jobs may run inside of a job."""
    return any(one == "container" or one.startswith("container=") for one in types)


def opened_container(job: WaitingJob | PlacedJob) -> str | None:
    """Give the name of the room that a job opens: its own, or its number; None if it is no container."""
    if isinstance(job, PlacedJob) and job.state == JobState.FINISHING:
        return None  # whatever is still inside of it has to end
    for one in job.types:
        word, _, name = one.partition("=")
        if word == "container":
            return name or str(job.job_id)
    return None


def container_of(types: Iterable[str]) -> str | None:
    """Give the name or number of the container that a job belongs into, as its owner wrote it."""
    return next((one.partition("=")[2] for one in types if one.startswith("inner=")), None)


def guests_of(types: Iterable[str]) -> frozenset[str]:
    """Return the users who may enter a container besides its owner; `*` stands for all."""
    named = (one.partition("=")[2] for one in types if one.startswith("guests="))
    return frozenset(name for names in named for name in names.split(","))


class Containers:
    """The rooms there are: what is theirs, and when. Without containers this costs nothing."""

    def __init__(self, jobs: Sequence[WaitingJob | PlacedJob] = ()) -> None:
        self._rooms: dict[str, dict[int, Occupation]] = {}
        self._names: dict[str, str] = {}  # the number of a container with a name, and that name
        self._running: dict[str, int] = {}
        self._hoped: dict[str, int] = {}  # rooms of containers that wait
        self.needed = False  # whether any job is a container or belongs into one
        for job in jobs:
            if job.types and (is_container(job.types) or container_of(job.types) is not None):
                self.needed = True
            room = opened_container(job) if job.types else None
            if room is not None:
                self._names[str(job.job_id)] = room
                self._rooms.setdefault(room, {})
                self._hoped.setdefault(room, job.job_id)

    def room_of(self, job: WaitingJob | PlacedJob, resources: int | None = None) -> str | None:
        """Give the room that a job belongs into; None: into none.

        One that has resources already that are not in its room (any more) is in everybody's way until it is over.
        """
        name = container_of(job.types)
        room = None if name is None else self._names.get(name, name)
        if room is None or resources is None or not without(resources, self.resources(room)):
            return room
        return None

    def open(self, job: WaitingJob | PlacedJob, stay: Occupation) -> str | None:
        """Note the place of a job, in case it is a container; give the room that is larger now."""
        room = opened_container(job) if job.types else None
        if room is not None:
            self._rooms.setdefault(room, {})[job.job_id] = stay
            if isinstance(job, PlacedJob) and job.state == JobState.RUNNING:
                self._running[room] = self._running.get(room, 0) | stay.resources
        return room

    def withdraw(self, job: WaitingJob) -> str | None:
        """Forget the place of a job, in case it is a container; give the room that is smaller now."""
        room = opened_container(job)
        if room is not None:
            self._rooms[room].pop(job.job_id, None)
        return room

    def close(self, job_id: int) -> str | None:
        """Forget a container; give the room that is smaller now."""
        room = self._names.pop(str(job_id), None)
        if room is not None:
            self._rooms[room].pop(job_id, None)
            self._running.pop(room, None)
        return room

    def resources(self, room: str) -> int:
        """Give all that is in a room at some time."""
        return union(stay.resources for stay in self._rooms.get(room, {}).values())

    def running(self, room: str) -> int:
        """Give what jobs can start on: the resources of containers that run."""
        return self._running.get(room, 0)

    def next(self, room: str) -> tuple[int, int]:
        """Give the container of a room that comes first, and when it starts."""
        start, job_id = min((stay.start, job_id) for job_id, stay in self._rooms[room].items())
        return job_id, start

    def shut(self, room: str) -> list[Occupation]:
        """Give when which resources of a room are not in it."""
        stays = list(self._rooms.get(room, {}).values())
        everything = self.resources(room)
        edges = sorted({0, FOREVER, *(edge for stay in stays for edge in (stay.start, stay.stop))})
        there = [
            (begin, end, union(s.resources for s in stays if s.start <= begin and end <= s.stop))
            for begin, end in pairwise(edges)
        ]
        return [Occupation(begin, end, without(everything, some)) for begin, end, some in there]

    def is_gone(self, room: str) -> bool:
        """Say whether no container of a room is there, not even one that waits."""
        return not self._rooms.get(room) and room not in self._hoped

    def blocked(self, room: str) -> Blocked | None:
        """Say why nothing can be planned in a room."""
        if self._rooms.get(room):
            return None
        if self.is_gone(room):
            return Blocked(Obstacle.CONTAINER, f"there is no container `{room}` (any more)")
        return Blocked(Obstacle.CONTAINER, f"its container, job {self._hoped[room]}, has no place yet")


def placeholder_of(types: Iterable[str]) -> str | None:
    """Give the name under which a job keeps its resources for others; None if it does not."""
    return next((one.partition("=")[2] for one in types if one.startswith("placeholder=")), None)


def allowed_placeholder(types: Iterable[str]) -> str | None:
    """Give the name of the placeholders that are not in a job's way (`allow=NAME`, and OAR's `allowed=NAME`)."""
    return next((one.partition("=")[2] for one in types if one.startswith(("allow=", "allowed="))), None)
